//! What clients speak: the same typed frames as JSON and as protobuf. Everything that comes from
//! outside is checked here, once; what comes out is made of the words of core.
//!
//! - [`frame`]: the frames in between, which both encodings read and write.
//! - [`json`], [`protobuf`]: the encodings, each in both directions, for servers and for clients.
//! - [`Encoding`], [`Shared`]: diffs and states put together of items that were encoded once.
//! - [`v1`], [`presence_server`], [`presence_client`]: generated from `adsum/v1/client.proto`.
//! - [`presence_door`]: the server again, for gateways, which trust nothing; see [`incoming`].

pub mod check;
mod close;
mod code;
pub mod codec;
mod error;
pub mod frame;
pub mod incoming;
pub mod json;
mod meta;
pub mod protobuf;
mod splice;
mod status;
mod time;
mod wire;
mod words;

pub use check::FrameLimits;
pub use close::Close;
pub use code::{Code, Sort};
pub use error::{Fault, FrameError};
pub use splice::{Encoding, Piece, Shared};
pub use status::refusal;
pub use wire::{RawFrame, WireFrame};
pub use words::{LastSeen, Mode, Patch, Ref, Token, ago};

/// The generated messages.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("adsum.v1");
}

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
mod service {
    include!(concat!(env!("OUT_DIR"), "/service/adsum.v1.rs"));
}

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
mod door {
    include!(concat!(env!("OUT_DIR"), "/door/adsum.v1.rs"));
}

pub use door::presence_server as presence_door;
pub use service::{presence_client, presence_server};

/// `adsum/v1/client.proto` as a file descriptor set, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("adsum.v1");
