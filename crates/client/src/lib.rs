//! The Rust client of Adsum: it stays connected, keeps rosters, and tells what changed.
//!
//! ```no_run
//! use adsum_client::{Client, Event, Mode, RoomId, Topic};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let lobby = RoomId::new("lobby")?;
//! let (client, mut events) = Client::builder()
//!     .endpoint("ws://127.0.0.1:8080")
//!     .token("dev:acme:ann")
//!     .room(lobby.clone())
//!     .watch(Topic::Room(lobby.clone()), Mode::Members)
//!     .connect()
//!     .await?;
//!
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::Joined { item, .. } => println!("{} is {}", item.user, item.status),
//!         Event::Left { left, .. } => println!("{} left", left.user),
//!         Event::Synced { topic, .. } => println!("{} are there", client.roster(&topic).len()),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it takes care of
//!
//! - **Beating** as the server asks, and reconnecting when an answer is missing: with jittered
//!   back-off, at the next endpoint, under the same device with a higher number, so that nobody
//!   sees it happen.
//! - **Draining**: told to go elsewhere, it opens the next connection before it drops the last.
//! - **State across connections**: rooms, `meta`, activity and watches are said again. What was
//!   asked for and not answered is asked for again.
//! - **Resuming**: a watch names the digest of what is known. A full state is turned into the
//!   difference, so an app never sees a leave and a join of somebody who stayed.
//! - **Patience**: a call that is limited by rate is sent again when the server allows it.
//! - **Giving up** where coming back would be wrong, with an [`EndReason`].
//!
//! # Slow apps
//!
//! [`Events`] never holds the client up. Up to [`Builder::event_capacity`] events wait as they
//! are; beyond that only the net change of each user in each topic is kept.
//!
//! # Features
//!
//! `testing`: ways to misbehave (`Client::sever`, `Client::freeze`, `Client::thaw`).

mod builder;
mod client;
mod clock;
mod driver;
mod endpoint;
mod error;
mod event;
mod link;
mod open;
mod queue;
mod session;
mod timing;
mod tls;
mod tokens;

pub use adsum_core::{
    Activity, Conn, DeviceId, Digest, IdError, Invalid, Kind, Manual, Meta, Reason, RoomId, Status,
    TenantId, Topic, UserId, Version,
};
pub use adsum_proto::client::{
    Close, Code, Encoding, ago,
    frame::{Item, LastSeen, Left, Mode, Problem, Token},
};

pub use builder::{Builder, ConnectError, Transport};
pub use client::Client;
#[cfg(feature = "testing")]
pub use client::Freeze;
pub use error::{ConfigError, EndReason, Error};
pub use event::{Event, State, View};
pub use queue::Events;
pub use timing::Timing;
pub use tls::Tls;
pub use tokens::TokenError;
