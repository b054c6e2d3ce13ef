//! Tails the shards' logs, keeps a view of each, and streams to every gateway the states of the
//! topics it asked for. Any dispatcher can serve any shard; the ring only says who is asked
//! first, so fan-out never waits for an election.

mod clock;
mod config;
mod contacts;
mod frames;
mod interest;
mod outlet;
mod service;
mod shard;
mod shards;
mod stream;
mod tail;
mod traces;

pub use config::DispatcherConfig;
pub use interest::StreamId;
pub use outlet::{Mark, Next, Outlet};
pub use service::{Dispatcher, FeedService};
pub use shards::ShardStatus;
pub use tail::{News, Routed, Tail};
