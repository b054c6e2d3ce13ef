//! The frames, typed: what both encodings read and write. Whatever is in one of these has passed
//! the checks at the door.

use std::{borrow::Cow, sync::Arc};

use adsum_core::{
    Activity, Conn, DeviceId, Digest, Kind, Manual, Membership, Meta, Reason, RoomId, Rooms, State,
    Status, Topic, UserId, Version,
};

pub use super::{
    error::Field,
    words::{LastSeen, Mode, Patch, Ref, Token},
};

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFrame {
    /// Echoed in the reply.
    pub r#ref: Option<Ref>,
    /// W3C trace context, well-formed.
    pub traceparent: Option<Arc<str>>,
    /// What it says.
    pub body: ClientBody,
}

impl ClientFrame {
    /// Whether it says nothing but that the client is there.
    #[must_use]
    pub fn is_beat(&self) -> bool {
        matches!(self.body, ClientBody::Heartbeat)
    }
}

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientBody {
    /// The first frame.
    Hello(Box<Hello>),
    /// Still here.
    Heartbeat,
    /// Enter a room, or change `meta` in it.
    Join(Join),
    /// Go out of a room.
    Part(RoomId),
    /// Watch a topic.
    Watch(Watch),
    /// Watch these no more.
    Unwatch(Vec<Topic>),
    /// Change what is named.
    Set(Set),
    /// A new token.
    Refresh(Token),
    /// Goodbye.
    Leave,
}

impl ClientBody {
    /// The word in `type`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Heartbeat => "heartbeat",
            Self::Join(_) => "join",
            Self::Part(_) => "part",
            Self::Watch(_) => "watch",
            Self::Unwatch(_) => "unwatch",
            Self::Set(_) => "set",
            Self::Refresh(_) => "refresh",
            Self::Leave => "leave",
        }
    }
}

/// Who connects, and all that the session is to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// Absent if it came with the handshake.
    pub token: Option<Token>,
    /// Absent: one is made up.
    pub device: Option<DeviceId>,
    /// Always there with `device`.
    pub conn: Option<Conn>,
    /// What sort of device.
    pub kind: Kind,
    /// What the device reports.
    pub activity: Activity,
    /// The user's manual status.
    pub status: Patch<Manual>,
    /// About the session.
    pub meta: Option<Meta>,
    /// Rooms to be in. Of one that is named twice, the later counts.
    pub rooms: Vec<Join>,
    /// Topics to watch.
    pub watch: Vec<Watch>,
    /// How long a break is told to nobody, if that is less than what the tenant has set.
    pub linger_ms: Option<u64>,
}

impl Hello {
    /// The state of the session that it asks for.
    #[must_use]
    pub fn state(&self) -> State {
        let stay = |join: &Join| Membership {
            since: 0,
            meta: join.meta.clone(),
        };
        // Collected, it would keep room for rooms that most sessions are never in.
        let mut rooms = Rooms::with_capacity(self.rooms.len());
        for join in &self.rooms {
            rooms.insert(join.room.clone(), stay(join));
        }
        State {
            kind: self.kind.clone(),
            activity: self.activity,
            meta: self.meta.clone(),
            rooms,
        }
    }
}

/// One session kept alive without a connection. No frame, but made of the same words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Absent: the token's own.
    pub user: Option<UserId>,
    /// Which of the user's devices.
    pub device: DeviceId,
    /// As in a hello.
    pub conn: Conn,
    /// Which of the session's operations; `None`: numbered by arrival.
    pub rev: Option<u64>,
    /// All of it.
    pub state: State,
}

/// A room to be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Which.
    pub room: RoomId,
    /// About the session in this room.
    pub meta: Option<Meta>,
}

/// A topic to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Which.
    pub topic: Topic,
    /// The least that is wanted.
    pub mode: Mode,
    /// What is known of it from before.
    pub digest: Option<Digest>,
}

/// What to change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Set {
    /// Of this device.
    pub activity: Option<Activity>,
    /// The manual one.
    pub status: Patch<Manual>,
    /// Of this session.
    pub meta: Patch<Meta>,
}

/// What a server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFrame {
    /// Of the frame that this answers.
    pub r#ref: Option<Ref>,
    /// What it says.
    pub body: ServerBody,
}

