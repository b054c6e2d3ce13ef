//! What only the servers can tell, noted beside what clients did and saw: what every number of
//! every log meant, who swept with which fence, and how large things are that must not grow.

mod logs;
mod sizes;
mod sweeps;

use adsum_store::{Options, RedisConfig, RedisStore};
use anyhow::Result;
use tokio::task::JoinSet;

use crate::{
    record::Record,
    times::Times,
    world::{LOG_LEN, SHARDS, World},
};

pub use sizes::look;
pub use sweeps::{FILTER, Ledger};

/// A witness at work, until it is heard.
#[derive(Debug)]
pub struct Witness {
    begun: u64,
    tasks: JoinSet<()>,
}

/// A store of its own, with the times of all others: whoever calls a script may be the one that
/// begins an epoch.
pub async fn store(
    urls: Vec<String>,
    times: Times,
    shards: u16,
    log_len: u64,
) -> Result<RedisStore> {
    let options = Options {
        shards,
        holder_ms: times.holder(),
        settle_ms: times.ttl(),
        alive_gap_ms: times.ms(10_000),
        tomb_ms: times.ms(60_000),
        max_deadline_ms: times.ms(120_000),
        log_len,
        ..Options::default()
    };
    let config = RedisConfig {
        options,
        ..RedisConfig::new(urls)
    };
    Ok(RedisStore::connect(config).await?)
}

/// Reads the logs of all shards, which are to be no longer than this, until dropped.
pub fn logs(store: &RedisStore, shards: u16, limit: u64, record: &Record) -> JoinSet<()> {
    let read = |shard| logs::read(store.handle(), shard, limit, record.clone());
    (0..shards).map(read).collect()
}

impl Witness {
    /// Begins to look.
    pub async fn start(world: &std::sync::Arc<World>, record: &Record) -> Result<Self> {
        let store = world.store().await?;
        let mut tasks = logs(&store, SHARDS, LOG_LEN, record);
        tasks.spawn(sizes::measure(world.clone(), record.clone()));
        Ok(Self {
            begun: record.now(),
            tasks,
        })
    }

    /// Says what is left to say, after a round of so many sessions.
    pub async fn end(mut self, world: &World, record: &Record, sessions: u64) -> Result<()> {
        self.tasks.shutdown().await;
        sizes::left_over(world, record, sessions).await?;
        let reapers = world.reapers.iter();
        let reapers = reapers.map(|part| (part.node.name(), part.node.process()));
        world.ledger.tell(reapers, record, self.begun)
    }
}
