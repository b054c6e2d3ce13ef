//! Encode once, send to many. A person is encoded once per encoding; all who see the same diff
//! share its body; what a connection adds is its head, with `ref` and `offset`.

use std::sync::Arc;

use adsum_core::Topic;
use bytes::Bytes;

use super::{
    FrameError, FrameLimits, Mode, Ref,
    frame::{ClientFrame, Item, Left, ServerFrame},
    json, protobuf,
};

/// How frames are spelled on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Text frames of JSON.
    Json,
    /// Binary frames of protobuf.
    Protobuf,
}

impl Encoding {
    /// Both, the one that people read first.
    pub const ALL: [Self; 2] = [Self::Json, Self::Protobuf];

    /// The name of the WebSocket subprotocol.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::Json => "adsum.v1.json",
            Self::Protobuf => "adsum.v1.proto",
        }
    }

    /// Reads [`subprotocol`](Self::subprotocol).
    #[must_use]
    pub fn from_subprotocol(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.subprotocol() == name)
    }

    /// Reads what a client sent.
    ///
    /// # Errors
    /// When it is no frame, or asks for more than the limits allow.
    pub fn decode(
        self,
        bytes: impl AsRef<[u8]>,
        limits: &FrameLimits,
    ) -> Result<ClientFrame, FrameError> {
        match self {
            Self::Json => json::decode(bytes, limits),
            Self::Protobuf => protobuf::decode(bytes, limits),
        }
    }

    /// Reads what a server sent.
    ///
    /// # Errors
    /// When it is no frame. `unknown_frame` is from a newer server: ignore it.
    pub fn decode_server(self, bytes: impl AsRef<[u8]>) -> Result<ServerFrame, FrameError> {
        match self {
            Self::Json => json::decode_server(bytes),
            Self::Protobuf => protobuf::decode_server(bytes),
        }
    }

    /// Writes what a server sends.
    #[must_use]
    pub fn encode(self, frame: &ServerFrame) -> Bytes {
        match self {
            Self::Json => json::encode(frame),
            Self::Protobuf => protobuf::encode(frame),
        }
    }

    /// Writes what a client sends.
    #[must_use]
    pub fn encode_client(self, frame: &ClientFrame) -> Bytes {
        match self {
            Self::Json => json::encode_client(frame),
            Self::Protobuf => protobuf::encode_client(frame),
        }
    }

    /// Writes a person, for all frames that tell of them.
    #[must_use]
    pub fn item(self, item: &Item) -> Piece {
        Piece::new(&match self {
            Self::Json => json::encode_item(item),
            Self::Protobuf => protobuf::encode_item(item),
        })
    }

    /// Writes a departure, for all frames that tell of it.
    #[must_use]
    pub fn left(self, left: &Left) -> Piece {
        Piece::new(&match self {
            Self::Json => json::encode_left(left),
            Self::Protobuf => protobuf::encode_left(left),
        })
    }

    /// The shared part of a diff, made of pieces of the same encoding.
    #[must_use]
    pub fn diff(
        self,
        topic: &Topic,
        joins: &[Piece],
        leaves: &[Piece],
        updates: &[Piece],
        count: Option<u64>,
        stale: Option<bool>,
    ) -> Shared {
        let lists = [bytes(joins), bytes(leaves), bytes(updates)];
        let lists = [&*lists[0], &*lists[1], &*lists[2]];
        Shared(match self {
            Self::Json => Part::JsonDiff(json::diff_body(topic, lists, count, stale)),
            Self::Protobuf => Part::Protobuf(protobuf::diff_body(topic, lists, count, stale)),
        })
    }

    /// The shared part of a state, made of pieces of the same encoding.
    #[must_use]
    pub fn state(
        self,
        topic: &Topic,
        mode: Mode,
        complete: bool,
        members: &[Piece],
        count: Option<u64>,
        stale: bool,
    ) -> Shared {
        let list = bytes(members);
        Shared(match self {
            Self::Json => {
                let body = json::state_body(topic, mode, complete, &list, count, stale);
                Part::JsonState(body)
            }
            Self::Protobuf => {
                let body = protobuf::state_body(topic, mode, complete, &list, count, stale);
                Part::Protobuf(body)
            }
        })
    }
}

fn bytes(pieces: &[Piece]) -> Vec<&[u8]> {
    pieces.iter().map(Piece::as_bytes).collect()
}

/// A person or a departure, encoded. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece(Arc<[u8]>);

impl Piece {
    // There are many: as long as it is, and no longer.
    fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Its bytes: in JSON an object, in protobuf a message without its length.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A diff or a state but for what is a connection's own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shared(Part);

#[derive(Debug, Clone)]
enum Part {
    JsonDiff(json::Body),
    JsonState(json::Body),
    Protobuf(protobuf::Body),
}

impl Shared {
    /// The frame of one connection: one allocation and a copy of the shared bytes, whatever the
    /// number of people in it.
    #[must_use]
    pub fn frame(&self, r#ref: Option<&Ref>, offset: u64) -> Bytes {
        let mut bytes = Vec::new();
        self.put(r#ref, offset, &mut bytes);
        bytes.into()
    }

    /// The same, behind what is in these bytes.
    pub fn put(&self, r#ref: Option<&Ref>, offset: u64, bytes: &mut Vec<u8>) {
        match &self.0 {
            Part::JsonDiff(body) => json::splice("presence_diff", r#ref, offset, body, bytes),
            Part::JsonState(body) => json::splice("presence_state", r#ref, offset, body, bytes),
            Part::Protobuf(body) => protobuf::splice(r#ref, offset, body, bytes),
        }
    }
}
