//! What an app is told.

use std::{sync::Arc, time::Duration};

use adsum_core::{Conn, DeviceId, Digest, Topic, UserId};
use adsum_proto::client::frame::{Item, Left, Mode, Problem};

use crate::EndReason;

/// Something happened. Whoever applies all of these has the same picture as
/// [`Client::roster`](crate::Client::roster).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A connection stands, be it the first or another one.
    Connected {
        /// With whom.
        endpoint: Arc<str>,
        /// Who we are.
        user: UserId,
        /// Which device we are; the server may have made it up.
        device: DeviceId,
        /// The number of the connection.
        conn: Conn,
    },
    /// The connection is gone. Rosters stay as they are until the next one.
    Disconnected,
    /// Somebody is there who was not.
    Joined {
        /// Where.
        topic: Topic,
        /// Who.
        item: Arc<Item>,
    },
    /// Somebody looks different.
    Updated {
        /// Where.
        topic: Topic,
        /// Who, as they are now.
        item: Arc<Item>,
    },
    /// Somebody is not there any more. If that was seen only by comparing, after a reconnect,
    /// there is no reason and no last seen, and `v` is that of the last that was known.
    Left {
        /// Where.
        topic: Topic,
        /// Who, and why.
        left: Arc<Left>,
    },
    /// How many are there, if the server says so.
    Count {
        /// Where.
        topic: Topic,
        /// Those whom everybody may see.
        count: u64,
    },
    /// A part of the cluster can't be heard, or all of it can be again. Who is of that part is
    /// told as they were meanwhile.
    Stale {
        /// Where.
        topic: Topic,
        /// From now on.
        stale: bool,
    },
    /// The picture of a topic is up to date; the differences came before this. In mode `count`
    /// nobody is told any more: forget who was there. If the mode changes back, all of them join.
    Synced {
        /// Which.
        topic: Topic,
        /// How much is told from now on.
        mode: Mode,
        /// False: a part of the cluster has not answered; more may follow, nobody is missed yet.
        complete: bool,
        /// What was known from before was still right.
        resumed: bool,
    },
    /// The token ends. Told also if there is a provider, which is then asked by itself.
    Expiring {
        /// After so long.
        left: Duration,
    },
    /// The server complained about something that no call waits for.
    Error(Problem),
    /// The last event.
    Ended(EndReason),
}

/// What is known of one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Who is there, by id; in mode `count` a sample.
    pub members: Vec<Arc<Item>>,
    /// How many, as told, or else as counted.
    pub count: u64,
    /// How much is told.
    pub mode: Mode,
    /// Whether all of the cluster has answered.
    pub complete: bool,
    /// Whether a part of it can't be heard now: who is of that part is shown as they were.
    pub stale: bool,
    /// Of the members; zero in mode `count`.
    pub digest: Digest,
}

/// Where a client stands.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum State {
    /// A connection is being made.
    Connecting,
    /// Connected.
    Online {
        /// With whom.
        endpoint: Arc<str>,
        /// As which device.
        device: DeviceId,
        /// The number of the connection.
        conn: Conn,
    },
    /// Not connected; the next try comes later.
    Waiting,
    /// Over.
    Ended(EndReason),
}
