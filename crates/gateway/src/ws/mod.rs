//! The WebSocket door, `/v1/ws`: two subprotocols, one kind of client behind them. `socket` is
//! the connection once it is one.

mod socket;

use std::net::SocketAddr;

use adsum_proto::client::{Encoding, Fault};
use adsum_telemetry::metrics::Transport;
use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Query, Request, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::upgrade::OnUpgrade;
use serde::Deserialize;
use tungstenite::handshake::server::create_response_with_body;

use crate::{
    connection::{self, Brought, Door},
    http::{HttpError, token, traceparent, unknown_method},
    requests::Requests,
};

/// The door.
pub(crate) fn router(requests: Requests) -> Router {
    Router::new()
        .route("/v1/ws", get(upgrade))
        .method_not_allowed_fallback(unknown_method)
        .with_state(requests)
}

#[derive(Deserialize)]
struct Handshake {
    token: Option<String>,
}

async fn upgrade(
    State(requests): State<Requests>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    query: Result<Query<Handshake>, QueryRejection>,
    mut request: Request,
) -> Result<Response, HttpError> {
    requests.edge().open()?;
    let Query(handshake) = query.map_err(|error| Fault::Malformed(error.body_text()))?;
    let mut response = create_response_with_body(&request, Body::empty)
        .map_err(|error| Fault::Malformed(error.to_string()))?;
    let Some(upgrading) = request.extensions_mut().remove::<OnUpgrade>() else {
        return Ok(no_upgrade());
    };
    let headers = request.headers();
    let encoding = chosen(headers, response.headers_mut()).ok_or_else(|| {
        let known = "the subprotocol must be adsum.v1.json or adsum.v1.proto";
        Fault::Malformed(known.to_owned())
    })?;
    let brought = Brought {
        token: token(headers).map(str::to_owned).or(handshake.token),
        trace: traceparent(headers),
        stranger: None,
    };
    let door = Door {
        peer: peer.ip(),
        encoding,
        transport: Transport::WebSocket,
        brought: Some(Box::new(brought)),
    };
    let limit = requests.edge().book().largest_frame();
    tokio::spawn(async move {
        // Who hung up meanwhile is gone.
        if let Ok(upgraded) = upgrading.await {
            let (source, sink) = socket::open(upgraded, encoding, limit);
            // A task of its own, so that this one's room is not kept for as long as the client is.
            tokio::spawn(connection::run(requests, door, source, sink));
        }
    });
    Ok(response)
}

/// HTTP wants to know what else could be spoken.
fn no_upgrade() -> Response {
    let fault = Fault::Malformed("this connection can't become a WebSocket".to_owned());
    let error = HttpError::with(StatusCode::UPGRADE_REQUIRED, fault.into());
    ([(header::UPGRADE, "websocket")], error).into_response()
}

/// What is spoken: the first of the client's that is known, and told so in the answer. Who names
/// none speaks the one that people read.
fn chosen(asked: &HeaderMap, answer: &mut HeaderMap) -> Option<Encoding> {
    let lists = asked.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let mut none = true;
    for list in &lists {
        none = false;
        let names = list.to_str().unwrap_or_default().split(',');
        let mut known = names.filter_map(|name| Encoding::from_subprotocol(name.trim()));
        if let Some(encoding) = known.next() {
            let name = HeaderValue::from_static(encoding.subprotocol());
            answer.insert(header::SEC_WEBSOCKET_PROTOCOL, name);
            return Some(encoding);
        }
    }
    none.then_some(Encoding::Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(lists: &[&'static str]) -> (Option<Encoding>, Option<String>) {
        let (mut asked, mut answer) = (HeaderMap::new(), HeaderMap::new());
        for list in lists {
            asked.append(
                header::SEC_WEBSOCKET_PROTOCOL,
                HeaderValue::from_static(list),
            );
        }
        let encoding = chosen(&asked, &mut answer);
        let told = answer.get(header::SEC_WEBSOCKET_PROTOCOL);
        (encoding, told.map(|told| told.to_str().unwrap().to_owned()))
    }

    /// How large the future of such a function is.
    fn size<F>(_: fn(Requests, Door, socket::Incoming, socket::Outgoing) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_is_small() {
        let bytes = size(connection::run);
        // A task has 96 bytes besides, and takes a multiple of 128.
        assert!(
            bytes <= 12 * 128 - 96,
            "{bytes} bytes for each that is idle"
        );
    }

    #[test]
    fn the_first_known_subprotocol_is_spoken() {
        let json = (Some(Encoding::Json), Some("adsum.v1.json".to_owned()));
        let proto = (Some(Encoding::Protobuf), Some("adsum.v1.proto".to_owned()));
        assert_eq!(choose(&[]), (Some(Encoding::Json), None));
        assert_eq!(choose(&["chat, adsum.v1.proto, adsum.v1.json"]), proto);
        assert_eq!(choose(&["chat", "adsum.v1.json"]), json);
        assert_eq!(choose(&["chat"]), (None, None));
        assert_eq!(choose(&[""]), (None, None));
    }
}
