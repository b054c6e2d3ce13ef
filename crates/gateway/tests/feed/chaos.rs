//! Dispatchers that keep the protocol and nothing else: they break, fall silent, can't resume,
//! and drop their queues. In the end every client must have the truth, having been told every
//! arrival and departure once.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use adsum_proto::feed::{Frame, TopicRef, gateway_frame::Frame as Order, topic_ref};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::sleep;

use crate::support::*;

const SHARDS: u16 = 4;
const NODES: [&str; 3] = ["a", "b", "c"];
const ROOMS: u32 = 5;

#[derive(Default)]
struct Shard {
    seq: u64,
    /// Room, user, and the version of their coming.
    here: BTreeMap<(String, String), u64>,
    log: Vec<(u64, String, String)>,
}

impl Shard {
    fn change(&mut self, room: String, user: String) {
        self.seq += 1;
        let key = (room.clone(), user.clone());
        if self.here.remove(&key).is_none() {
            self.here.insert(key, self.seq);
        }
        self.log.push((self.seq, room, user));
    }

    /// The current state of everything touched after a version.
    fn since(&self, shard: u32, after: u64, wanted: impl Fn(&str) -> bool) -> Vec<Frame> {
        let new = self
            .log
            .iter()
            .filter(|(seq, room, _)| *seq > after && wanted(room));
        let newest: BTreeMap<_, _> = new
            .map(|(seq, r, u)| ((r.clone(), u.clone()), *seq))
            .collect();
        let frame = |((room, user), seq): ((String, String), u64)| match self
            .here
            .get(&(room.clone(), user.clone()))
        {
            Some(version) => here(shard, *version, &room, &user),
            None => gone(shard, seq, &room, &user),
        };
        newest.into_iter().map(frame).collect()
    }

    fn part(&self, shard: u32, room: &str) -> Frame {
        let here = self.here.iter().filter(|((r, _), _)| r == room);
        let members: Vec<_> = here.map(|((_, u), v)| (u.as_str(), *v)).collect();
        part(shard, self.seq, room, &members)
    }
}

type Truth = Arc<Mutex<Vec<Shard>>>;

/// One stream as the dispatcher sees it.
#[derive(Default)]
struct Served {
    known: BTreeSet<String>,
    /// Shards, and how far they were sent.
    taken: BTreeMap<u32, u64>,
    /// Parts to come.
    owed: Vec<(u32, String)>,
    /// Shards that are sent in full: no marks before that is done.
    in_full: BTreeSet<u32>,
}

fn rooms(topics: &[TopicRef]) -> impl Iterator<Item = String> {
    topics.iter().map(|t| match &t.topic {
        Some(topic_ref::Topic::Room(room)) => room.clone(),
        other => panic!("no room: {other:?}"),
    })
}

impl Served {
    fn owe_all(&mut self, shard: u32) {
        self.owed.retain(|(s, _)| *s != shard);
        self.owed
            .extend(self.known.iter().map(|room| (shard, room.clone())));
        self.in_full.insert(shard);
    }

    fn order(&mut self, order: Order, rng: &mut StdRng) {
        match order {
            Order::Hello(_) => panic!("hello twice"),
            Order::Add(add) => {
                for room in rooms(&add.topics) {
                    self.known.insert(room.clone());
                    let owed = self.taken.keys().map(|shard| (*shard, room.clone()));
                    self.owed.extend(owed);
                }
            }
            Order::Drop(drop) => {
                for room in rooms(&drop.topics) {
                    self.known.remove(&room);
                    self.owed.retain(|(_, r)| *r != room);
                }
            }
            Order::Take(take) => {
                self.known.extend(rooms(&take.topics));
                self.release(take.shard);
                match take.cursor.filter(|_| rng.random_bool(0.7)) {
                    Some(cursor) => {
                        self.taken.insert(take.shard, cursor.seq);
                        self.owed
                            .extend(rooms(&take.fresh).map(|room| (take.shard, room)));
                    }
                    None => {
                        self.taken.insert(take.shard, 0);
                        self.owe_all(take.shard);
                    }
                }
            }
            Order::Release(release) => self.release(release.shard),
        }
    }

    fn release(&mut self, shard: u32) {
        self.taken.remove(&shard);
        self.in_full.remove(&shard);
        self.owed.retain(|(s, _)| *s != shard);
    }

