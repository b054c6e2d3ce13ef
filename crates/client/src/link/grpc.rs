//! Frames over gRPC: `adsum.v1.Presence/Connect`.

use std::sync::Mutex;

use adsum_proto::client::{
    Close, WireFrame, frame::ClientFrame, presence_client::PresenceClient, protobuf, v1,
};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Uri},
};

use super::{Incoming, Route, broken, read, stream, unreached};

/// Frames on their way into the stream; few, because each is awaited anyway.
const QUEUE: usize = 4;

/// A stream in both directions, on a connection of its own.
pub(crate) struct Grpc {
    outgoing: mpsc::Sender<v1::ClientFrame>,
    incoming: Streaming<WireFrame>,
}

impl Grpc {
    pub(super) async fn open(route: &Route, first: &ClientFrame) -> Result<Self, Incoming> {
        let channel = channel(route).await?;
        let (outgoing, frames) = mpsc::channel(QUEUE);
        outgoing
            .send(protobuf::to_client(first))
            .await
            .map_err(broken)?;
        let mut client = PresenceClient::new(channel).max_decoding_message_size(route.frame_bytes);
        let response = client.connect(ReceiverStream::new(frames)).await;
        let incoming = response.map_err(|s| ended(&s))?.into_inner();
        Ok(Self { outgoing, incoming })
    }

    pub(super) async fn send(&mut self, frame: &ClientFrame) -> Result<(), Incoming> {
        let frame = protobuf::to_client(frame);
        self.outgoing.send(frame).await.map_err(broken)
    }

    pub(super) async fn recv(&mut self) -> Incoming {
        loop {
            match self.incoming.message().await {
                Ok(Some(frame)) => {
                    if let Some(incoming) = read(frame.read()) {
                        return incoming;
                    }
                }
                Ok(None) => return Incoming::Broken("the stream has ended".into()),
                Err(status) => return ended(&status),
            }
        }
    }
}

/// What may be under way to a client that does not read. The connection's window is eight times
/// that: the library gives up a connection on which many small frames wait, by the size of it.
const WINDOW: u32 = 1 << 18;

/// A channel on exactly one connection: when that breaks, coming back is the driver's business.
async fn channel(route: &Route) -> Result<Channel, Incoming> {
    let stream = stream::connect(route).await.map_err(unreached)?;
    let stream = Mutex::new(Some(TokioIo::new(stream)));
    let connector = tower::service_fn(move |_: Uri| {
        let mut slot = stream.lock().unwrap_or_else(|e| e.into_inner());
        let stream = slot.take().ok_or_else(|| std::io::Error::other("used"));
        std::future::ready(stream)
    });
    let origin = route.endpoint.http_uri();
    // TLS is under the stream already, so the channel must not look for it; the server, though,
    // is to see the scheme that it was called by.
    let plain = origin.replacen("https://", "http://", 1);
    tonic::transport::Endpoint::from_shared(plain)
        .map_err(broken)?
        .origin(origin.parse().map_err(broken)?)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(8 * WINDOW)
        .connect_with_connector(connector)
        .await
        .map_err(broken)
}

/// What a status means in the words of the protocol, if the server had no time for a frame.
fn ended(status: &Status) -> Incoming {
    match status.code() {
        Code::Unauthenticated => Incoming::Closed(Close::Unauthorized.code()),
        Code::ResourceExhausted => Incoming::Closed(Close::TooMany.code()),
        _ => broken(status),
    }
}
