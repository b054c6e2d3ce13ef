//! The feed while dispatchers hang or go deaf, logs are trimmed, clients stop reading, and Redis
//! itself is lost.

use std::{collections::HashMap, sync::Arc, time::Duration};

use adsum_core::{Item, Pending, Roster, SessionKey, Topic, UserId, store::Store};
use adsum_proto::{
    feed::{
        self, Add, DispatcherFrame, GatewayFrame, Hello, Take, TopicRef, dispatcher_frame,
        feed_client::FeedClient, frame::Body, gateway_frame, topic_ref,
    },
    item_from, state_from, version_from,
};
use adsum_store::Options;
use adsum_tests::Node;
use anyhow::{Context, Result, bail, ensure};
use rand::{SeedableRng, rngs::StdRng};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tonic::{Streaming, transport::Endpoint};

use crate::{
    clients::{Delays, Truth, Watcher, all_ready, converged},
    feed::{Client, Crowd, dispatchers, ms, seed, warm},
    gateway::{Gateway, Ledger, TENANT, comer, stayer},
    world::{HOLDER, SHARDS, World, settled},
};

/// What every client here watches.
const TOPICS: [&str; 4] = ["tenant", "room:lobby", "room:room-1", "user:stay-0"];
/// Ten times faster than the default, but with fewer polls: three to a silence are enough.
pub(crate) const POLL: (&str, u64) = ("TIMES__POLL_MS", 130);
const SILENT: Duration = Duration::from_millis(400);

/// Two clients that watch, of a crowd that is there.
pub(crate) struct Stage {
    world: Arc<World>,
    pub(crate) nodes: Vec<Node>,
    store: Arc<dyn Store>,
    crowd: Crowd,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    random: StdRng,
}

impl Stage {
    async fn new(name: &str, count: usize, settings: &[(&str, u64)]) -> Result<Self> {
        let world = World::new(name).await?;
        let nodes = dispatchers(&world, count, settings).await?;
        Self::over(world, nodes).await
    }

    pub(crate) async fn over(world: World, nodes: Vec<Node>) -> Result<Self> {
        let store = world.store().await?;
        Self::with(world, nodes, store).await
    }

    async fn with(world: World, nodes: Vec<Node>, store: Arc<dyn Store>) -> Result<Self> {
        let seed = seed()?;
        println!("seed {seed}");
        settled(&*store).await?;
        let crowd = Crowd::gather(&store, 50).await?;
        let (mut clients, mut watchers) = (Vec::new(), Vec::new());
        for name in ["client-1", "client-2"] {
            let client = Client::join(&world, name, &store, SILENT).await?;
            for topic in TOPICS {
                watchers.push(Watcher::start(&client.feed, name, topic)?);
            }
            clients.push(client);
        }
        all_ready(&watchers).await?;
        warm(&nodes).await?;
        Ok(Self {
            world: Arc::new(world),
            nodes,
            store,
            crowd,
            clients,
            watchers,
            random: StdRng::seed_from_u64(seed),
        })
    }

    pub(crate) fn load(&mut self, changes: usize, rate: u32) -> Result<JoinSet<Result<()>>> {
        self.crowd.load(changes, rate, &mut self.random)
    }

    pub(crate) async fn agree(&mut self) -> Result<usize> {
        self.crowd.agree(&*self.store, &self.watchers).await
    }

    pub(crate) fn moves(&self) -> u64 {
        let moves = |c: &Client| c.feed.metrics().moves.get();
        self.clients.iter().map(moves).sum()
    }

    /// How long what was committed from then on took.
    pub(crate) fn delays_between(&self, from: Instant, to: Instant) -> Delays {
        let all = self
            .watchers
            .iter()
            .flat_map(|w| w.delays(&self.crowd.ledger));
        let within = all.filter(|(at, _)| (from..to).contains(at));
        Delays::new(within.map(|(_, delay)| delay))
    }

