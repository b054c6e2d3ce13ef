//! The WebSocket door, `/v1/ws`: two subprotocols, one kind of client behind them.

use std::net::SocketAddr;

use adsum_proto::client::{Close, Encoding};
use adsum_telemetry::metrics::Transport;
use axum::{
    Router,
    extract::{
        ConnectInfo, Query, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use serde::Deserialize;

use crate::{
    connection::{self, Door, Received, Sink, Source},
    http::{HttpError, token, traceparent},
    requests::Requests,
};

/// A client's frames are small; what is larger is read in several steps.
const READ_BUFFER: usize = 1024;

/// Frames are written at once; a batch of them goes through here.
const WRITE_BUFFER: usize = 0;

/// The door.
pub(crate) fn router(requests: Requests) -> Router {
    Router::new()
        .route("/v1/ws", get(upgrade))
        .with_state(requests)
}

#[derive(Deserialize)]
struct Handshake {
    token: Option<String>,
}

async fn upgrade(
    State(requests): State<Requests>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(handshake): Query<Handshake>,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    if let Err(away) = requests.edge().open() {
        return HttpError::from(away).into_response();
    }
    let token = token(&headers).map(str::to_owned).or(handshake.token);
    let limit = requests.edge().book().largest_frame();
    let socket = socket
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(limit)
        .max_frame_size(limit)
        .protocols(Encoding::ALL.map(Encoding::subprotocol));
    let chosen = socket.selected_protocol().and_then(|p| p.to_str().ok());
    // Who names none speaks the one that people read.
    let encoding = match chosen.map(Encoding::from_subprotocol) {
        Some(Some(encoding)) => encoding,
        _ if !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) => Encoding::Json,
        _ => {
            let known = "the subprotocol must be adsum.v1.json or adsum.v1.proto\n";
            return (StatusCode::BAD_REQUEST, known).into_response();
        }
    };
    let door = Door {
        peer: peer.ip(),
        encoding,
        token,
        trace: traceparent(&headers),
        transport: Transport::WebSocket,
    };
    socket.on_upgrade(move |socket| {
        let (sink, source) = socket.split();
        let binary = encoding == Encoding::Protobuf;
        // On the heap, so that the upgrade's own, larger task does not carry it.
        Box::pin(connection::run(
            requests,
            door,
            Incoming { source, binary },
            Outgoing { sink, binary },
        ))
    })
}

struct Incoming {
    source: SplitStream<WebSocket>,
    binary: bool,
}

impl Source for Incoming {
    const RESETS: bool = true;

    async fn next(&mut self) -> Option<Received> {
        Some(match self.source.next().await? {
            Ok(Message::Text(text)) if !self.binary => Received::Bytes(text.into()),
            Ok(Message::Binary(bytes)) if self.binary => Received::Bytes(bytes),
            Ok(Message::Text(_) | Message::Binary(_)) => Received::WrongType,
            Ok(Message::Ping(_) | Message::Pong(_)) => Received::Alive,
            Ok(Message::Close(_)) => return None,
            Err(error) if too_large(&error) => Received::TooLarge,
            Err(_) => return None,
        })
    }
}

/// What the library says of a message beyond its bounds.
fn too_large(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    let error = source.and_then(|e| e.downcast_ref::<tungstenite::Error>());
    matches!(error, Some(tungstenite::Error::Capacity(_)))
}

struct Outgoing {
    sink: SplitSink<WebSocket, Message>,
    binary: bool,
}

impl Sink for Outgoing {
    async fn write(&mut self, frames: Vec<Bytes>) -> bool {
        for frame in frames {
            let message = if self.binary {
                Message::Binary(frame)
            } else {
                match Utf8Bytes::try_from(frame) {
                    Ok(text) => Message::Text(text),
                    // What we encode as JSON is text.
                    Err(_) => return false,
                }
            };
            if self.sink.feed(message).await.is_err() {
                return false;
            }
        }
        self.sink.flush().await.is_ok()
    }

    async fn close(&mut self, close: Close) {
        let frame = CloseFrame {
            code: close.code(),
            reason: Utf8Bytes::from_static(close.word()),
        };
        // Whoever is gone does not hear it.
        let _ = self.sink.send(Message::Close(Some(frame))).await;
        let _ = self.sink.close().await;
    }
}
