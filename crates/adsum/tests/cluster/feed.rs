//! The feed while dispatchers die: nothing is lost, nothing told twice, and the gap is short.

use std::{sync::Arc, time::Duration};

use adsum_cluster::{EtcdConfig, EtcdMembership, Profile};
use adsum_core::{
    SessionKey,
    membership::{Membership, Role},
    ring::ShardRing,
    store::Store,
};
use adsum_gateway::feed::{Feed, FeedConfig, tcp};
use adsum_tests::{Machine, Node, NodeOptions, eventually};
use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    clients::{Delays, Watcher, all_ready, converged},
    gateway::{Gateway, Ledger, comer, stayer, work},
    world::{HOLDER, LEASE, SHARDS, World, settled},
};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A gateway's side of the feed in this process, a member of the cluster.
pub(crate) struct Client {
    pub(crate) feed: Feed,
    membership: Arc<EtcdMembership>,
}

impl Client {
    pub(crate) async fn join(
        world: &World,
        name: &str,
        store: &Arc<dyn Store>,
        silent_after: Duration,
    ) -> Result<Self> {
        let etcd = EtcdConfig {
            lease_ttl: LEASE,
            ..EtcdConfig::new(world.etcd.endpoints(), "adsum")
        };
        let profile = Profile {
            name: name.to_owned(),
            roles: vec![Role::Gateway],
            ..Profile::default()
        };
        let membership = Arc::new(EtcdMembership::connect(etcd, profile).await?);
        let config = FeedConfig {
            silent_after,
            stale_after: 3 * silent_after,
            complete_after: ms(100),
            // A watcher that is behind must be told all the same: every diff is checked.
            queue_len: 100_000,
            ..FeedConfig::new("adsum", 1, SHARDS)
        };
        let observer = store.clone();
        let feed = Feed::start(
            config,
            ShardRing::new(SHARDS),
            membership.clone(),
            tcp(None),
            Arc::new(move |shard, epoch| observer.observe(shard, epoch)),
        )?;
        Ok(Self { feed, membership })
    }

    pub(crate) async fn leave(self) -> Result<()> {
        self.feed.stop().await;
        self.membership.leave().await.context("leave the cluster")
    }
}

/// Dispatchers with reapers, all of them warm.
pub(crate) async fn dispatchers(
    world: &World,
    count: usize,
    settings: &[(&str, u64)],
) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for n in 1..=count {
        let options = world.options(&format!("d{n}"), "dispatcher,reaper");
        let with = |options: NodeOptions, (key, value): &(&str, u64)| options.with(key, value);
        let options = settings.iter().fold(options, with);
        nodes.push(Node::start(world.dir.path(), &options).await?);
    }
    Ok(nodes)
}

/// Waits until each of these has all the views that the ring gives it.
pub(crate) async fn warm(nodes: &[Node]) -> Result<()> {
    eventually("views are warm", Duration::from_secs(30), || async {
        let mut views = 0;
        for node in nodes {
            let says = node.readyz().await?;
            let shards = &says["dispatcher"]["shards"];
            ensure!(
                says["dispatcher"]["current"] == *shards,
                "{} has {says}",
                node.name()
            );
            views += shards.as_u64().unwrap_or_default();
        }
        let wanted = u64::from(SHARDS) * nodes.len().min(2) as u64;
        ensure!(views >= wanted, "{views} views of {wanted}");
        Ok(())
    })
    .await
}

/// Gateways with people, under a steady load.
pub(crate) struct Crowd {
    pub(crate) gateways: Vec<Arc<Gateway>>,
    pub(crate) ledger: Arc<Ledger>,
    renewals: JoinSet<Result<()>>,
    people: u64,
}

impl Crowd {
    /// So many stay, and as many come and go, at each of two gateways.
    pub(crate) async fn gather(store: &Arc<dyn Store>, people: u64) -> Result<Self> {
        let ledger = Arc::new(Ledger::default());
        let mut renewals = JoinSet::new();
        let mut gateways = Vec::new();
        for name in ["gw-1", "gw-2"] {
            let gateway = Arc::new(Gateway::new(store.clone(), name, ledger.clone())?);
            gateway.renew_every(HOLDER / 6, &mut renewals);
            gateways.push(gateway);
        }
        let crowd = Self {
            gateways,
            ledger,
            renewals,
            people,
        };
        for (n, gateway) in (0..).zip(&crowd.gateways) {
            for key in crowd.keys(n, stayer)? {
                gateway.connect(&key).await?;
            }
        }
        Ok(crowd)
    }

    fn keys(&self, n: u64, key: fn(u64) -> Result<SessionKey>) -> Result<Vec<SessionKey>> {
        (0..self.people).map(|p| key(2 * p + n)).collect()
    }

    /// Begins to make `changes`, so many a second.
    pub(crate) fn load(
        &self,
        changes: usize,
        rate: u32,
        random: &mut StdRng,
    ) -> Result<JoinSet<Result<()>>> {
        const WORKERS: u32 = 4;
        let mut load = JoinSet::new();
        let all = self.gateways.len() * WORKERS as usize;
        for (n, gateway) in (0..).zip(&self.gateways) {
            let (stayers, comers) = (self.keys(n, stayer)?, self.keys(n, comer)?);
            for worker in 0..WORKERS as usize {
                let share = |keys: &[SessionKey]| {
                    let own = keys.iter().skip(worker).step_by(WORKERS as usize);
                    own.cloned().collect()
                };
                let pace = Duration::from_secs(1) * u32::try_from(all)? / rate;
                let random = StdRng::seed_from_u64(random.random());
                let (stay, come) = (share(&stayers), share(&comers));
                let work = work(gateway.clone(), stay, come, changes / all, pace, random);
                load.spawn(work);
            }
        }
        Ok(load)
    }