    pub(crate) async fn end(self) -> Result<()> {
        drop(self.watchers);
        for client in self.clients {
            client.leave().await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_dispatcher_is_left() -> Result<()> {
    let mut stage = Stage::new("hung", 3, &[POLL]).await?;
    let load = stage.load(2400, 200)?;
    let loaded = tokio::spawn(Crowd::done(load));
    sleep(ms(1500)).await;
    let (before, hung_at) = (stage.moves(), Instant::now());
    stage.nodes[0].process().pause()?;
    // Past its lease: it is no member any more when it wakes up.
    sleep(ms(4000)).await;
    let (moved, woke_at) = (stage.moves() - before, Instant::now());
    stage.nodes[0].process().resume()?;
    loaded.await??;
    let people = stage.agree().await?;
    let hung = stage.delays_between(hung_at - ms(500), woke_at);
    println!("hung for 4 s: {moved} moves of a shard, {people} people; {hung}");
    println!(
        "awake again: {}",
        stage.delays_between(woke_at, Instant::now())
    );
    ensure!(moved > 0, "nobody left");
    ensure!(
        hung.longest() < Duration::from_secs(3),
        "a gap of {:?}",
        hung.longest()
    );
    stage.end().await
}

/// Sessions of one shard, so many.
fn of_shard(
    store: &dyn Store,
    shard: u16,
    key: fn(u64) -> Result<SessionKey>,
    count: usize,
) -> Result<Vec<SessionKey>> {
    let mut found = Vec::new();
    for n in 1000.. {
        let key = key(n)?;
        if store.shard_of(&key.owner) == shard {
            found.push(key);
        }
        if found.len() == count {
            break;
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_log_makes_a_reload_and_only_the_difference() -> Result<()> {
    const LOG: u64 = 100;
    let world = World::new("trimmed").await?;
    let nodes = dispatchers(&world, 1, &[POLL, ("BOUNDS__LOG_LEN", LOG)]).await?;
    let store = world.store_with(|o| o.log_len = LOG).await?;
    settled(&*store).await?;
    let shard = 7;
    let ledger = Arc::new(Ledger::default());
    let gateway = Arc::new(Gateway::new(store.clone(), "gw-1", ledger.clone())?);
    let mut renewals = JoinSet::new();
    gateway.renew_every(HOLDER / 6, &mut renewals);
    let stayers = of_shard(&*store, shard, stayer, 10)?;
    let comers = of_shard(&*store, shard, comer, 10)?;
    let (leaving, coming) = comers.split_at(5);
    for key in stayers.iter().chain(leaving) {
        gateway.connect(key).await?;
    }
    let client = Client::join(&world, "client-1", &store, SILENT).await?;
    let watchers = ["tenant", "room:lobby"].map(|t| Watcher::start(&client.feed, "client-1", t));
    let watchers = watchers.into_iter().collect::<Result<Vec<_>>>()?;
    all_ready(&watchers).await?;
    converged(&*store, &gateway.users(), &watchers, ms(10_000)).await?;

    let reloads = || {
        let log = nodes[0].process().log_tail(100_000);
        log.lines().filter(|line| line.contains("reloaded")).count()
    };
    let reloaded = reloads();
    nodes[0].process().pause()?;
    let before = store.log(shard, 0, 0).await?.position.context("not born")?;
    for _ in 0..30 {
        for key in &stayers {
            gateway.change(key).await?;
        }
    }
    for (gone, new) in leaving.iter().zip(coming) {
        gateway.leave(gone).await?;
        gateway.connect(new).await?;
    }
    let after = store.log(shard, 0, 0).await?.position.context("not born")?;
    ensure!(after.first > before.seq + 1, "the log was not trimmed");
    nodes[0].process().resume()?;
    converged(&*store, &gateway.users(), &watchers, ms(10_000)).await?;

    let reloaded = reloads() - reloaded;
    println!(
        "{} changes under a log of {LOG}: {reloaded} reloads, told {:?} joins, leaves, updates",
        after.seq - before.seq,
        watchers.iter().map(Watcher::counts).collect::<Vec<_>>(),
    );
    ensure!(reloaded > 0, "it did not reload");
    for watcher in &watchers {
        let (joins, leaves, _) = watcher.counts();
        ensure!(
            (joins, leaves) == (5, 5),
            "told {joins} joins, {leaves} leaves"
        );
    }
    drop(watchers);
    client.leave().await
}

/// A client of the feed that reads only when it wants to.
struct Raw {
    frames: Streaming<DispatcherFrame>,
    roster: Roster,
    /// Nothing is sent on it any more, but it must stay open.
    _orders: tokio::sync::mpsc::Sender<GatewayFrame>,
}

impl Raw {
    async fn attach(node: &Node) -> Result<Self> {
        let topic = TopicRef {
            tenant: TENANT.to_owned(),
            topic: Some(topic_ref::Topic::All(true)),
        };
        let hello = Hello {
            protocol: feed::PROTOCOL,
            node: "raw".to_owned(),
            cluster: "adsum".to_owned(),
            layout: 1,
            shards: SHARDS.into(),
        };
        let (orders, inbox) = tokio::sync::mpsc::channel(100);
        let send = async |frame| {
            let frame = GatewayFrame { frame: Some(frame) };
            orders.send(frame).await.context("nobody reads the orders")
        };
        send(gateway_frame::Frame::Hello(hello)).await?;
        for shard in 0..SHARDS {
            let take = Take {
                shard: shard.into(),
                ..Take::default()
            };
            send(gateway_frame::Frame::Take(take)).await?;
        }
        let topics = vec![topic];
        send(gateway_frame::Frame::Add(Add { topics })).await?;
        // A small window: what waits shall wait at the dispatcher, not in the network. That of the
        // connection is larger, as a gateway's is: the library counts small frames against it.
        let endpoint = Endpoint::from_shared(format!("http://{}", node.feed()))?
            .initial_stream_window_size(1 << 16)
            .initial_connection_window_size(1 << 19);
        let mut client = FeedClient::new(endpoint.connect().await?);
        let requests = tokio_stream::wrappers::ReceiverStream::new(inbox);
        let frames = client.attach(requests).await?.into_inner();
        Ok(Self {
            frames,
            roster: Roster::new(60_000),
            _orders: orders,
        })
    }

    /// Reads one message into the roster; answers how many states and parts were in it.
    async fn read(&mut self) -> Result<(usize, usize)> {
        let message = timeout(Duration::from_secs(10), self.frames.message()).await;
        let message = message.context("silence")??.context("the stream ended")?;
        let batch = match message.frame {
            Some(dispatcher_frame::Frame::Batch(batch)) => batch,
            Some(dispatcher_frame::Frame::Welcome(_)) => return Ok((0, 0)),
            None => bail!("an empty frame"),
        };
        let (mut pending, mut states, mut parts) = (Pending::default(), 0, 0);
        for frame in batch.frames {
            let (shard, epoch) = (u16::try_from(frame.shard)?, frame.epoch);
            match frame.body {
                Some(Body::States(list)) => {
                    for state in list.states {
                        states += 1;
                        let state = state_from(state)?;
                        let (presence, version) = (state.presence, state.version);
                        self.roster
                            .take(shard, &state.user, presence, version, 0, &mut pending);
                    }
                }
                Some(Body::Part(part)) => {
                    parts += 1;
                    let at = adsum_core::Version::new(epoch, frame.seq);
                    let mut members = Vec::new();
                    for member in part.members {
                        let version = version_from(&member.version.context("no version")?);
                        members.push((item_from(member.item.context("no item")?)?, version));
                    }
                    self.roster
                        .take_part(shard, members, at, frame.settling, 0, &mut pending);
                }
                Some(Body::Mark(_) | Body::Contacts(_) | Body::Check(_)) => {}
                None => bail!("a frame without a body"),
            }
        }
        Ok((states, parts))
    }

    fn equals(&self, truth: &HashMap<UserId, Arc<Item>>) -> bool {
        let same = |item: &Arc<Item>| truth.get(&item.user).is_some_and(|t| t.looks_like(item));
        self.roster.len() == truth.len() && self.roster.members().all(same)
    }
}

/// What a process has in memory, in KB.
fn resident(node: &Node) -> Result<u64> {
    let pid = node.process().pid().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.and_then(|l| l.split_whitespace().next());
    Ok(number.context("no VmRSS")?.parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_costs_bounded_memory() -> Result<()> {
    const CHANGES: usize = 30_000;
    let settings = [
        ("TIMES__POLL_MS", 500),
        ("TIMES__SILENT_MS", 2000),
        ("BOUNDS__FEED_QUEUE", 5000),
    ];
    let world = World::new("slow").await?;
    let nodes = dispatchers(&world, 1, &settings).await?;
    let store = world.store().await?;
    settled(&*store).await?;
    let mut crowd = Crowd::gather(&store, 100).await?;
    let client = Client::join(&world, "client-1", &store, ms(2000)).await?;
    let watchers = ["tenant", "room:lobby"].map(|t| Watcher::start(&client.feed, "client-1", t));
    let watchers = watchers.into_iter().collect::<Result<Vec<_>>>()?;
    all_ready(&watchers).await?;
    let mut raw = Raw::attach(&nodes[0]).await?;
    let mut parts = 0;
    while parts < usize::from(SHARDS) {
        parts += raw.read().await?.1;
    }
    // The same load once with everybody reading, so that views, logs and allocators are grown.
    let mut random = StdRng::seed_from_u64(seed()?);
    let grown = tokio::spawn(Crowd::done(crowd.load(5000, 1000, &mut random)?));
    while !grown.is_finished() {
        raw.read().await?;
    }
    grown.await??;
    let before = resident(&nodes[0])?;
    let (mut most, start) = (before, Instant::now());
    let loaded = tokio::spawn(Crowd::done(crowd.load(CHANGES, 700, &mut random)?));
    while !loaded.is_finished() {
        most = most.max(resident(&nodes[0])?);
        sleep(ms(100)).await;
    }
    loaded.await??;
    let grown = most.saturating_sub(before);
    let people = crowd.agree(&*store, &watchers).await?;
    let others = watchers.iter().flat_map(|w| w.delays(&crowd.ledger));
    let others = Delays::new(others.filter(|(at, _)| *at >= start).map(|(_, d)| d));

    let truth = Truth::load(&*store).await?.of(&Topic::Tenant);
    let (resumed, mut states, mut parts) = (Instant::now(), 0, 0);
    // Not only right: all that was dropped is owed as whole parts, and comes.
    while !raw.equals(&truth) || parts < usize::from(SHARDS) {
        ensure!(
            resumed.elapsed() < Duration::from_secs(20),
            "it is not right"
        );
        let (more, whole) = raw.read().await?;
        states += more;
        parts += whole;
    }
    println!(
        "{CHANGES} changes unread: {before} KB grew by {grown} KB at most, {people} people; right \
         again after {states} states and {parts} parts in {:.1?}; the others: {others}",
        resumed.elapsed(),
    );
    ensure!(grown < 60 * 1024, "the dispatcher grew by {grown} KB");
    ensure!(states < CHANGES / 2, "the queue was not dropped");
    // Of tens of thousands of deliveries; a slow moment of the machine is not what is meant.
    ensure!(others.p99() < ms(500), "others noticed: {others}");
    drop(watchers);
    client.leave().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_epoch_makes_no_false_leave() -> Result<()> {
    // A failover of Redis takes two to three seconds whatever our times are, and live shards may
    // wait for a second of it: deadlines that are ten times shorter than the default would be
    // shorter than the fault. These are three times shorter.
    let world = World::new("epoch").await?;
    let times = [
        POLL,
        ("TIMES__HOLDER_TTL_MS", 9000),
        ("TIMES__SESSION_TTL_MS", 9000),
    ];
    let nodes = dispatchers(&world, 2, &times).await?;
    let slower = |o: &mut Options| {
        (o.holder_ms, o.settle_ms, o.max_deadline_ms) = (9000, 9000, 18_000);
    };
    let store = world.store_with(slower).await?;
    let mut stage = Stage::with(world, nodes, store).await?;
    let load = stage.load(2000, 150)?;
    let loaded = tokio::spawn(Crowd::done(load));
    sleep(ms(1000)).await;
    let (slot, world) = (0, stage.world.clone());
    let old = world.redis.kill_master_of(slot).await?;
    let killed_at = Instant::now();
    // Shards that are away must not hold up the others: neither what changes there, nor what
    // somebody begins to watch now.
    let feed = &stage.clients[0].feed;
    let late = Watcher::start(feed, "client-1, late", "room:room-2")?;
    stage.watchers.push(late);
    world.redis.wait_failover(slot, old).await?;
    let failed_over_at = Instant::now();
    loaded.await??;
    let pauses = stage.crowd.pauses();
    let people = stage.agree().await.context(pauses.clone())?;
    println!("{pauses}");
    let away = stage.delays_between(killed_at, failed_over_at - ms(200));
    println!(
        "master killed, away for {:.1?}: {people} people; of what went on meanwhile: {away}",
        failed_over_at - killed_at
    );
    old.process().restart().await?;
    old.wait_ready().await?;
    world.redis.wait_settled().await?;

    let load = stage.load(1500, 150)?;
    let loaded = tokio::spawn(Crowd::done(load));
    sleep(ms(1000)).await;
    world.redis.flush_all().await?;
    loaded.await??;
    let people = stage.agree().await?;
    let told: Vec<_> = stage.watchers.iter().map(Watcher::counts).collect();
    println!("emptied: {people} people, told {told:?} joins, leaves, updates");
    ensure!(
        away.median() < Duration::from_secs(1),
        "shards that were there waited for those away: {away}"
    );
    stage.end().await
}
