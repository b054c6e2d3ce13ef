//! The way to a collector: a gRPC channel, or HTTP with a connection for each batch (there are
//! few), with TLS where the URL asks for it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response, Uri, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::settings::{BadSetting, Target};

/// An answer of a collector is a few bytes.
const MOST: usize = 1 << 20;

/// Certificates (PEM) to trust; `None` for the public ones.
pub(super) type Trusted = Option<Arc<[u8]>>;

/// Connects when there is something to send.
pub(super) fn channel(target: &Target, trusted: &Trusted) -> Result<Channel, BadSetting> {
    let bad = |error: tonic::transport::Error| {
        BadSetting(format!("the OTLP endpoint {:?}: {error}", target.url))
    };
    let mut endpoint = Endpoint::from_shared(target.url.clone())
        .map_err(bad)?
        .connect_timeout(target.timeout)
        .timeout(target.timeout);
    if target.url.starts_with("https://") {
        let tls = ClientTlsConfig::new();
        let tls = match trusted {
            Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
            None => tls.trust_anchors(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        };
        endpoint = endpoint.tls_config(tls).map_err(bad)?;
    }
    Ok(endpoint.connect_lazy())
}

/// HTTP, from whatever thread: the work is done in the runtime.
#[derive(Debug, Clone)]
pub(super) struct Http {
    tls: Arc<ClientConfig>,
    runtime: Handle,
    timeout: Duration,
}

impl Http {
    pub(super) fn new(
        target: &Target,
        trusted: &Trusted,
        runtime: Handle,
    ) -> Result<Self, BadSetting> {
        let mut roots = RootCertStore::empty();
        match trusted {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let added = certificate
                        .map_err(|e| e.to_string())
                        .and_then(|c| roots.add(c).map_err(|e| e.to_string()));
                    added.map_err(|e| BadSetting(format!("telemetry.ca: {e}")))?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| BadSetting(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            tls: Arc::new(tls),
            runtime,
            timeout: target.timeout,
        })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri().clone();
        let (host, port) = place(&uri)?;
        let tcp = TcpStream::connect((host.as_str(), port)).await?;
        match uri.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(host)?;
                let tls = tokio_rustls::TlsConnector::from(self.tls.clone());
                exchange(tls.connect(name, tcp).await?, request).await
            }
            _ => exchange(tcp, request).await,
        }
    }
}

fn place(uri: &Uri) -> Result<(String, u16), HttpError> {
    let host = uri.host().ok_or("the OTLP endpoint names no host")?;
    let usual = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    // An IPv6 address stands in brackets, which are not part of it.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), uri.port_u16().unwrap_or(usual)))
}

async fn exchange(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (mut parts, body) = request.into_parts();
    if let Some(authority) = parts.uri.authority() {
        parts.headers.insert(HOST, authority.as_str().parse()?);
    }
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str());
    parts.uri = path.parse()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(Request::from_parts(parts, Full::new(body)));
    let (parts, body) = answer.await?.into_parts();
    let body = Limited::new(body, MOST).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(parts, body))
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let this = self.clone();
        let sent = async move { tokio::time::timeout(this.timeout, this.send(request)).await };
        self.runtime.spawn(sent).await??
    }
}
