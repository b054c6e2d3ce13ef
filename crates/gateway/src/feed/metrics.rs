//! What the feed counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only this crate changes.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn set(&self, n: usize) {
        self.0.store(n as u64, Ordering::Relaxed);
    }
}

/// Counters since the start; the last four are how things are now.
#[derive(Debug, Default)]
pub struct FeedMetrics {
    /// Shards that went from one dispatcher to another.
    pub moves: Count,
    /// Shards that were asked for again because a part did not come.
    pub asked_again: Count,
    /// Streams that broke, or could not be opened.
    pub failures: Count,
    /// Frames that made no sense.
    pub malformed: Count,
    /// Parts that came.
    pub parts: Count,
    /// States that came.
    pub states: Count,
    /// Diffs that were told, once for each topic.
    pub diffs: Count,
    /// Watchers that were too slow and had to take a new snapshot.
    pub resyncs: Count,
    /// Lists of contacts that had to go for others.
    pub contacts_evicted: Count,
    /// Ids in all lists of contacts.
    pub contacts: Count,
    /// Topics that are asked for.
    pub topics: Count,
    /// Streams that are open.
    pub links: Count,
    /// Shards without a source.
    pub stale_shards: Count,
}