impl ServerFrame {
    /// An answer to a frame, or, with no `ref`, news.
    #[must_use]
    pub const fn new(r#ref: Option<Ref>, body: ServerBody) -> Self {
        Self { r#ref, body }
    }
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerBody {
    /// The answer to a hello.
    Welcome(Welcome),
    /// Done.
    Ack,
    /// A topic as it is.
    PresenceState(PresenceState),
    /// What changed in a topic.
    PresenceDiff(PresenceDiff),
    /// Connect again, at the earliest after so many ms.
    Reconnect {
        /// How long to wait.
        after_ms: u64,
    },
    /// Something went wrong.
    Error(Problem),
    /// The token ends.
    Expiring {
        /// When.
        in_ms: u64,
    },
}

impl ServerBody {
    /// The word in `type`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "welcome",
            Self::Ack => "ack",
            Self::PresenceState(_) => "presence_state",
            Self::PresenceDiff(_) => "presence_diff",
            Self::Reconnect { .. } => "reconnect",
            Self::Error(_) => "error",
            Self::Expiring { .. } => "expiring",
        }
    }
}

/// The answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Whose session this is.
    pub user: UserId,
    /// As given, or made up.
    pub device: DeviceId,
    /// As given, or made up.
    pub conn: Conn,
    /// Beat this often.
    pub heartbeat_ms: u64,
    /// Silent for longer: closed.
    pub ttl_ms: u64,
    /// The server's clock, ms.
    pub server_time: u64,
}

/// A topic as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceState {
    /// Which.
    pub topic: Topic,
    /// Counts the frames of this topic on this connection.
    pub offset: u64,
    /// How much is told.
    pub mode: Mode,
    /// Who is there; `None`: as the watcher's digest says.
    pub members: Option<Members>,
    /// A part of the cluster can't be heard: what is told of it may be old.
    pub stale: bool,
}

/// Who is in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// False: more may follow as joins.
    pub complete: bool,
    /// All, or a sample.
    pub members: Vec<Item>,
    /// How many.
    pub count: Option<u64>,
}

/// What changed in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceDiff {
    /// Which.
    pub topic: Topic,
    /// Counts the frames of this topic on this connection.
    pub offset: u64,
    /// Who came.
    pub joins: Vec<Item>,
    /// Who left.
    pub leaves: Vec<Left>,
    /// Who looks different.
    pub updates: Vec<Item>,
    /// How many there are now.
    pub count: Option<u64>,
    /// Whether a part of the cluster can't be heard; `None`: as before.
    pub stale: Option<bool>,
}

/// A person in a topic, as a watcher is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Who.
    pub user: UserId,
    /// What they are; `invisible` for themselves only.
    pub status: Status,
    /// The kinds of their devices here.
    pub devices: Vec<Kind>,
    /// About them.
    pub meta: Option<Meta>,
    /// Since when, ms.
    pub since: u64,
    /// The last change that shows here.
    pub v: Version,
}

impl From<&adsum_core::Item> for Item {
    /// As it is: whether it may be told is decided before.
    fn from(item: &adsum_core::Item) -> Self {
        Self {
            user: item.user.clone(),
            status: item.status,
            devices: item.devices.clone(),
            meta: item.meta.clone(),
            since: item.since,
            v: item.v,
        }
    }
}

/// Somebody who left a topic, as a watcher is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Who.
    pub user: UserId,
    /// Why, when that is known.
    pub reason: Option<Reason>,
    /// When they were last there, when that is known.
    pub last_seen: Option<LastSeen>,
    /// Of the absence.
    pub v: Version,
}

impl Left {
    /// Of a departure, told at `now`.
    #[must_use]
    pub fn new(leave: &adsum_core::Leave, now: u64) -> Self {
        Self {
            user: leave.item.user.clone(),
            reason: leave.reason,
            last_seen: LastSeen::new(leave.last_seen, now),
            v: leave.version,
        }
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// For programs. A text, because a newer server may have more of them.
    pub code: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// Trying again helps, after so long.
    pub retry_after_ms: Option<u64>,
    /// With `superseded`: go above this.
    pub conn: Option<Conn>,
}

impl Problem {
    /// One of ours.
    #[must_use]
    pub fn new(code: super::Code, message: impl Into<String>) -> Self {
        Self {
            code: Cow::Borrowed(code.as_str()),
            message: message.into(),
            retry_after_ms: None,
            conn: None,
        }
    }
}
