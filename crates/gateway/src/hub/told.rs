//! What is told of a topic, encoded once per encoding however many watchers there are.

use std::sync::{Arc, OnceLock};

use adsum_core::{Digest, Item, Leave, Reason, Topic, UserId};
use adsum_proto::client::{
    Encoding, Mode, Piece, Ref, Shared,
    frame::{self, Left, PresenceState, ServerBody, ServerFrame},
};
use bytes::Bytes;

/// One slot per encoding, filled when the first watcher of that encoding needs it.
#[derive(Debug)]
struct PerEncoding<T>([OnceLock<T>; 2]);

// Derived, it would ask for `T: Default`.
impl<T> Default for PerEncoding<T> {
    fn default() -> Self {
        Self([OnceLock::new(), OnceLock::new()])
    }
}

impl<T> PerEncoding<T> {
    fn get(&self, encoding: Encoding, make: impl FnOnce() -> T) -> &T {
        let slot = match encoding {
            Encoding::Json => &self.0[0],
            Encoding::Protobuf => &self.0[1],
        };
        slot.get_or_init(make)
    }
}

/// A person in a topic.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) item: Arc<Item>,
    pieces: PerEncoding<Piece>,
}

impl Told {
    pub(crate) fn new(item: Arc<Item>) -> Arc<Self> {
        Arc::new(Self {
            item,
            pieces: PerEncoding::default(),
        })
    }

    fn piece(&self, encoding: Encoding) -> Piece {
        let make = || encoding.item(&frame::Item::from(&*self.item));
        self.pieces.get(encoding, make).clone()
    }

    /// Whether a watcher who sees both would see a difference.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        let (a, b) = (&self.item, &other.item);
        a.status == b.status && a.since == b.since && a.devices == b.devices && a.meta == b.meta
    }
}

/// Somebody who is not to be seen in a topic any more.
#[derive(Debug)]
pub(crate) struct Gone {
    left: Left,
    pieces: PerEncoding<Piece>,
}

impl Gone {
    pub(super) fn new(leave: &Leave, now_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            left: Left::new(leave, now_ms),
            pieces: PerEncoding::default(),
        })
    }

    /// Of somebody who is there, but hides from now on: as if they had said goodbye.
    pub(crate) fn hidden(item: &Item, now_ms: u64) -> Arc<Self> {
        let left = Left {
            user: item.user.clone(),
            reason: Some(Reason::Leave),
            last_seen: frame::LastSeen::new(item.frozen_at, now_ms),
            v: item.v,
        };
        Arc::new(Self {
            left,
            pieces: PerEncoding::default(),
        })
    }

    fn piece(&self, encoding: Encoding) -> Piece {
        let make = || encoding.left(&self.left);
        self.pieces.get(encoding, make).clone()
    }
}

/// One line of a diff.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    /// Came.
    Join(Arc<Told>),
    /// Looks different.
    Update(Arc<Told>),
    /// Left.
    Leave(Arc<Gone>),
}

impl Entry {
    pub(crate) fn user(&self) -> &UserId {
        match self {
            Self::Join(told) | Self::Update(told) => &told.item.user,
            Self::Leave(gone) => &gone.left.user,
        }
    }
}

/// A diff, as all who see the same are told.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) entries: Vec<Entry>,
    pub(crate) count: Option<u64>,
    /// Whether a part of the cluster can't be heard; `None`: as before.
    pub(crate) stale: Option<bool>,
    bodies: PerEncoding<Shared>,
}

impl Delivery {
    pub(crate) fn new(entries: Vec<Entry>, count: Option<u64>, stale: Option<bool>) -> Self {
        Self {
            entries,
            count,
            stale,
            bodies: PerEncoding::default(),
        }
    }

    /// Whether nobody needs to be told.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.count.is_none() && self.stale.is_none()
    }

    /// A diff that only tells a count costs something, too.
    pub(crate) fn weight(&self) -> usize {
        self.entries.len().max(1)
    }

    /// The frame of one connection, behind what is in these bytes.
    pub(crate) fn put(&self, encoding: Encoding, topic: &Topic, offset: u64, bytes: &mut Vec<u8>) {
        let make = || {
            let (mut joins, mut leaves, mut updates) = (Vec::new(), Vec::new(), Vec::new());
            for entry in &self.entries {
                match entry {
                    Entry::Join(told) => joins.push(told.piece(encoding)),
                    Entry::Update(told) => updates.push(told.piece(encoding)),
                    Entry::Leave(gone) => leaves.push(gone.piece(encoding)),
                }
            }
            encoding.diff(topic, &joins, &leaves, &updates, self.count, self.stale)
        };
        self.bodies.get(encoding, make).put(None, offset, bytes);
    }
}

/// A topic as it is, as all who see the same are told.
#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) mode: Mode,
    pub(crate) complete: bool,
    pub(crate) members: Vec<Arc<Told>>,
    pub(crate) count: Option<u64>,
    /// A part of the cluster can't be heard.
    pub(crate) stale: bool,
    pub(crate) digest: Digest,
    bodies: PerEncoding<Shared>,
}

impl TopicState {
    pub(crate) fn new(
        mode: Mode,
        complete: bool,
        members: Vec<Arc<Told>>,
        count: Option<u64>,
        stale: bool,
    ) -> Self {
        let mut digest = Digest::default();
        for told in &members {
            digest.add(&told.item.user, told.item.v);
        }
        Self {
            mode,
            complete,
            members,
            count,
            stale,
            digest,
            bodies: PerEncoding::default(),
        }
    }

    /// Whether a watcher with this digest has nothing to learn. An incomplete state proves
    /// nothing, and a sample has no digest.
    pub(crate) fn known(&self, digest: Option<Digest>) -> bool {
        self.complete && self.mode != Mode::Count && digest == Some(self.digest)
    }

    /// The frame of one connection.
    pub(crate) fn frame(
        &self,
        encoding: Encoding,
        topic: &Topic,
        r#ref: Option<&Ref>,
        offset: u64,
    ) -> Bytes {
        let make = || {
            let members: Vec<_> = self.members.iter().map(|t| t.piece(encoding)).collect();
            let (mode, complete) = (self.mode, self.complete);
            encoding.state(topic, mode, complete, &members, self.count, self.stale)
        };
        self.bodies.get(encoding, make).frame(r#ref, offset)
    }

    /// The frame for a watcher who has nothing to learn.
    pub(crate) fn unchanged(
        &self,
        encoding: Encoding,
        topic: &Topic,
        r#ref: Option<&Ref>,
        offset: u64,
    ) -> Bytes {
        let state = PresenceState {
            topic: topic.clone(),
            offset,
            mode: self.mode,
            members: None,
            stale: self.stale,
        };
        let body = ServerBody::PresenceState(state);
        encoding.encode(&ServerFrame::new(r#ref.cloned(), body))
    }
}
