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
    world::{LOG_LEN, SHARDS, World},
};

pub(crate) use sweeps::FILTER;
pub use sweeps::Ledger;

/// A witness at work, until it is heard.
#[derive(Debug)]
pub struct Witness {
    begun: u64,
    tasks: JoinSet<()>,
}

/// A store of its own, with the times of all others: whoever calls a script may be the one that
/// begins an epoch.
pub async fn store(world: &World) -> Result<RedisStore> {
    let times = world.times;
    let options = Options {
        shards: SHARDS,
        holder_ms: times.holder(),
        settle_ms: times.ttl(),
        alive_gap_ms: times.ms(10_000),
        tomb_ms: times.ms(60_000),
        max_deadline_ms: times.ms(120_000),
        log_len: LOG_LEN,
        ..Options::default()
    };
    let config = RedisConfig {
        options,
        ..RedisConfig::new(world.redis.urls())
    };
    Ok(RedisStore::connect(config).await?)
}

impl Witness {
    /// Begins to look.
    pub async fn start(world: &std::sync::Arc<World>, record: &Record) -> Result<Self> {
        let store = store(world).await?;
        let mut tasks = JoinSet::new();
        for shard in 0..SHARDS {
            tasks.spawn(logs::read(store.handle(), shard, record.clone()));
        }
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
        world.ledger.tell(&world.reapers, record, self.begun)
    }
}