    /// How long the gateways went without a renewal that was answered: past the holders' deadline
    /// and a settling they lose their people by right.
    pub(crate) fn pauses(&self) -> String {
        let longest = self.gateways.iter().map(|g| g.longest_pause()).max();
        format!("the longest pause between renewals: {longest:.1?} (of a shard)")
    }

    pub(crate) async fn done(mut load: JoinSet<Result<()>>) -> Result<()> {
        while let Some(done) = load.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Waits until all watchers have the truth, and the truth is just these people.
    pub(crate) async fn agree(&mut self, store: &dyn Store, watchers: &[Watcher]) -> Result<usize> {
        let users: Vec<_> = self.gateways.iter().flat_map(|g| g.users()).collect();
        let people = converged(store, &users, watchers, Duration::from_secs(20)).await?;
        if let Some(ended) = self.renewals.try_join_next() {
            ended??;
        }
        Ok(people)
    }
}

/// What four clients watch.
const WATCHED: [&[&str]; 4] = [
    &["tenant", "room:lobby", "user:stay-0"],
    &["tenant", "room:room-1", "room:room-2", "user:come-3"],
    &["room:lobby", "room:room-0", "room:room-1", "user:stay-0"],
    &["room:room-3", "room:room-4", "user:come-3", "user:come-8"],
];

pub(crate) fn seed() -> Result<u64> {
    match std::env::var("ADSUM_SEED") {
        Ok(seed) => Ok(seed.parse()?),
        Err(_) => Ok(rand::random_range(0..1_000_000)),
    }
}

/// Nobody waits longer for what was committed when dispatchers were killed, besides what the host
/// took from the machine meanwhile.
const GAP: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rosters_survive_killed_dispatchers() -> Result<()> {
    let seed = seed()?;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::new("killed").await?;
    // The feed's times as they are by default: with ten times as many polls and marks the gap
    // would tell of the machine, not of the service.
    let times = [("TIMES__POLL_MS", 500), ("TIMES__SILENT_MS", 2000)];
    let nodes = dispatchers(&world, 3, &times).await?;
    let store = world.store().await?;
    settled(&*store).await?;
    let mut crowd = Crowd::gather(&store, 100).await?;
    let (mut clients, mut watchers) = (Vec::new(), Vec::new());
    for (n, topics) in (1..).zip(WATCHED) {
        let name = format!("client-{n}");
        let client = Client::join(&world, &name, &store, ms(2000)).await?;
        for topic in topics {
            watchers.push(Watcher::start(&client.feed, &name, topic)?);
        }
        clients.push(client);
    }
    all_ready(&watchers).await?;
    warm(&nodes).await?;

    let (start, changes) = (Instant::now(), 20_000);
    let load = crowd.load(changes, 500, &mut random)?;
    let loaded = tokio::spawn(Crowd::done(load));
    let (mut kills, mut machine) = (Vec::new(), Vec::new());
    while !loaded.is_finished() {
        machine.push(Machine::now());
        sleep(ms(random.random_range(1500..4000))).await;
        // Mostly one; at times two, whose shards then have nobody warm.
        let many = 1 + usize::from(random.random_bool(0.2));
        let mut victims: Vec<_> = (0..nodes.len()).collect();
        victims.shuffle(&mut random);
        kills.push((Instant::now(), many));
        for victim in &victims[..many] {
            nodes[*victim].process().kill()?;
        }
        sleep(ms(random.random_range(0..2500))).await;
        for victim in &victims[..many] {
            nodes[*victim].process().restart().await?;
            nodes[*victim].wait_up().await?;
        }
    }
    loaded.await??;
    let took = start.elapsed();
    let people = crowd.agree(&*store, &watchers).await?;
    machine.push(Machine::now());

    let all: Vec<_> = watchers
        .iter()
        .flat_map(|w| w.delays(&crowd.ledger))
        .collect();
    let (mut longest, mut late) = ([Duration::ZERO; 2], Vec::new());
    for (n, (at, many)) in kills.iter().enumerate() {
        let around = *at - ms(500)..*at + ms(1000);
        let near = all.iter().filter(|(commit, _)| around.contains(commit));
        let gap = near.map(|(_, delay)| *delay).max().unwrap_or_default();
        // From before this one until after the next: what the host took is not the service's.
        let after = machine[machine.len().min(n + 3) - 1];
        let stolen = after.stolen_since(&machine[n]);
        println!(
            "{:5.1} s: {many} killed, longest gap {gap:.1?}, {stolen:.1?} stolen",
            (*at - start).as_secs_f64()
        );
        longest[many - 1] = longest[many - 1].max(gap);
        if gap >= GAP + stolen {
            late.push(gap);
        }
    }
    let moves: u64 = clients.iter().map(|c| c.feed.metrics().moves.get()).sum();
    println!(
        "{} operations in {took:.1?}, {} kills, {people} people, {moves} moves of a shard; {}",
        crowd.ledger.len(),
        kills.len(),
        Delays::new(all.iter().map(|(_, delay)| *delay)),
    );
    println!(
        "longest gap in delivery: {:.1?} after one kill, {:.1?} after two at once",
        longest[0], longest[1]
    );
    ensure!(late.is_empty(), "gaps of {late:?}");
    drop(watchers);
    for client in clients {
        client.leave().await?;
    }
    Ok(())
}
