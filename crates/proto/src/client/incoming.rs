//! What a gateway reads from gRPC. The library's own codec decodes whatever it gets, and two bytes
//! of a message can become a hundred in memory; this one counts before it decodes, and says what is
//! wrong by our codes.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

use super::{Code, RawFrame, codec, refusal, v1};

/// Fields of a request, far above what it may name by any sensible configuration: the limits
/// proper are checked later, and know the tenant.
const FIELDS: usize = 100_000;
/// Fields of all messages in a request's list: a thousand beats with hundreds of rooms.
const INNER_FIELDS: usize = 400_000;

/// A codec for the side that answers.
#[derive(Debug, Clone)]
pub struct DoorCodec<T, U>(PhantomData<(T, U)>);

// Derived, it would ask for `T: Default`.
impl<T, U> Default for DoorCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for DoorCodec<T, U>
where
    T: Message + 'static,
    U: Incoming,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = DoorDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(codec::small())
    }

    fn decoder(&mut self) -> Self::Decoder {
        DoorDecoder(PhantomData)
    }
}

/// The half that reads.
#[derive(Debug)]
pub struct DoorDecoder<U>(PhantomData<U>);

impl<U: Incoming> Decoder for DoorDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The library has a message in one piece. To take it out as `Bytes` would tie the buffer
        // of the stream to it.
        let read = U::read(buf.chunk());
        let length = buf.remaining();
        buf.advance(length);
        read.map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        codec::small()
    }
}

/// What can come in.
pub trait Incoming: Sized + Send + 'static {
    /// Reads one message.
    ///
    /// # Errors
    /// When it is none, or too much to be decoded at all.
    fn read(bytes: &[u8]) -> Result<Self, Status>;
}

impl Incoming for RawFrame {
    fn read(bytes: &[u8]) -> Result<Self, Status> {
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }
}

impl<M: Asked> Incoming for M {
    fn read(bytes: &[u8]) -> Result<Self, Status> {
        if crowded(bytes, M::LISTS).map_err(malformed)? {
            return Err(refusal(M::TOO_MANY, "far too many in one request"));
        }
        M::decode(bytes).map_err(malformed)
    }
}

fn malformed(error: DecodeError) -> Status {
    refusal(Code::MalformedFrame, format!("malformed message: {error}"))
}

/// A request.
pub trait Asked: Message + Default + 'static {
    /// What it is refused with when it has too many fields.
    const TOO_MANY: Code = Code::MalformedFrame;
    /// The field whose messages have lists of their own.
    const LISTS: Option<u32> = None;
}

impl Asked for v1::WatchRequest {
    const TOO_MANY: Code = Code::TooManyTopics;
}

impl Asked for v1::GetManyRequest {
    const TOO_MANY: Code = Code::TooManyUsers;
}

impl Asked for v1::LastSeenRequest {
    const TOO_MANY: Code = Code::TooManyUsers;
}

impl Asked for v1::SetContactsRequest {
    const TOO_MANY: Code = Code::TooManyContacts;
}

impl Asked for v1::HeartbeatRequest {
    const TOO_MANY: Code = Code::TooManyUsers;
    // `beats`, each with its `rooms`.
    const LISTS: Option<u32> = Some(1);
}

impl Asked for v1::GetRequest {}
impl Asked for v1::MembersRequest {}
impl Asked for v1::CountRequest {}
impl Asked for v1::SetStatusRequest {}
impl Asked for v1::SetVisibilityRequest {}
impl Asked for v1::DisconnectRequest {}

/// Whether a message has more fields than are decoded.
fn crowded(mut bytes: &[u8], lists: Option<u32>) -> Result<bool, DecodeError> {
    let (mut outer, mut inner) = (0, 0);
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        outer += 1;
        if lists == Some(tag) && wire_type == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
            let Some((message, rest)) = bytes.split_at_checked(length) else {
                // It breaks off: the decoder says so, and reads nothing of this field.
                return Ok(false);
            };
            inner += fields(message)?;
            bytes = rest;
        } else {
            skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
        }
        if outer > FIELDS || inner > INNER_FIELDS {
            return Ok(true);
        }
    }
    Ok(false)
}

fn fields(mut bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut count = 0;
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
        count += 1;
    }
    Ok(count)
}
