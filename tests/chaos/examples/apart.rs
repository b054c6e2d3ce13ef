//! Measures whether a shard that is away holds up others: for how long calls to the shards of
//! other masters wait while one master and its replica stand still. It should be nothing, and is
//! seconds (docs/reliability): it ends with an error until that is mended, and then becomes a test.

#![allow(clippy::print_stdout)]

use std::{sync::Arc, time::Duration};

use adsum_core::store::Store;
use adsum_store::{Keys, Options, RedisConfig, RedisStore};
use adsum_tests::{ClusterOptions, RedisCluster};
use anyhow::{Context, Result, ensure};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const SHARDS: u16 = 64;
const AWAY: Duration = Duration::from_secs(12);

/// Asks one shard again and again; answers the longest time between two answers.
async fn ask(store: Arc<RedisStore>, shard: u16, until: Instant) -> (u16, Duration) {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while Instant::now() < until {
        if store.log(shard, 0, 1).await.is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        sleep(Duration::from_millis(100)).await;
    }
    (shard, longest.max(last.elapsed()))
}

#[tokio::main]
async fn main() -> Result<()> {
    for proxied in [false, true] {
        let options = ClusterOptions {
            proxied,
            ..ClusterOptions::default()
        };
        let redis = RedisCluster::start_with(options).await?;
        let config = RedisConfig {
            options: Options {
                shards: SHARDS,
                ..Options::default()
            },
            ..RedisConfig::new(redis.urls())
        };
        let store = Arc::new(RedisStore::connect(config).await?);
        let slots: Vec<_> = Keys::of_all("adsum", 1, SHARDS)
            .into_iter()
            .map(|k| k.slot)
            .collect();
        let away = redis.master_of(slots[0]).await?;
        let replicas = redis.replicas_of(away).await?;
        let until = Instant::now() + AWAY + Duration::from_secs(2);
        let mut asked = JoinSet::new();
        for (shard, slot) in slots.iter().enumerate() {
            let elsewhere = redis.master_of(*slot).await?.id() != away.id();
            // Those of the lost master are asked, too, as gateways do; they need not answer.
            let store = store.clone();
            let shard = u16::try_from(shard)?;
            asked.spawn(async move { (elsewhere, ask(store, shard, until).await) });
        }
        sleep(Duration::from_secs(1)).await;
        for node in replicas.iter().copied().chain([away]) {
            node.process().pause()?;
        }
        let mut longest = Vec::new();
        while let Some(done) = asked.join_next().await {
            let (elsewhere, (_, took)) = done?;
            longest.extend(elsewhere.then_some(took));
        }
        for node in replicas.iter().copied().chain([away]) {
            node.process().resume()?;
        }
        longest.sort_unstable();
        let most = longest.last().copied().context("nobody is elsewhere")?;
        println!(
            "proxied {proxied}: {} shards elsewhere, half waited at most {:?}, the worst {most:?}",
            longest.len(),
            longest[longest.len() / 2]
        );
        ensure!(most < Duration::from_secs(2), "others waited for {most:?}");
    }
    Ok(())
}
