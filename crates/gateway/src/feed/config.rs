//! What the feed can be told: times and bounds, with defaults that fit the dispatchers'.

use std::time::Duration;

use adsum_core::store::Shard;

/// How a gateway reads the feed.
#[derive(Debug, Clone)]
pub struct FeedConfig {
    /// The cluster's name: both sides must agree on it.
    pub cluster: String,
    /// The layout of the store: both sides must agree on it.
    pub layout: u32,
    /// The number of shards: both sides must agree on it.
    pub shards: Shard,
    /// A dispatcher that sent no mark of a shard for this long is left for the next one.
    pub silent_after: Duration,
    /// A shard without a mark for this long is stale, however many are still to be tried.
    pub stale_after: Duration,
    /// From the first packet to the dispatcher's welcome.
    pub connect_timeout: Duration,
    /// The shortest time to avoid a dispatcher that failed; doubles with every failure.
    pub retry_min: Duration,
    /// The longest time to avoid a dispatcher that failed.
    pub retry_max: Duration,
    /// How long to stay with another dispatcher before the preferred one is tried again.
    pub return_after: Duration,
    /// A connection that serves no shard is kept for this long.
    pub idle_after: Duration,
    /// A snapshot waits this long for the parts of all shards.
    pub complete_after: Duration,
    /// A topic is kept this long after its last watcher went.
    pub linger: Duration,
    /// How many events a watcher may be behind before it has to take a new snapshot.
    pub queue_len: usize,
    /// How long rosters remember the versions of the absent.
    pub remember_absent: Duration,
    /// How many ids all lists of contacts together may hold.
    pub contacts_max: usize,
    /// The largest message a dispatcher may send.
    pub message_bytes: usize,
}

/// Times that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("feed: {0}")]
pub struct BadConfig(&'static str);

impl FeedConfig {
    /// The defaults, for a cluster.
    #[must_use]
    pub fn new(cluster: impl Into<String>, layout: u32, shards: Shard) -> Self {
        Self {
            cluster: cluster.into(),
            layout,
            shards,
            silent_after: Duration::from_secs(2),
            stale_after: Duration::from_secs(6),
            connect_timeout: Duration::from_secs(1),
            retry_min: Duration::from_millis(250),
            retry_max: Duration::from_secs(5),
            return_after: Duration::from_secs(10),
            idle_after: Duration::from_secs(10),
            complete_after: Duration::from_secs(1),
            linger: Duration::from_secs(5),
            queue_len: 1024,
            remember_absent: Duration::from_secs(60),
            contacts_max: 2_000_000,
            message_bytes: 64 << 20,
        }
    }

    /// Checks that the values make sense together.
    ///
    /// # Errors
    /// With a sentence that says which do not.
    pub fn check(&self) -> Result<(), BadConfig> {
        let problem = if self.shards == 0 {
            "there must be at least one shard"
        } else if self.silent_after.is_zero() {
            "silent_after must be above zero: several times what dispatchers wait between marks"
        } else if self.stale_after < self.silent_after {
            "stale_after must not be below silent_after: one dispatcher's silence is no staleness"
        } else if self.retry_max < self.retry_min || self.retry_min.is_zero() {
            "retry_min must be above zero and not above retry_max"
        } else if self.queue_len == 0 {
            "queue_len must be at least 1"
        } else {
            return Ok(());
        };
        Err(BadConfig(problem))
    }
}
