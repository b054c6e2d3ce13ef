//! What both stores are configured with.

use std::sync::{Arc, atomic::AtomicU64};

use adsum_core::{Limits, store::Shard};

/// Numbers and times of a store. Every node of a cluster must have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Shards; fixed at birth.
    pub shards: Shard,
    /// A holder's deadline after each renewal, ms.
    pub holder_ms: u64,
    /// How long a new epoch settles: at least the holders' deadline and every session's ttl.
    pub settle_ms: u64,
    /// After so long without a renewal or a sweep, sweeps wait for one settling.
    pub alive_gap_ms: u64,
    /// How long a closed connection can't be opened again.
    pub tomb_ms: u64,
    /// No deadline may be further away: one that is was set by a clock that was ahead.
    pub max_deadline_ms: u64,
    /// How long last seen is kept.
    pub retention_ms: u64,
    /// Most entries of a log.
    pub log_len: u64,
    /// Most bytes of a log's entries.
    pub log_max_bytes: u64,
    /// Bounds of a session's state.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 64,
            holder_ms: 30_000,
            settle_ms: 45_000,
            alive_gap_ms: 10_000,
            tomb_ms: 60_000,
            max_deadline_ms: 120_000,
            retention_ms: 90 * 24 * 3_600_000,
            log_len: 10_000,
            log_max_bytes: 16 << 20,
            limits: Limits::default(),
        }
    }
}

/// Levers for tests, which make a run repeatable; none is set in a real one.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    /// Replaces the shards' clock: ms.
    pub clock: Option<Arc<AtomicU64>>,
    /// Replaces the random part of a new epoch.
    pub nonce: Option<u64>,
}
