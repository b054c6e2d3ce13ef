//! One connection: frames in, frames out, whatever carries them.

mod grpc;
mod stream;
mod ws;

use std::net::IpAddr;

use adsum_proto::client::{
    Encoding,
    frame::{ClientFrame, ServerFrame},
};

use crate::{Tls, Transport, endpoint::Endpoint};

/// What came in.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A frame.
    Frame(Box<ServerFrame>),
    /// The server closed, with this number.
    Closed(u16),
    /// The line broke.
    Broken(String),
    /// There never was a line: nothing was sent.
    Unreached(String),
}

/// How to reach a server.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    pub(crate) transport: Transport,
    /// Only for endpoints with TLS.
    pub(crate) tls: Option<Tls>,
    /// Where from; `None`: as the system likes.
    pub(crate) local: Option<IpAddr>,
    /// The largest frame that is taken.
    pub(crate) frame_bytes: usize,
}

/// An open connection. To drop it is to break it.
pub(crate) enum Link {
    Ws(Box<ws::Ws>),
    Grpc(Box<grpc::Grpc>),
}

impl Link {
    /// Connects and sends the first frame: some servers answer a stream only after that.
    pub(crate) async fn open(route: &Route, first: &ClientFrame) -> Result<Self, Incoming> {
        Ok(match route.transport {
            Transport::WebSocket(encoding) => {
                Self::Ws(Box::new(ws::Ws::open(route, encoding, first).await?))
            }
            Transport::Grpc => Self::Grpc(Box::new(grpc::Grpc::open(route, first).await?)),
        })
    }

    /// Sends one frame.
    pub(crate) async fn send(&mut self, frame: &ClientFrame) -> Result<(), Incoming> {
        match self {
            Self::Ws(ws) => ws.send(frame).await,
            Self::Grpc(grpc) => grpc.send(frame).await,
        }
    }

    /// What comes next. Nothing is lost if this is dropped before it is done.
    pub(crate) async fn recv(&mut self) -> Incoming {
        match self {
            Self::Ws(ws) => ws.recv().await,
            Self::Grpc(grpc) => grpc.recv().await,
        }
    }
}

fn unreached(error: impl std::fmt::Display) -> Incoming {
    Incoming::Unreached(error.to_string())
}

fn broken(error: impl std::fmt::Display) -> Incoming {
    Incoming::Broken(error.to_string())
}

/// Frames that can't be read are left out: a newer server says things that we don't know, and
/// what should have been known shows as a gap.
fn read(frame: Result<ServerFrame, adsum_proto::client::FrameError>) -> Option<Incoming> {
    match frame {
        Ok(frame) => Some(Incoming::Frame(Box::new(frame))),
        Err(error) => {
            tracing::debug!(%error, code = error.code().as_str(), "frame ignored");
            None
        }
    }
}

impl Default for Transport {
    fn default() -> Self {
        Self::WebSocket(Encoding::Json)
    }
}
