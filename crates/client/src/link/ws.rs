//! Frames over a WebSocket.

use adsum_proto::client::{Close, Encoding, frame::ClientFrame};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, Error, Message, Utf8Bytes,
        client::IntoClientRequest,
        http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_PROTOCOL},
        protocol::WebSocketConfig,
    },
};

use super::{
    Incoming, Route, broken, read,
    stream::{self, Stream},
    unreached,
};

/// Per connection, and there may be 20,000 in a process; the library's own is 128 KiB.
const READ_BUFFER: usize = 4 * 1024;

/// No close frame, or one without a number.
const NO_NUMBER: u16 = 1005;

/// A WebSocket that speaks one of the subprotocols.
pub(crate) struct Ws {
    socket: WebSocketStream<Stream>,
    encoding: Encoding,
}

impl Ws {
    pub(super) async fn open(
        route: &Route,
        encoding: Encoding,
        first: &ClientFrame,
    ) -> Result<Self, Incoming> {
        let mut request = route
            .endpoint
            .ws_uri()
            .into_client_request()
            .map_err(broken)?;
        let protocol = HeaderValue::from_static(encoding.subprotocol());
        request
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        let stream = stream::connect(route).await.map_err(unreached)?;
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(route.frame_bytes))
            .max_frame_size(Some(route.frame_bytes));
        let (socket, _) = client_async_with_config(request, stream, Some(config))
            .await
            .map_err(refused)?;
        let mut ws = Self { socket, encoding };
        ws.send(first).await?;
        Ok(ws)
    }

    pub(super) async fn send(&mut self, frame: &ClientFrame) -> Result<(), Incoming> {
        let bytes = self.encoding.encode_client(frame);
        let message = match self.encoding {
            Encoding::Protobuf => Message::Binary(bytes),
            Encoding::Json => Message::Text(text(bytes)?),
        };
        self.socket.send(message).await.map_err(broken)
    }

    pub(super) async fn recv(&mut self) -> Incoming {
        loop {
            let bytes = match self.socket.next().await {
                None => return Incoming::Closed(NO_NUMBER),
                Some(Err(error)) => return broken(error),
                Some(Ok(Message::Close(close))) => {
                    return Incoming::Closed(close.map_or(NO_NUMBER, |c| c.code.into()));
                }
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Binary(bytes))) => bytes,
                // Pings are answered by the library; raw frames never come out of it.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            };
            if let Some(incoming) = read(self.encoding.decode_server(&bytes)) {
                return incoming;
            }
        }
    }
}

fn text(bytes: Bytes) -> Result<Utf8Bytes, Incoming> {
    Utf8Bytes::try_from(bytes).map_err(broken)
}

/// The handshake failed. Who is not authorized need not try again; anything else may pass.
fn refused(error: tungstenite::Error) -> Incoming {
    match &error {
        Error::Http(response) if response.status() == StatusCode::UNAUTHORIZED => {
            Incoming::Closed(Close::Unauthorized.code())
        }
        Error::Http(response) => Incoming::Broken(format!("HTTP status {}", response.status())),
        _ => broken(error),
    }
}
