//! The reaper: closes what fell silent. Each shard has one sweeper in the cluster, elected by the
//! membership and fenced by the store; it sweeps only while its lease is certain, and hands over
//! when the ring says so.
//!
//! [`Reaper`] runs two kinds of tasks. The *control* watches members and owners and decides, by
//! the rules of `board`, which shards to campaign for and which to hand over. A *sweeper* lives
//! for one tenure of one shard: elected, claimed, sweeping, resigned.
//!
//! Invariant: nothing here decides whether a sweep is safe. That is the fence's work, in the
//! store; the lease only keeps a reaper from asking in vain.

mod backoff;
mod board;
mod calls;
mod config;
mod control;
mod reaper;
mod status;
mod sweeper;

pub use config::ReaperConfig;
pub use reaper::Reaper;
pub use status::{Idle, LastSweep, ReaperStatus, ShardStatus};
