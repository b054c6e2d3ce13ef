//! What a dispatcher is configured with.

use std::time::Duration;

/// Times and bounds.
#[derive(Debug, Clone)]
pub struct DispatcherConfig {
    /// The cluster's name; a gateway of another one is refused.
    pub cluster: String,
    /// The layout of keys; a gateway of another one is refused.
    pub layout: u32,
    /// How often a shard's position is asked for: what a lost push costs at most.
    pub poll: Duration,
    /// How many dispatchers keep a view of a shard, asked for or not.
    pub replicas: usize,
    /// How long a view that nobody wants is kept.
    pub unload_after: Duration,
    /// Touched topics that a view remembers for gateways that come back.
    pub history: usize,
    /// States waiting for one gateway; past that they are dropped and its topics sent whole.
    pub queue: usize,
    /// Lists of contacts kept.
    pub contacts: usize,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            cluster: "adsum".to_owned(),
            layout: 1,
            poll: Duration::from_millis(500),
            replicas: 2,
            unload_after: Duration::from_secs(60),
            history: 20_000,
            queue: 50_000,
            contacts: 10_000,
        }
    }
}
