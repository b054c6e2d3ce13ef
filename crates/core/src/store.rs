//! The contract of a store. Both stores keep it to the letter; one suite checks both.
//!
//! Every operation runs as one atomic step on one shard, judged by the shard's own clock.
//! Every operation first looks at the shard's epoch: a shard that was never born, that changed
//! its identity (failover, restart) or that is below an epoch this caller has seen begins a new
//! one, and settles. A store handle remembers the highest epoch it saw of each shard.
//!
//! Which operation wins is decided by the session's [`Stamp`]: a lower `conn` than the recorded
//! one is superseded; the same `conn` with a `rev` not above the recorded one is a late
//! duplicate, answered like the first and without effect.

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{
    Change, Conn, DeviceId, Incarnation, Invalid, Origin, Person, Preference, Prefs, Reason,
    Session, SessionKey, Stamp, State, UserId, UserKey, Version,
};

/// The number of a shard.
pub type Shard = u16;

/// An answer, and what every answer tells about its shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The shard's epoch after the operation.
    pub epoch: u64,
    /// The shard's clock, ms.
    pub at: u64,
    /// The change that it committed, if that is all there is to say of its owner: they have no
    /// other session, and the shard has settled. Of opens, changes and closes only.
    pub whole: Option<Box<Change>>,
    /// What was asked.
    pub value: T,
}

/// Open a session, or move it to its new holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Which session.
    pub key: SessionKey,
    /// The gateway that holds it from now on.
    pub holder: Incarnation,
    /// Which operation of it.
    pub stamp: Stamp,
    /// Its full state. A room's `since` counts only where the store knows no such stay.
    pub state: State,
    /// When it was first opened, if this is not the first time; 0 for now. Counts only where
    /// the store does not know the session.
    pub opened_at: u64,
    /// Status and visibility that a gateway carried through a loss; the newer wins.
    pub prefs: Option<Prefs>,
    /// For those who measure.
    pub origin: Option<Origin>,
}

/// How an [`Open`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// Recorded, now or by the first copy of this operation. Its holder is another one when
    /// that copy was overtaken: open again with a higher `rev`.
    Ok {
        /// As recorded.
        session: Box<Session>,
        /// The owner's preferences.
        prefs: Prefs,
        /// Whether a change was committed.
        committed: bool,
    },
    /// A newer connection is there, or this one was closed.
    Superseded {
        /// The connection to go above.
        conn: Conn,
    },
    /// The holder has expired: take a new incarnation.
    Gone,
}

/// Change the state of an open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alter {
    /// Which session.
    pub key: SessionKey,
    /// Which operation of it.
    pub stamp: Stamp,
    /// Its full new state.
    pub state: State,
    /// For those who measure.
    pub origin: Option<Origin>,
}

/// How an [`Alter`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Altered {
    /// Recorded.
    Ok {
        /// As recorded.
        session: Box<Session>,
        /// Whether a change was committed.
        committed: bool,
    },
    /// A newer connection is there.
    Superseded {
        /// The connection to go above.
        conn: Conn,
    },
    /// There is no such session, or only an older connection of it: open it.
    Unknown,
}

/// Close a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// Which session.
    pub key: SessionKey,
    /// Which operation of it.
    pub stamp: Stamp,
    /// Why.
    pub reason: Reason,
    /// For those who measure.
    pub origin: Option<Origin>,
}

/// How a [`Close`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It is closed, and an open of this connection or an older one will be superseded.
    Ok {
        /// Whether a change was committed.
        committed: bool,
    },
    /// A newer connection is there; nothing was closed.
    Superseded {
        /// That connection.
        conn: Conn,
    },
}

/// One HTTP heartbeat: carries everything, so it opens a session that is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// Which session.
    pub key: SessionKey,
    /// Which operation of it.
    pub stamp: Stamp,
    /// Its full state.
    pub state: State,
    /// How long until the next one must come, ms.
    pub ttl_ms: u64,
    /// How many sessions its owner may have; one that is not there yet is not opened beyond.
    pub sessions_max: usize,
    /// For those who measure.
    pub origin: Option<Origin>,
}

