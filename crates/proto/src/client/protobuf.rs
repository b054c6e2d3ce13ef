//! Frames as protobuf: the messages of `adsum/v1/client.proto`. Also between those messages and
//! the typed frames, for gRPC, which has decoded them already.

mod client_in;
mod client_out;
mod server_in;
mod server_out;
mod words;

use bytes::Bytes;
use prost::Message;

use super::{
    Fault, FrameError, FrameLimits, Ref, check,
    frame::{Beat, ClientFrame, Item, Left, ServerFrame, Watch},
    v1,
};

pub use words::{activity, manual, visibility};

pub(super) use server_out::{Body, diff_body, splice, state_body};

/// Reads what a client sent.
///
/// # Errors
/// When it is no frame, or asks for more than the limits allow. The `ref` is kept if it was read.
pub fn decode(bytes: impl AsRef<[u8]>, limits: &FrameLimits) -> Result<ClientFrame, FrameError> {
    let bytes = bytes.as_ref();
    limits.frame(bytes.len())?;
    from_client(v1::ClientFrame::decode(bytes).map_err(malformed)?, limits)
}

/// Reads what a server sent.
///
/// # Errors
/// When it is no frame. `unknown_frame` is from a newer server: ignore it.
pub fn decode_server(bytes: impl AsRef<[u8]>) -> Result<ServerFrame, FrameError> {
    from_server(v1::ServerFrame::decode(bytes.as_ref()).map_err(malformed)?)
}

fn malformed(error: prost::DecodeError) -> Fault {
    Fault::Malformed(error.to_string())
}

/// Checks the message that a client sent.
///
/// # Errors
/// As [`decode`], but for the size, which whoever received it has checked.
pub fn from_client(
    message: v1::ClientFrame,
    limits: &FrameLimits,
) -> Result<ClientFrame, FrameError> {
    let r#ref = message.r#ref.map(Ref::new).transpose()?;
    match client_in::read(message.frame, limits) {
        Ok(body) => Ok(ClientFrame {
            r#ref,
            traceparent: message.traceparent.as_deref().and_then(check::traceparent),
            body,
        }),
        Err(fault) => Err(FrameError { r#ref, fault }),
    }
}

/// Checks the message that a server sent.
///
/// # Errors
/// As [`decode_server`].
pub fn from_server(message: v1::ServerFrame) -> Result<ServerFrame, FrameError> {
    let r#ref = message.r#ref.map(Ref::new).transpose()?;
    match server_in::read(message.frame) {
        Ok(body) => Ok(ServerFrame { r#ref, body }),
        Err(fault) => Err(FrameError { r#ref, fault }),
    }
}

/// Checks what a service asks to watch.
///
/// # Errors
/// When it names nothing, too much, or something that is no topic.
pub fn from_watch(request: v1::WatchRequest, limits: &FrameLimits) -> Result<Vec<Watch>, Fault> {
    client_in::watches(request.topics, limits)
}

/// Checks one beat of a batch.
///
/// # Errors
/// When it is no session, or one that is larger than the limits allow.
pub fn from_beat(beat: v1::Beat, limits: &FrameLimits) -> Result<Beat, Fault> {
    client_in::beat(beat, limits)
}

/// The message of what a server sends.
#[must_use]
pub fn to_server(frame: &ServerFrame) -> v1::ServerFrame {
    server_out::message(frame)
}

/// The message of what a client sends.
#[must_use]
pub fn to_client(frame: &ClientFrame) -> v1::ClientFrame {
    client_out::message(frame)
}

/// Writes what a server sends.
#[must_use]
pub fn encode(frame: &ServerFrame) -> Bytes {
    to_server(frame).encode_to_vec().into()
}

/// Writes what a client sends.
#[must_use]
pub fn encode_client(frame: &ClientFrame) -> Bytes {
    to_client(frame).encode_to_vec().into()
}

/// The message of a person in a topic.
#[must_use]
pub fn to_item(item: &Item) -> v1::Item {
    server_out::item(item)
}

/// Writes a person, to be shared by all frames that tell of them.
#[must_use]
pub fn encode_item(item: &Item) -> Bytes {
    to_item(item).encode_to_vec().into()
}

/// Writes a departure, to be shared.
#[must_use]
pub fn encode_left(left: &Left) -> Bytes {
    server_out::left(left).encode_to_vec().into()
}
