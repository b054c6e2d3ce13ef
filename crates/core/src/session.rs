//! One device of one user: what it reports, who holds it, and the numbers that order its
//! operations.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use crate::{Incarnation, Invalid, RoomId};

/// The number of a session's connection, chosen by the client once per hello; higher is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Conn(u64);

impl Conn {
    /// The largest number that Lua and JavaScript keep exactly.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Checks the number.
    ///
    /// # Errors
    /// When it is 0 or above [`MAX`](Self::MAX).
    pub const fn new(number: u64) -> Result<Self, Invalid> {
        if number == 0 || number > Self::MAX {
            Err(Invalid::Conn)
        } else {
            Ok(Self(number))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Names one operation of a session: the same in every retry of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The connection.
    pub conn: Conn,
    /// The operation within the connection, counted from 1.
    pub rev: u64,
}

/// Who keeps a session alive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Itself, by HTTP heartbeats: it has a deadline of its own.
    Own,
    /// A gateway's incarnation in the session's shard, for all its sessions at once.
    Gateway(Incarnation),
}

/// What a device reports of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// In use.
    #[default]
    Online,
    /// Idle.
    Away,
}

/// What sort of device it is: a short word such as `web`, `mobile`, `desktop`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct Kind(Arc<str>);

impl Kind {
    /// Checks the word.
    ///
    /// # Errors
    /// When it is not 1 to 32 of `a-z`, `0-9`, `-`, `_`.
    pub fn new(word: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, Invalid> {
        let text = word.as_ref();
        let fits = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if text.is_empty() || text.len() > 32 || !text.bytes().all(fits) {
            return Err(Invalid::Kind);
        }
        let usual = USUAL.iter().find(|usual| &***usual == text).cloned();
        Ok(Self(usual.unwrap_or_else(|| word.into())))
    }

    /// The word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Kinds that almost everybody has are kept once.
static USUAL: LazyLock<[Arc<str>; 5]> =
    LazyLock::new(|| ["other", "web", "mobile", "desktop", "tablet"].map(Arc::from));

impl Default for Kind {
    fn default() -> Self {
        Self(Arc::clone(&USUAL[0]))
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<Arc<str>> for Kind {
    type Error = Invalid;
    fn try_from(word: Arc<str>) -> Result<Self, Invalid> {
        Self::new(word)
    }
}

impl From<Kind> for Arc<str> {
    fn from(kind: Kind) -> Self {
        kind.0
    }
}

/// The customer's own JSON about a session; opaque to Adsum.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Meta(Arc<str>);

impl Meta {
    /// Checks that the text is one JSON value of at most `limit` bytes.
    ///
    /// # Errors
    /// When it is longer, or not JSON.
    pub fn new(text: impl AsRef<str> + Into<Arc<str>>, limit: usize) -> Result<Self, Invalid> {
        let size = text.as_ref().len();
        if size > limit {
            return Err(Invalid::MetaTooLarge { size, limit });
        }
        serde_json::from_str::<serde::de::IgnoredAny>(text.as_ref())
            .map_err(|e| Invalid::MetaNotJson(e.to_string()))?;
        Ok(Self(text.into()))
    }

    /// What a store gave back: it was checked when it was written.
    #[must_use]
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A session's stay in one room.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// When it joined, in ms. In an operation 0 means "now"; the store keeps the time of a
    /// stay that it knows, so a reconnect does not change it.
    pub since: u64,
    /// The session's `meta` in this room.
    pub meta: Option<Meta>,
}

/// The rooms of a session, by id. Mostly one or two: a sorted list is a tenth of a tree.
pub type Rooms = LiteMap<RoomId, Membership>;

/// All that a device says of itself: sent whole with every operation, so that any of them can
/// open the session again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// What sort of device.
    pub kind: Kind,
    /// Active or idle.
    pub activity: Activity,
    /// The customer's JSON.
    pub meta: Option<Meta>,
    /// Where it is.
    pub rooms: Rooms,
}

/// A session as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Who keeps it alive.
    pub holder: Holder,
    /// The last operation that was accepted.
    pub stamp: Stamp,
    /// When it was first opened, in ms of the shard's clock.
    pub opened_at: u64,
    /// What the device said.
    pub state: State,
}

impl Session {
    /// Whether others would see a difference: holder and stamp are nobody's business.
    #[must_use]
    pub fn looks_like(&self, other: &Self) -> bool {
        self.opened_at == other.opened_at && self.state == other.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_bounds() {
        assert!(Conn::new(0).is_err());
        assert!(Conn::new(Conn::MAX).is_ok());
        assert!(Conn::new(Conn::MAX + 1).is_err());
    }

    #[test]
    fn meta_is_json_within_its_limit() {
        assert!(Meta::new(r#"{"a":[1,"x"]}"#, 20).is_ok());
        assert!(matches!(Meta::new("{", 20), Err(Invalid::MetaNotJson(_))));
        assert!(matches!(Meta::new("1 2", 20), Err(Invalid::MetaNotJson(_))));
        let long = Meta::new("\"0123456789\"", 5);
        assert_eq!(long, Err(Invalid::MetaTooLarge { size: 12, limit: 5 }));
    }

    #[test]
    fn kinds_are_short_words() {
        assert!(Kind::new("web").is_ok());
        for bad in ["", "Web", "a b", "ü"] {
            assert!(Kind::new(bad).is_err(), "{bad}");
        }
        assert!(Kind::new("x".repeat(33)).is_err());
    }
}