/// How a [`Touch`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// Recorded.
    Ok {
        /// Whether a change was committed.
        committed: bool,
    },
    /// A newer connection is there, or this one was closed.
    Superseded {
        /// The connection to go above.
        conn: Conn,
    },
    /// Its owner has too many sessions already: this one was not opened.
    Full,
}

/// How long a holder's sessions live if it is never heard of again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// The usual deadline. Whoever has not returned by then is told as `node_lost`.
    Usual,
    /// The last renewal of a gateway that drains: its own deadline in ms; whoever has not
    /// returned by then is told as `disconnect`.
    Drain(u64),
}

/// How a renewal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The deadline was moved.
    Ok {
        /// How many sessions the holder holds in the shard.
        held: u64,
    },
    /// The shard does not know this holder, or has condemned it.
    Gone,
}

/// The right to sweep a shard. Worth something only in its epoch, and until a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// The epoch it was claimed in.
    pub epoch: u64,
    /// Its number.
    pub number: u64,
}

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// The fence is good.
    Ok {
        /// Sessions closed.
        closed: u64,
        /// How long until something can be due, ms; 0 when there is more to do at once, `None`
        /// when nothing has a deadline. While settling: until that ends, at least.
        next_ms: Option<u64>,
    },
    /// A higher fence exists, or the epoch is another: claim again, after proving the lease.
    Refused,
}

/// How a preference was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preferred {
    /// Recorded under the version given, now or by the first copy of this operation.
    Ok(Prefs),
    /// The recorded version is as high or higher, with another value: choose one above it.
    Stale(Prefs),
}

/// Where a shard's log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The epoch.
    pub epoch: u64,
    /// The number of the newest entry.
    pub seq: u64,
    /// The number of the oldest entry that is still there.
    pub first: u64,
    /// The epoch has not settled: absence means nothing yet.
    pub settling: bool,
}

/// A part of a shard's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// Where the log stood; `None` for a shard that was never born.
    pub position: Option<Position>,
    /// Entries after the one asked for, in order, without gaps among them.
    pub entries: Vec<Change>,
    /// Entries between the one asked for and the first of these are gone: reload.
    pub hole: bool,
}

/// A part of a shard's people, in no order; one that moves during a scan may come twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// Who has sessions.
    pub people: Vec<(UserKey, Person)>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// A consistent picture of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// As of this position.
    pub position: Position,
    /// Who has sessions.
    pub people: std::collections::HashMap<UserKey, Person>,
}

/// All that is known of one user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserRead {
    /// The person, while they have sessions.
    pub person: Option<Person>,
    /// Their preferences.
    pub prefs: Prefs,
    /// When their last session closed, ms; public: frozen while invisible.
    pub last_seen: Option<u64>,
    /// The shard has not settled: absence means nothing yet.
    pub settling: bool,
}

/// What must renew, as `user --why` and the tests see it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// A gateway's incarnation.
    Holder(Incarnation),
    /// One that said goodbye.
    Draining(Incarnation),
    /// One that expired; its sessions are being closed.
    Condemned(Incarnation),
    /// A session that holds itself.
    Session(SessionKey),
    /// A tombstone.
    Tomb(SessionKey),
}

/// What a subscriber hears of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Push {
    /// A committed change, as pushed: may be lost or late, never wrong.
    Change(Box<Change>),
    /// Something may have been missed: look at the log now.
    Lost,
}

