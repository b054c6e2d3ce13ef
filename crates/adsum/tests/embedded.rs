//! The embedded default in one process: the store in memory, the local membership, and the feed
//! through memory, put together as the binary does it; with faults of the store, at random.

#![allow(clippy::print_stdout)]

#[path = "cluster/clients.rs"]
mod clients;
#[path = "cluster/gateway.rs"]
mod gateway;

use std::{sync::Arc, time::Duration};

use adsum::feed::{FeedTls, in_memory, serve};
use adsum_cluster::{LocalCluster, Profile};
use adsum_core::{
    membership::{Membership, Role},
    ring::ShardRing,
    store::{Shard, Store},
};
use adsum_dispatcher::{Dispatcher, DispatcherConfig};
use adsum_gateway::feed::{Feed, FeedConfig};
use adsum_reaper::{Reaper, ReaperConfig};
use adsum_store::{MemoryStore, Options};
use anyhow::{Context, Result};
use clients::{Delays, Watcher, all_ready, converged};
use futures::{StreamExt, TryStreamExt};
use gateway::{Gateway, Ledger, comer, stayer, work};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const SHARDS: Shard = 8;
const TOPICS: [&str; 6] = [
    "tenant",
    "room:lobby",
    "room:room-1",
    "room:room-4",
    "user:stay-1",
    "user:come-1",
];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A whole service in this process.
struct Service {
    store: Arc<MemoryStore>,
    dispatcher: Dispatcher,
    feed: Feed,
    cancel: CancellationToken,
    tracker: TaskTracker,
}

impl Service {
    fn start() -> Result<Self> {
        let options = Options {
            shards: SHARDS,
            holder_ms: 1000,
            settle_ms: 1500,
            alive_gap_ms: 400,
            tomb_ms: 2000,
            max_deadline_ms: 4000,
            log_len: 200,
            ..Options::default()
        };
        // Handles of one store are callers of their own, as nodes are.
        let store = Arc::new(MemoryStore::embedded(options).with_history(30));
        let roles = vec![Role::Gateway, Role::Dispatcher, Role::Reaper];
        let profile = Profile {
            name: "one".to_owned(),
            roles,
            ..Profile::default()
        };
        let membership: Arc<dyn Membership> = Arc::new(LocalCluster::new().join(profile)?);
        let (cancel, tracker) = (CancellationToken::new(), TaskTracker::new());
        let (incoming, connector) = in_memory();
        let settings = DispatcherConfig {
            poll: ms(50),
            ..DispatcherConfig::default()
        };
        let dispatcher = Dispatcher::start(Arc::new(store.handle()), membership.clone(), settings);
        serve(
            &dispatcher,
            incoming,
            &FeedTls::default(),
            &cancel,
            &tracker,
        )?;
        let settings = FeedConfig {
            silent_after: ms(400),
            stale_after: ms(1200),
            complete_after: ms(100),
            queue_len: 10_000,
            ..FeedConfig::new("adsum", 1, SHARDS)
        };
        let observer = store.handle();
        let feed = Feed::start(
            settings,
            ShardRing::new(SHARDS),
            membership.clone(),
            connector,
            Arc::new(move |shard, epoch| observer.observe(shard, epoch)),
        )?;
        let settings = ReaperConfig {
            shards: SHARDS,
            sweep_interval: ms(50),
            ..ReaperConfig::default()
        };
        let reaper = Reaper::new(Arc::new(store.handle()), membership, settings);
        tracker.spawn(reaper.run(cancel.clone()));
        Ok(Self {
            store,
            dispatcher,
            feed,
            cancel,
            tracker,
        })
    }

