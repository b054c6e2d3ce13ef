//! One committed change of a shard: an after-image with its number.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{DeviceId, Prefs, RoomId, Session, UserKey, Version};

/// Why somebody left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Said goodbye.
    Leave,
    /// The connection broke and nobody came back within the linger time, or a drained
    /// gateway's client did not return.
    Disconnect,
    /// Connected, but silent.
    Timeout,
    /// The gateway that held the session is gone.
    NodeLost,
    /// Closed by a service.
    Kicked,
    /// A newer connection of the same device took over.
    Replaced,
}

impl Reason {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 6] = [
        Self::Leave,
        Self::Disconnect,
        Self::Timeout,
        Self::NodeLost,
        Self::Kicked,
        Self::Replaced,
    ];

    /// The number it is stored as; 0 is "no reason" (an open or a change).
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Leave => 1,
            Self::Disconnect => 2,
            Self::Timeout => 3,
            Self::NodeLost => 4,
            Self::Kicked => 5,
            Self::Replaced => 6,
        }
    }

    /// Reads [`code`](Self::code); `None` for a number that means nothing.
    #[must_use]
    pub fn from_code(code: u64) -> Option<Option<Self>> {
        match code {
            0 => Some(None),
            n => Self::ALL.into_iter().find(|r| r.code() == n).map(Some),
        }
    }

    /// The word used in every interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Disconnect => "disconnect",
            Self::Timeout => "timeout",
            Self::NodeLost => "node_lost",
            Self::Kicked => "kicked",
            Self::Replaced => "replaced",
        }
    }
}

/// Where a change came from, for those who measure: carried, never judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// When its cause reached the gateway: wall clock, µs.
    pub at_us: u64,
    /// W3C trace context, when the cause was sampled.
    pub traceparent: Option<Arc<str>>,
}

/// A numbered entry of a shard's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub version: Version,
    /// The shard's clock, ms.
    pub at: u64,
    /// What happened.
    pub event: Event,
    /// What caused it, when known.
    pub origin: Option<Origin>,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A new epoch began: birth, failover, restart or loss. Its first entry, always.
    Epoch,
    /// The epoch has settled: whoever is connected has been opened again.
    Settled,
    /// A session was opened or changed (`after`), or closed (no `after`, and a reason).
    Session {
        /// Whose.
        owner: UserKey,
        /// Which device.
        device: DeviceId,
        /// The rooms it was in before; those after are in `after`.
        rooms_before: Vec<RoomId>,
        /// The session as it is now; `None` when closed.
        after: Option<Session>,
        /// The owner's preferences as they are now.
        prefs: Prefs,
        /// Why it was closed.
        reason: Option<Reason>,
    },
    /// A user's preferences changed.
    Prefs {
        /// Whose.
        owner: UserKey,
        /// As they are now.
        prefs: Prefs,
    },
}
