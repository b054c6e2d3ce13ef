//! The words of a history.

use adsum_core::{Activity, Manual, Reason, Status, Version, Visibility};
use serde::{Deserialize, Serialize};

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Active or idle.
    pub activity: Activity,
    /// The rooms it is in.
    pub rooms: Vec<String>,
    /// Counts what the device said, in its `meta`: later words have higher marks.
    pub mark: u64,
}

/// How somebody went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// Said goodbye.
    Goodbye,
    /// The socket broke; comes back, or does not.
    Broken {
        /// Means to come back within the linger time.
        returns: bool,
    },
    /// Silent, the socket open.
    Silent,
    /// A session that held itself beats no more.
    Unheld,
}

/// A lasting setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The manual status.
    Status(Option<Manual>),
    /// Who may see.
    Visibility(Visibility),
    /// The list of contacts.
    Contacts(Vec<String>),
}

/// What was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A gateway died.
    GatewayKilled(String),
    /// A gateway stood still.
    GatewayFrozen(String),
    /// A gateway was told to go.
    GatewayDrained(String),
    /// A gateway could not reach the store.
    GatewayCut(String),
    /// A gateway could not reach any dispatcher.
    FeedCut(String),
    /// A gateway read its feed too slowly.
    FeedSlow(String),
    /// A dispatcher died.
    DispatcherKilled(String),
    /// A dispatcher stood still.
    DispatcherFrozen(String),
    /// A dispatcher could not reach the store.
    DispatcherDeaf(String),
    /// A dispatcher got no pushes.
    PushesLost(String),
    /// A reaper died.
    ReaperKilled(String),
    /// A reaper stood still.
    ReaperFrozen(String),
    /// Shards moved to another server, which may have lacked the last writes.
    Failover {
        /// Which.
        shards: Vec<u16>,
        /// How many writes were lost.
        lost: u64,
    },
    /// Shards forgot everything.
    Flush(Vec<u16>),
    /// Shards did not answer, or late.
    Stall(Vec<u16>),
    /// The clock of the store jumped by so many ms.
    ClockStep(i64),
}

/// A person as a watcher was shown them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Who.
    pub user: String,
    /// Their status.
    pub status: Status,
    /// Their devices: the simulated ones have a kind of their own each.
    pub kinds: Vec<String>,
    /// The mark in their `meta`.
    pub mark: Option<u64>,
    /// The number of their last visible change.
    pub v: Version,
}

/// Somebody whom a watcher does not see any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Who.
    pub user: String,
    /// Why, as told.
    pub reason: Option<Reason>,
    /// The number of the absence; none if it was found by comparison.
    pub v: Version,
}

/// What a watcher watches, and with which eyes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Through which gateway.
    pub gateway: String,
    /// `room:<id>`, `user:<id>` or `tenant`.
    pub topic: String,
    /// Who looks; nobody for a service.
    pub eyes: Option<String>,
    /// Sees everybody, whatever their settings.
    pub all: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Where a user's sessions are kept. Of whom it is not told, any shard may be the one.
    Lives {
        /// Who.
        user: String,
        /// In which shard.
        shard: u16,
    },
    /// A client began a connection.
    Hello {
        /// Whose.
        user: String,
        /// Which device.
        device: String,
        /// The number of the connection.
        conn: u64,
        /// To which gateway; none for a session that holds itself.
        gateway: Option<String>,
        /// What it said.
        said: Said,
    },
    /// A connected client said something else of itself.
    Change {
        /// Whose.
        user: String,
        /// Which device.
        device: String,
        /// What it said.
        said: Said,
    },
    /// A connected client heard that the store has this.
    Recorded {
        /// Whose.
        user: String,
        /// Which device.
        device: String,
        /// What is recorded.
        said: Said,
    },
    /// A client went.
    Gone {
        /// Whose.
        user: String,
        /// Which device.
        device: String,
        /// How.
        how: Gone,
    },
    /// A client that did nothing wrong was told that its connection was taken over or closed.
    Ousted {
        /// Whose.
        user: String,
        /// Which device.
        device: String,
        /// The word it was told.
        word: String,
    },
    /// A user asked for a setting.
    Asked {
        /// Whose.
        user: String,
        /// What.
        setting: Setting,
    },
    /// The setting asked for last is recorded.
    Set {
        /// Whose.
        user: String,
    },
    /// Something was broken, for so long (0: in an instant).
    Broke {
        /// What.
        fault: Fault,
        /// How long, ms.
        lasts: u64,
    },
    /// A shard committed a change.
    Committed {
        /// Which shard.
        shard: u16,
        /// Its number.
        v: Version,
        /// What it says, in any spelling that differs when the content does.
        what: String,
    },
    /// A reaper got a fence.
    Claimed {
        /// Of which shard.
        shard: u16,
        /// Who.
        reaper: String,
        /// Epoch and number of the fence.
        fence: (u64, u64),
    },
    /// A sweep was accepted.
    Swept {
        /// Of which shard.
        shard: u16,
        /// Whose.
        reaper: String,
        /// Epoch and number of its fence.
        fence: (u64, u64),
    },
    /// Somebody began to watch.
    Watching {
        /// The watcher.
        watcher: String,
        /// What and how.
        view: View,
    },
    /// A watcher was told a topic whole.
    State {
        /// The watcher.
        watcher: String,
        /// Who is there.
        members: Vec<Seen>,
        /// A shard had not settled: somebody may be lacking.
        settling: bool,
    },
    /// A watcher was told what changed.
    Diff {
        /// The watcher.
        watcher: String,
        /// Who came.
        joins: Vec<Seen>,
        /// Who looks different.
        updates: Vec<Seen>,
        /// Who left.
        leaves: Vec<Leaving>,
    },
    /// A watcher is gone.
    Unwatched {
        /// The watcher.
        watcher: String,
    },
    /// How large something is that must not grow without end.
    Size {
        /// What.
        what: String,
        /// How large.
        size: u64,
        /// At most.
        limit: u64,
    },
    /// From here on nothing is broken and nobody does anything but beat.
    Calm,
    /// The run is over; all had time to settle.
    End,
}
