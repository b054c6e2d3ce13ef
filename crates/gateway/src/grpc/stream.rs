//! The streams of gRPC: a client's connection, and a service that watches.

use std::net::IpAddr;

use adsum_proto::client::{Close, Encoding, RawFrame, WireFrame, protobuf, v1};
use adsum_telemetry::metrics::{Transport, metrics};
// Not tokio's, which keeps room for 32 frames in each.
use futures::{
    SinkExt, StreamExt,
    channel::mpsc,
    stream::{self, BoxStream},
};
use prost::Message;
use tonic::{Code, Request, Response, Status, Streaming, metadata::MetadataValue};

use super::{answer::status, body};
use crate::{
    Caller,
    auth::token_of,
    connection::{self, Brought, Door, Received, Sink, Source},
    observer::{Observer, Told},
    outbox::Writes,
    requests::Requests,
};

/// What a stream answers.
pub(crate) type Frames = BoxStream<'static, Result<WireFrame, Status>>;

/// Frames that are encoded ahead of the stream; what is not, still waits in its outbox, where
/// the newest word takes the place of older ones.
const AHEAD: usize = 16;

/// A client's connection.
pub(crate) fn connect(
    requests: &Requests,
    peer: IpAddr,
    request: Request<Streaming<RawFrame>>,
) -> Result<Response<Frames>, Status> {
    requests.edge().open().map_err(|error| status(&error))?;
    let trace = request.metadata().get("traceparent");
    let brought = Brought {
        token: token_of(request.metadata().as_ref())
            .ok()
            .map(str::to_owned),
        trace: trace.and_then(|value| value.to_str().ok().map(str::to_owned)),
        stranger: None,
    };
    let door = Door {
        peer,
        encoding: Encoding::Protobuf,
        transport: Transport::Grpc,
        brought: Some(Box::new(brought)),
    };
    let (sender, receiver) = mpsc::channel(AHEAD);
    let source = Incoming {
        messages: request.into_inner(),
        limit: requests.edge().book().largest_frame(),
    };
    let sink = Outgoing(sender);
    tokio::spawn(connection::run(requests.clone(), door, source, sink));
    Ok(body::answer(receiver.boxed()))
}

/// A service that watches.
pub(crate) fn watch(
    requests: &Requests,
    caller: Caller,
    asked: v1::WatchRequest,
) -> Result<Response<Frames>, Status> {
    let watches = protobuf::from_watch(asked, &caller.settings.frame);
    let watches = watches.map_err(|fault| status(&fault.into()))?;
    let opened = Observer::open(requests.edge(), caller, Encoding::Protobuf, watches);
    let observer = opened.map_err(|error| status(&error))?;
    let counted = requests.edge().connections().token();
    let shown = metrics().connections.of(Transport::GrpcWatch).hold();
    let counted = (counted, shown);
    let frames = stream::unfold((observer, counted), |(mut observer, counted)| async {
        let told = observer.next().await?;
        let frames = match told {
            Told::Frames(frames) => frames
                .into_iter()
                .map(|f| Ok(WireFrame::encoded(f)))
                .collect(),
            Told::Over(close) => vec![Err(ended(close))],
        };
        Some((stream::iter(frames), (observer, counted)))
    });
    Ok(body::answer(frames.flatten().boxed()))
}

struct Incoming {
    messages: Streaming<RawFrame>,
    limit: usize,
}

impl Source for Incoming {
    const RESETS: bool = false;

    async fn next(&mut self) -> Option<Received> {
        let bytes = match self.messages.message().await {
            Ok(Some(RawFrame(bytes))) => bytes,
            // Longer than what is taken in at all.
            Err(status) if status.code() == Code::OutOfRange => return Some(Received::TooLarge),
            // A stream that ends, and one that breaks, is a client that is gone.
            Ok(None) | Err(_) => return None,
        };
        if bytes.len() > self.limit {
            return Some(Received::TooLarge);
        }
        Some(match v1::ClientFrame::decode(&*bytes) {
            Ok(message) => Received::Message(Box::new(message)),
            // Refused as on a WebSocket, where frames come like this.
            Err(_) => Received::Bytes(bytes),
        })
    }
}

struct Outgoing(mpsc::Sender<Result<WireFrame, Status>>);

impl Sink for Outgoing {
    async fn write(&mut self, writes: Writes) -> bool {
        for frame in writes.frames {
            if self.0.send(Ok(WireFrame::encoded(frame))).await.is_err() {
                return false;
            }
        }
        true
    }

    async fn close(&mut self, close: Close) {
        if close != Close::Left {
            // Whoever is gone does not hear it.
            let _ = self.0.send(Err(ended(close))).await;
        }
    }
}

/// How a stream ends; the frame before it has said more.
fn ended(close: Close) -> Status {
    let code = match close {
        Close::Left => Code::Ok,
        Close::Drain => Code::Unavailable,
        Close::Internal => Code::Internal,
        Close::Unauthorized | Close::TokenExpired => Code::Unauthenticated,
        Close::TooMany => Code::ResourceExhausted,
        Close::Protocol | Close::WrongType | Close::NotText | Close::BadFrames => {
            Code::InvalidArgument
        }
        Close::TooLarge => Code::OutOfRange,
        Close::Timeout | Close::Replaced | Close::Kicked | Close::Superseded => Code::Aborted,
    };
    let mut status = Status::new(code, close.word());
    let number = MetadataValue::from(u64::from(close.code()));
    status.metadata_mut().insert("adsum-close", number);
    status
}