/// What went wrong, and whether trying again helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer in time, or one that asks for patience; retry.
    #[error("the store did not answer in time; retry: {0}")]
    Unavailable(String),
    /// Written, but on no replica yet; retry.
    #[error("the write has not reached a replica; retry")]
    NotReplicated,
    /// The answer makes no sense; a retry does not help.
    #[error("the store holds or answered something unreadable: {0}")]
    Corrupt(String),
    /// Born with another number of shards.
    #[error("the store was born with {stored} shards, this node is configured with {configured}")]
    WrongShards {
        /// In the store.
        stored: u64,
        /// In the configuration.
        configured: u64,
    },
    /// The store is set up in a way that would lose data, or refuses us.
    #[error("the store refuses: {0}")]
    Refused(String),
    /// The input breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl StoreError {
    /// Whether trying the same again can help.
    #[must_use]
    pub const fn retry(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::NotReplicated)
    }

    /// The stable code that clients see.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "store_unavailable",
            Self::NotReplicated => "not_replicated",
            Self::Corrupt(_) => "store_corrupt",
            Self::WrongShards { .. } => "wrong_shards",
            Self::Refused(_) => "store_refused",
            Self::Invalid(invalid) => invalid.code(),
        }
    }
}

impl From<crate::codec::CodecError> for StoreError {
    fn from(error: crate::codec::CodecError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// A result of a store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Where sessions live.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The number of shards.
    fn shards(&self) -> Shard;

    /// The shard of a user: the same on every node, forever.
    fn shard_of(&self, user: &UserKey) -> Shard;

    /// Tells this handle of an epoch seen elsewhere, for instance in the feed.
    fn observe(&self, shard: Shard, epoch: u64);

    /// Checks that the store can be used as configured; for the start of a node.
    async fn check(&self) -> Result<()>;

    /// Opens a session or moves it to a new holder, whose deadline it creates. Commits a change
    /// only if something visible changed.
    async fn open(&self, op: Open) -> Result<Answer<Opened>>;

    /// Changes an open session.
    async fn alter(&self, op: Alter) -> Result<Answer<Altered>>;

    /// Closes a session and leaves a tombstone for its connection. A session of an *older*
    /// connection is closed too: the newer one has said goodbye for the device.
    async fn close(&self, op: Close) -> Result<Answer<Closed>>;

    /// HTTP heartbeats, any number: grouped by shard, each judged by itself, answered in order.
    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>>;

    /// Closes all sessions of a user, or of one device, whatever their connection, with
    /// tombstones: `kicked`. Answers which were closed.
    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>>;

    /// Forgets a user: sessions (as [`kick`](Self::kick) does), preferences, contacts, last seen.
    async fn purge(&self, user: &UserKey) -> Result<Answer<()>>;

    /// Moves the one deadline of all sessions that a gateway holds in a shard.
    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>>;

    /// What a holder holds, in the order of keys, after the one given.
    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>>;

    /// A new, higher fence.
    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>>;

    /// Closes what is overdue, at most `limit` sessions; trims tombstones and last seen. What it
    /// closes says where that came from.
    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>>;

    /// The same, from nowhere in particular.
    async fn sweep(&self, shard: Shard, fence: Fence, limit: usize) -> Result<Answer<Swept>> {
        self.sweep_from(shard, fence, limit, None).await
    }

    /// Writes one preference under a version chosen by the caller, once per operation, above
    /// the one it knows. The change says where it came from.
    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        origin: Option<Origin>,
    ) -> Result<Answer<Preferred>>;

    /// The same, from nowhere in particular.
    async fn prefer(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
    ) -> Result<Answer<Preferred>> {
        self.prefer_from(user, preference, version, None).await
    }

    /// A user's list of contacts with its version.
    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>>;

    /// Many users, grouped by shard, in the order given. Never from replicas.
    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>>;

    /// The log after an entry, at most `limit` of it. With `limit` 0 just where it stands.
    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage>;

    /// Whether the log still ends with this change, as far as a look that costs little can tell:
    /// one that does not ask whether the server is another than before. `false` when in doubt.
    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        let _ = (shard, last);
        Ok(false)
    }

    /// People of a shard, page by page; start with 0.
    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage>;

    /// What must renew and when, soonest first, at most `limit`.
    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>>;

    /// Pushes of a shard's changes from now on. Ends only with the store.
    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>>;
}
