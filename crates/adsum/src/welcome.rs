//! What a node says when it is up: where it is, and what to try first.

use std::net::SocketAddr;

use crate::config::Config;

/// Where a node listens.
pub(crate) struct Addresses {
    /// For clients, with the role.
    pub(crate) public: Option<SocketAddr>,
    /// For operators.
    pub(crate) internal: SocketAddr,
}

/// Says it on stdout.
pub(crate) fn print(config: &Config, addresses: &Addresses) {
    crate::print(&text(config, addresses));
}

fn text(config: &Config, Addresses { public, internal }: &Addresses) -> String {
    let mut text = format!("adsum is up: http://{internal}/readyz tells how it is");
    let Some(public) = public else {
        return text;
    };
    let (http, ws) = match config.tls.cert {
        Some(_) => ("https", "wss"),
        None => ("http", "ws"),
    };
    text += &format!("\n  clients   {ws}://{public}/v1/ws, {http}://{public}/v1, gRPC {public}");
    text += &format!("\n  API       {http}://{public}/v1/openapi.json");
    if config.node.dev {
        // As it was called, so that the line can be used as it is.
        let adsum = std::env::args()
            .next()
            .unwrap_or_else(|| "adsum".to_owned());
        let port = if public.port() == 8080 && public.ip().is_loopback() {
            String::new()
        } else {
            format!(" --server {ws}://{public}")
        };
        text += &format!(
            "\n\ndevelopment: callers on this machine need no signed token. In two more terminals:\
             \n  {adsum} join lobby --as ann{port}\
             \n  {adsum} join lobby --as bob{port}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_and_what_to_try() {
        let mut config = Config::default();
        let mut addresses = Addresses {
            public: Some(config.listen.public),
            internal: config.listen.internal,
        };
        let said = text(&config, &addresses);
        assert!(said.contains("ws://127.0.0.1:8080/v1/ws") && !said.contains("--as"));
        config.node.dev = true;
        assert!(text(&config, &addresses).contains("join lobby --as ann\n"));
        addresses.public = Some(([127, 0, 0, 1], 9).into());
        assert!(text(&config, &addresses).contains("--as bob --server ws://127.0.0.1:9"));
        addresses.public = None;
        assert_eq!(text(&config, &addresses).lines().count(), 1);
    }
}
