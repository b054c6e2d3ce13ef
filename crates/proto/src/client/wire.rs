//! What the gRPC streams carry in place of the generated `ServerFrame`: the same on the wire, but a
//! server can hand over bytes that were encoded before, shared with all who get the same. And in
//! place of `ClientFrame`, where a gateway reads it: the bytes, whatever they are.

use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType},
};

use super::{FrameError, frame::ServerFrame, protobuf, v1};

/// What a client sent as a frame, as it came: its length is known, and one that can't be decoded
/// does not end the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrame(pub Bytes);

/// A frame of the server on its way through tonic.
#[derive(Debug, Clone, PartialEq)]
pub struct WireFrame(Inner);

#[derive(Debug, Clone, PartialEq)]
enum Inner {
    Encoded(Bytes),
    Message(Box<v1::ServerFrame>),
}

impl WireFrame {
    /// Of a frame that is encoded as protobuf, for instance by [`Shared`](super::Shared).
    #[must_use]
    pub const fn encoded(frame: Bytes) -> Self {
        Self(Inner::Encoded(frame))
    }

    /// The frame, checked.
    ///
    /// # Errors
    /// When it is none; see [`protobuf::decode_server`].
    pub fn read(self) -> Result<ServerFrame, FrameError> {
        match self.0 {
            Inner::Encoded(bytes) => protobuf::decode_server(bytes),
            Inner::Message(message) => protobuf::from_server(*message),
        }
    }
}

impl From<&ServerFrame> for WireFrame {
    fn from(frame: &ServerFrame) -> Self {
        Self(Inner::Message(Box::new(protobuf::to_server(frame))))
    }
}

impl Default for WireFrame {
    fn default() -> Self {
        Self(Inner::Message(Box::default()))
    }
}

impl Message for WireFrame {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        match &self.0 {
            Inner::Encoded(bytes) => buf.put_slice(bytes),
            Inner::Message(message) => message.encode_raw(buf),
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if let Inner::Encoded(bytes) = &self.0 {
            let message = v1::ServerFrame::decode(bytes.clone())?;
            self.0 = Inner::Message(Box::new(message));
        }
        match &mut self.0 {
            Inner::Message(message) => message.merge_field(tag, wire_type, buf, ctx),
            Inner::Encoded(_) => Ok(()),
        }
    }

    fn encoded_len(&self) -> usize {
        match &self.0 {
            Inner::Encoded(bytes) => bytes.len(),
            Inner::Message(message) => message.encoded_len(),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