    fn frames(&mut self, truth: &[Shard], overflow: bool, rng: &mut StdRng) -> Vec<Frame> {
        let mut frames = Vec::new();
        if overflow && let Some(shard) = self.taken.keys().next().copied() {
            self.owe_all(shard);
        }
        for (shard, at) in &mut self.taken {
            let log = &truth[*shard as usize];
            let wanted = |room: &str| {
                self.known.contains(room) && !self.owed.contains(&(*shard, room.to_owned()))
            };
            frames.extend(log.since(*shard, *at, wanted));
            *at = log.seq;
        }
        for _ in 0..rng.random_range(0..3).min(self.owed.len()) {
            let (shard, room) = self.owed.swap_remove(rng.random_range(0..self.owed.len()));
            frames.push(truth[shard as usize].part(shard, &room));
        }
        self.in_full
            .retain(|shard| self.owed.iter().any(|(s, _)| s == shard));
        let marked = self
            .taken
            .iter()
            .filter(|(shard, _)| !self.in_full.contains(shard));
        frames.extend(marked.map(|(shard, at)| mark(*shard, *at)));
        frames
    }
}

async fn serve(mut session: Session, truth: Truth, calm: Arc<AtomicBool>, mut rng: StdRng) {
    let mut served = Served::default();
    while !session.is_over() {
        sleep(Duration::from_millis(rng.random_range(5..40))).await;
        let wild = !calm.load(Ordering::Relaxed);
        if wild && rng.random_bool(0.003) {
            sleep(Duration::from_millis(rng.random_range(1000..4000))).await;
        }
        for order in session.orders() {
            served.order(order, &mut rng);
        }
        let overflow = wild && rng.random_bool(0.01);
        let frames = served.frames(&truth.lock().unwrap(), overflow, &mut rng);
        if wild && rng.random_bool(0.005) {
            // Breaks in the middle: some of it is lost.
            let some = rng.random_range(0..=frames.len());
            session.send(frames.into_iter().take(some));
            session.break_off();
            return;
        }
        session.send(frames);
    }
}

fn expected(truth: &Truth, room: &str) -> Vec<String> {
    let truth = truth.lock().unwrap();
    let here = truth.iter().flat_map(|shard| shard.here.keys());
    let mut users: Vec<_> = here
        .filter(|(r, _)| r == room)
        .map(|(_, u)| u.clone())
        .collect();
    users.sort_unstable();
    users
}

async fn run(seed: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::with(SHARDS, &NODES, |c| c.linger = Duration::from_millis(300));
    let truth: Truth = Arc::new(Mutex::new((0..SHARDS).map(|_| Shard::default()).collect()));
    let calm = Arc::new(AtomicBool::new(false));
    for node in NODES {
        let mut door = world.door(node);
        let (truth, calm, mut rng) = (truth.clone(), calm.clone(), rng.fork());
        tokio::spawn(async move {
            while let Some(session) = door.recv().await {
                tokio::spawn(serve(session, truth.clone(), calm.clone(), rng.fork()));
            }
        });
    }
    let mut clients: BTreeMap<u32, Client> = BTreeMap::new();
    for step in 0..3000_u32 {
        let shard = rng.random_range(0..SHARDS);
        let (room, user) = (rng.random_range(0..ROOMS), rng.random_range(0..8));
        let change = (format!("r{room}"), format!("s{shard}u{user}"));
        truth.lock().unwrap()[usize::from(shard)].change(change.0, change.1);
        sleep(Duration::from_millis(rng.random_range(1..30))).await;
        if step % 20 == 0 {
            // One client comes or goes; the others take what they are told.
            let room = rng.random_range(0..ROOMS);
            if clients.remove(&room).is_none() {
                clients.insert(room, Client::new(world.watch(&format!("r{room}"))).await);
            }
            for client in clients.values_mut() {
                client.drain().await;
            }
        }
        if step % 200 == 0 {
            NODES
                .iter()
                .for_each(|n| world.set_down(n, rng.random_bool(0.3)));
        }
    }
    calm.store(true, Ordering::Relaxed);
    NODES.iter().for_each(|n| world.set_down(n, false));
    for room in 0..ROOMS {
        if let Entry::Vacant(free) = clients.entry(room) {
            free.insert(Client::new(world.watch(&format!("r{room}"))).await);
        }
    }
    // As long as a dispatcher may be avoided, and its silence may last.
    sleep(Duration::from_secs(12)).await;
    for (room, client) in &mut clients {
        client.drain().await;
        let room = format!("r{room}");
        assert_eq!(
            client.names(),
            expected(&truth, &room),
            "seed {seed}, {room}"
        );
        assert!(!client.stale && client.complete, "seed {seed}, {room}");
    }
    world.feed.stop().await;
    world.feed.metrics().moves.get()
}

#[tokio::test(start_paused = true)]
async fn every_client_ends_with_the_truth() {
    let mut moves = 0;
    let seeds = std::env::var("CHAOS_SEEDS").map_or(8, |n| n.parse().unwrap());
    for seed in 0..seeds {
        moves += run(seed).await;
    }
    assert!(moves > 10 * seeds, "{moves} moves show little");
}