    /// In the order of the binary.
    async fn stop(self) {
        self.cancel.cancel();
        self.feed.stop().await;
        self.dispatcher.stop().await;
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn watch(&self) -> Result<Vec<Watcher>> {
        let watch = |topic: &&str| Watcher::start(&self.feed, "one", topic);
        TOPICS.iter().map(watch).collect()
    }
}

fn gateway(service: &Service, name: &str, ledger: &Arc<Ledger>) -> Result<Arc<Gateway>> {
    let store = Arc::new(service.store.handle());
    Ok(Arc::new(Gateway::new(store, name, ledger.clone())?))
}

/// Breaks one shard, and mends what does not mend by itself.
async fn break_something(store: &MemoryStore, random: &mut StdRng) -> &'static str {
    let shard = random.random_range(0..SHARDS);
    match random.random_range(0..5) {
        0 => {
            store.lose_last(shard, random.random_range(1..20));
            "lose the last writes"
        }
        1 => {
            store.flush(shard);
            "flush"
        }
        2 => {
            store.fail_over(shard);
            "fail over"
        }
        3 => {
            store.stall(shard, true);
            sleep(ms(random.random_range(50..700))).await;
            store.stall(shard, false);
            "stall"
        }
        _ => {
            store.drop_pushes(shard, true);
            sleep(ms(random.random_range(50..700))).await;
            store.drop_pushes(shard, false);
            "drop pushes"
        }
    }
}

/// One run: a load, faults meanwhile if wanted, and the truth at the end.
async fn run(seed: u64, faults: bool) -> Result<String> {
    let mut random = StdRng::seed_from_u64(seed);
    let service = Service::start()?;
    let ledger = Arc::new(Ledger::default());
    let gateways = [
        gateway(&service, "gw-1", &ledger)?,
        gateway(&service, "gw-2", &ledger)?,
    ];
    let mut tasks = JoinSet::new();
    for (n, gateway) in (0_u64..).zip(&gateways) {
        gateway.renew_every(ms(150), &mut tasks);
        for person in 0..20 {
            gateway.connect(&stayer(2 * person + n)?).await?;
        }
    }
    let watchers = service.watch()?;
    all_ready(&watchers).await?;
    let mut load = JoinSet::new();
    for (n, gateway) in (0_u64..).zip(&gateways) {
        let stayers = (0..20).map(|p| stayer(2 * p + n)).collect::<Result<_>>()?;
        let comers = (0..20).map(|p| comer(2 * p + n)).collect::<Result<_>>()?;
        let random = StdRng::seed_from_u64(random.random());
        load.spawn(work(gateway.clone(), stayers, comers, 400, ms(5), random));
    }
    let mut broken = Vec::new();
    while faults && !load.is_empty() {
        sleep(ms(random.random_range(50..300))).await;
        broken.push(break_something(&service.store, &mut random).await);
        while let Some(done) = load.try_join_next() {
            done??;
        }
    }
    while let Some(done) = load.join_next().await {
        done??;
    }
    let pause = gateways.iter().map(|g| g.longest_pause()).max();
    let users: Vec<_> = gateways.iter().flat_map(|g| g.users()).collect();
    let people = converged(&*service.store, &users, &watchers, Duration::from_secs(20))
        .await
        .with_context(|| format!("seed {seed} after {broken:?}, no renewal for {pause:?}"))?;
    if let Some(ended) = tasks.try_join_next() {
        ended??;
    }
    let delays = watchers.iter().flat_map(|w| w.delays(&ledger));
    let delays = Delays::new(delays.map(|(_, delay)| delay));
    let told = watchers.iter().map(Watcher::counts);
    let told = told.fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    drop((watchers, tasks));
    service.stop().await;
    Ok(format!(
        "seed {seed}: {} operations, {} faults, {people} people, told {told:?} joins, leaves, \
         updates; {delays}",
        ledger.len(),
        broken.len(),
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reach_watchers_through_memory() -> Result<()> {
    println!("{}", run(0, false).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_random_runs_with_faults_end_with_the_truth() -> Result<()> {
    let first: u64 = match std::env::var("ADSUM_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => 1,
    };
    let runs = futures::stream::iter(first..first + 20).map(|seed| run(seed, true));
    let figures: Vec<_> = runs.buffer_unordered(5).try_collect().await?;
    figures.iter().for_each(|line| println!("{line}"));
    Ok(())
}
