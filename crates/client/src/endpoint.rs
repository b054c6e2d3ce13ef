//! Where to connect to: a gateway, or whatever stands before many of them.

use std::{str::FromStr, sync::Arc};

use tonic::transport::Uri;

use crate::ConfigError;

/// The path of the WebSocket, if the endpoint names none.
const PATH: &str = "/v1/ws";

/// A parsed endpoint. The scheme says whether there is TLS; what is spoken is the transport's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Endpoint {
    /// As it was given.
    pub(crate) name: Arc<str>,
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    authority: String,
    path: String,
}

impl Endpoint {
    /// What a WebSocket handshake asks for.
    pub(crate) fn ws_uri(&self) -> String {
        let scheme = if self.secure { "wss" } else { "ws" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    /// What gRPC requests are addressed to.
    pub(crate) fn http_uri(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl FromStr for Endpoint {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Endpoint(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        // User and password have no place here: the token is what says who one is.
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let path = match uri.path_and_query().map(|p| p.as_str()) {
            None | Some("" | "/") => PATH,
            Some(path) => path,
        };
        Ok(Self {
            name: text.into(),
            secure,
            host,
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.to_string(),
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_ports_and_paths() {
        let plain: Endpoint = "ws://localhost:8080".parse().unwrap();
        assert_eq!(plain.ws_uri(), "ws://localhost:8080/v1/ws");
        assert_eq!(plain.http_uri(), "http://localhost:8080");
        let secure: Endpoint = "https://[::1]/presence?x=1".parse().unwrap();
        assert_eq!((secure.host.as_str(), secure.port), ("::1", 443));
        assert_eq!(secure.ws_uri(), "wss://[::1]/presence?x=1");
        assert_eq!(secure.http_uri(), "https://[::1]");
    }

    #[test]
    fn what_is_no_endpoint() {
        for bad in [
            "",
            "localhost:8080",
            "ftp://a",
            "ws://",
            "ws://u:p@h",
            "ws://a b",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }
}
