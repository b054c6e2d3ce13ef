//! HTTP requests of the commands: one connection each, errors that say what to do.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::args::{Internal, Server};

const PATIENCE: Duration = Duration::from_secs(10);

/// Somebody to ask.
pub(super) struct Ask {
    base: String,
    token: Option<String>,
    ca: Option<Vec<u8>>,
    /// What to do when nobody answers.
    hint: &'static str,
}

/// Either kind of connection.
trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Ask {
    /// A server's public port, with a token.
    ///
    /// # Errors
    /// When the certificates to trust can't be read.
    pub(super) fn public(server: &Server, token: String) -> Result<Self> {
        Ok(Self {
            base: server.http(),
            token: Some(token),
            ca: server.ca_pem()?,
            hint: "is it running? `adsum serve --dev` starts one, --server names another",
        })
    }

    /// A node's internal port.
    pub(super) fn internal(internal: &Internal) -> Self {
        Self {
            base: internal.internal.trim_end_matches('/').to_owned(),
            token: None,
            ca: None,
            hint: "is the node running? Its internal address is listen.internal; --internal names \
                   another",
        }
    }

    /// What is there.
    ///
    /// # Errors
    /// When nobody answers, or they refuse.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let (status, text) = self.text(Method::GET, path, None).await?;
        answered(status, &text)
    }

    /// Does something.
    ///
    /// # Errors
    /// When nobody answers, or they refuse.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let (status, text) = self.text(Method::POST, path, Some(body)).await?;
        answered(status, &text)
    }

    /// The answer as it is.
    ///
    /// # Errors
    /// When nobody answers.
    pub(super) async fn text(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String)> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        let body = timeout(PATIENCE, response.into_body().collect()).await;
        let body = body
            .context("the answer did not end in time")?
            .context("the answer broke off")?;
        Ok((
            status,
            String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        ))
    }

    /// An answer that goes on.
    ///
    /// # Errors
    /// When nobody answers, or they refuse.
    pub(super) async fn stream(&self, method: Method, path: &str) -> Result<Incoming> {
        let response = self.send(method, path, None).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await?.to_bytes();
        answered(status, &String::from_utf8_lossy(&body))?;
        bail!("the server answered {status}")
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>> {
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .with_context(|| format!("{} is no URL", self.base))?;
        let asked = timeout(PATIENCE, self.exchange(method, &uri, body)).await;
        let asked = asked.unwrap_or_else(|_| bail!("no answer in time"));
        asked.with_context(|| format!("{} can't be asked; {}", self.base, self.hint))
    }

    async fn exchange(
        &self,
        method: Method,
        uri: &Uri,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>> {
        let authority = uri.authority().context("the URL names no host")?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri.path_and_query().map_or("/", |p| p.as_str()))
            .header(HOST, authority.as_str());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(body)).context("no request")?;
        let io = TokioIo::new(self.connect(uri).await?);
        let (mut sender, connection) = http1::handshake(io).await?;
        // Ends with the answer, or with this process.
        tokio::spawn(connection);
        Ok(sender.send_request(request).await?)
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<dyn Io>> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("the URL must begin with http:// or https://"),
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        if !secure {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).context("the host is no name")?;
        let connector = TlsConnector::from(Arc::new(tls(self.ca.as_deref())?));
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

fn tls(ca: Option<&[u8]>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.context("--ca")?).context("--ca")?;
            }
            ensure!(!roots.is_empty(), "--ca has no certificate in PEM");
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// The JSON of an answer, or what it complains about.
fn answered(status: StatusCode, text: &str) -> Result<Value> {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    if status.is_success() {
        return Ok(body);
    }
    let problem = &body["error"];
    let said = problem["message"].as_str().unwrap_or_else(|| text.trim());
    let code = problem["code"].as_str().unwrap_or_default();
    let advice = match status {
        StatusCode::UNAUTHORIZED => {
            "; give a token with --token or ADSUM_TOKEN (`adsum token` mints one), or start the \
             server with --dev"
        }
        StatusCode::NOT_FOUND if said.is_empty() => "; is this the right port?",
        _ => "",
    };
    match code {
        "" => bail!("the server answered {status}: {said}{advice}"),
        code => bail!("{said} ({code}){advice}"),
    }
}

/// An id as a part of a path.
pub(super) fn segment(id: &str) -> String {
    let mut path = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_safe_in_paths() {
        assert_eq!(segment("a b/ü?"), "a%20b%2F%C3%BC%3F");
    }

    #[test]
    fn refusals_become_sentences() {
        let said = |status, text| answered(status, text).unwrap_err().to_string();
        let body = r#"{"error":{"code":"unauthorized","message":"a token is required"}}"#;
        let told = said(StatusCode::UNAUTHORIZED, body);
        assert!(
            told.starts_with("a token is required (unauthorized); give"),
            "{told}"
        );
        let told = said(
            StatusCode::BAD_REQUEST,
            r#"{"error":{"code":"invalid_id","message":"no id"}}"#,
        );
        assert_eq!(told, "no id (invalid_id)");
        let told = said(StatusCode::NOT_FOUND, "");
        assert!(told.contains("right port"), "{told}");
        assert_eq!(
            answered(StatusCode::OK, "{}").unwrap(),
            serde_json::json!({})
        );
    }
}
