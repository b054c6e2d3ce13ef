//! Reads every shard's log as it grows, beside everybody else: which number meant what is a
//! matter of the record, and a number that means two things is a violation.

use std::time::Duration;

use adsum_core::store::{Shard, Store};
use adsum_store::{Options, RedisConfig, RedisStore};
use adsum_tests::history::Event;
use anyhow::Result;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    record::Record,
    world::{SHARDS, World},
};

/// Between two looks at a log.
const LOOK: Duration = Duration::from_millis(400);

/// Entries read at once.
const PAGE: usize = 1_000;

/// Reads until the tasks are dropped.
pub async fn start(world: &World, record: &Record) -> Result<JoinSet<()>> {
    // Whoever calls a script may be the one that begins an epoch: with the times of all others.
    let times = world.times;
    let options = Options {
        shards: SHARDS,
        holder_ms: times.holder(),
        settle_ms: times.ttl(),
        alive_gap_ms: times.ms(10_000),
        tomb_ms: times.ms(60_000),
        max_deadline_ms: times.ms(120_000),
        ..Options::default()
    };
    let config = RedisConfig {
        options,
        ..RedisConfig::new(world.redis.urls())
    };
    let store = RedisStore::connect(config).await?;
    let mut tasks = JoinSet::new();
    for shard in 0..SHARDS {
        tasks.spawn(read(store.handle(), shard, record.clone()));
    }
    Ok(tasks)
}

/// From the beginning again after a new epoch, since a failover may rewrite a log.
async fn read(store: RedisStore, shard: Shard, record: Record) {
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut after, mut epoch) = (None, 0);
    loop {
        tick.tick().await;
        let Ok(page) = store.log(shard, after.unwrap_or(0), PAGE).await else {
            continue;
        };
        // What was there before is not of this round.
        let known = after.is_none();
        for change in page.entries {
            after = Some(change.version.seq);
            if !known {
                record.note(Event::Committed {
                    shard,
                    v: change.version,
                    what: format!("{:?}", change.event),
                });
            }
        }
        let Some(position) = page.position else {
            continue;
        };
        after.get_or_insert(position.seq);
        if std::mem::replace(&mut epoch, position.epoch) != position.epoch && !known {
            after = Some(0);
        }
    }
}
