//! A gateway's holder over a store that fails over, loses writes, is emptied and hangs: whoever is
//! connected stays, whoever left is gone, and nobody connected is ever closed by a sweep.

#![allow(clippy::print_stdout)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use adsum_core::{
    Conn, DeviceId, Event, Meta, NodeId, Reason, SessionKey, State, TenantId, UserId, UserKey,
    hold::Word,
    load,
    store::{Push, Store, Swept},
};
use adsum_gateway::holder::{Holder, HolderConfig, Tell};
use adsum_store::{Hooks, MemoryStore, Options};
use adsum_tests::eventually;
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

const RUNS: u64 = 12;
const PEOPLE: u64 = 12;

/// The defaults, a hundred times faster.
fn options() -> Options {
    Options {
        shards: 2,
        holder_ms: 300,
        settle_ms: 450,
        alive_gap_ms: 100,
        tomb_ms: 600,
        max_deadline_ms: 1200,
        ..Options::default()
    }
}

fn key(n: u64) -> Result<SessionKey> {
    let owner = UserKey::new(TenantId::new("t")?, UserId::new(format!("u{n}"))?);
    Ok(SessionKey::new(owner, DeviceId::new("d")?))
}

fn state(n: u64) -> Result<State> {
    Ok(State {
        meta: Some(Meta::new(n.to_string(), 100)?),
        ..State::default()
    })
}

/// Sweeps both shards, and notes everybody whom a sweep closed.
async fn sweep_for_good(store: Arc<dyn Store>) {
    let mut fences = [None, None];
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    loop {
        tick.tick().await;
        for (shard, fence) in (0..).zip(&mut fences) {
            match *fence {
                None => *fence = store.claim(shard).await.ok().map(|a| a.value),
                Some(held) => {
                    let swept = store.sweep(shard, held, 100).await;
                    if swept.is_ok_and(|a| a.value == Swept::Refused) {
                        *fence = None;
                    }
                }
            }
        }
    }
}

/// Who was swept, and when.
type Victims = Arc<Mutex<Vec<(UserKey, Instant)>>>;
type Words = Arc<Mutex<Vec<String>>>;

async fn watch_for_victims(store: Arc<dyn Store>, shard: u16, victims: Victims) {
    let Ok(mut pushes) = store.subscribe(shard).await else {
        return;
    };
    while let Some(push) = pushes.next().await {
        if let Push::Change(change) = push
            && let Event::Session {
                reason: Some(Reason::NodeLost),
                owner,
                ..
            } = &change.event
        {
            let mut victims = victims.lock().unwrap_or_else(PoisonError::into_inner);
            victims.push((owner.clone(), Instant::now()));
        }
    }
}

struct Clients {
    holder: Holder,
    conns: u64,
    connected: BTreeMap<SessionKey, (Conn, State)>,
    since: BTreeMap<SessionKey, Instant>,
}

impl Clients {
    fn step(&mut self, rng: &mut StdRng, number: u64) -> Result<()> {
        let key = key(rng.random_range(0..PEOPLE))?;
        match (self.connected.get(&key).cloned(), rng.random_range(0..10)) {
            (None, _) | (Some(_), 0) => {
                self.conns += 1;
                let (conn, state) = (Conn::new(self.conns)?, state(number)?);
                self.holder.hello(key.clone(), conn, state.clone(), None)?;
                self.since.insert(key.clone(), Instant::now());
                self.connected.insert(key, (conn, state));
            }
            (Some((conn, _)), 1) => {
                self.holder
                    .end(key.clone(), conn, Reason::Leave, Duration::ZERO)?;
                self.connected.remove(&key);
            }
            (Some((conn, _)), 2) => {
                let linger = Duration::from_millis(50);
                self.holder
                    .end(key.clone(), conn, Reason::Disconnect, linger)?;
                self.connected.remove(&key);
            }
            (Some((conn, _)), _) => {
                let state = state(number)?;
                self.holder.set(key.clone(), conn, state.clone(), None)?;
                self.connected.insert(key, (conn, state));
            }
        }
        Ok(())
    }

    async fn equal(&self, store: &dyn Store) -> Result<()> {
        let mut stored = BTreeMap::new();
        for shard in 0..store.shards() {
            let snapshot = load(store, shard).await?.context("not born")?;
            ensure!(!snapshot.position.settling, "shard {shard} settles");
            for (owner, person) in snapshot.people {
                for (device, session) in person.sessions {
                    let key = SessionKey::new(owner.clone(), device);
                    stored.insert(key, (session.stamp.conn, session.state));
                }
            }
        }
        ensure!(
            stored == self.connected,
            "stored {stored:?}\nconnected {:?}",
            self.connected
        );
        Ok(())
    }
}

async fn break_something(store: &MemoryStore, rng: &mut StdRng) {
    let shard = rng.random_range(0..2);
    match rng.random_range(0..4) {
        0 => store.fail_over(shard),
        // Sweeps and renewals are writes too, so some of them go first.
        1 => store.lose_last(shard, rng.random_range(1..80)),
        2 => store.flush(shard),
        _ => {
            store.stall(shard, true);
            tokio::time::sleep(Duration::from_millis(rng.random_range(20..600))).await;
            store.stall(shard, false);
        }
    }
}

async fn run(seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let store = MemoryStore::new(options(), Hooks::default()).with_history(200);
    let caller = || -> Arc<dyn Store> { Arc::new(store.handle()) };
    let victims = Victims::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep_for_good(caller()));
    for shard in 0..2 {
        tasks.spawn(watch_for_victims(caller(), shard, victims.clone()));
    }
    let wrong = Words::default();
    let told = wrong.clone();
    let tell: Tell = Arc::new(move |key, _, word| {
        if let Word::Superseded(_) = word {
            told.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(format!("{key:?} {word:?}"));
        }
    });
    let config = HolderConfig {
        renew: Duration::from_millis(50),
        calm: Duration::from_millis(100),
        stuck: Duration::from_secs(60),
        gather: Duration::ZERO,
        backlog: 1000,
    };
    let node = NodeId::new("gw")?;
    let holder = Holder::start(caller(), &node, 1, config, &tell, &TaskTracker::new())?;
    let mut clients = Clients {
        holder,
        conns: 0,
        connected: BTreeMap::new(),
        since: BTreeMap::new(),
    };
    for number in 0..300 {
        clients.step(&mut rng, number)?;
        if rng.random_range(0..40) == 0 {
            break_something(&store, &mut rng).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.next_u64() % 6)).await;
    }
    let limit = Duration::from_secs(20);
    eventually("the store equals the clients", limit, || {
        clients.equal(&store)
    })
    .await?;
    let victims = victims
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for (owner, at) in &victims {
        for key in clients.connected.keys().filter(|key| key.owner == *owner) {
            ensure!(
                clients.since.get(key) > Some(at),
                "{owner:?} was swept while connected"
            );
        }
    }
    let wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(wrong.is_empty(), "superseded though newest: {wrong:?}");
    println!(
        "seed {seed}: {} swept, none of them connected",
        victims.len()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_connected_stays_through_every_loss() -> Result<()> {
    let first: u64 = match std::env::var("ADSUM_SEED") {
        Ok(seed) => seed.parse().context("ADSUM_SEED")?,
        Err(_) => rand::random_range(0..1_000_000),
    };
    let mut runs = JoinSet::new();
    for seed in first..first + RUNS {
        runs.spawn(async move {
            run(seed)
                .await
                .with_context(|| format!("ADSUM_SEED={seed}"))
        });
    }
    while let Some(done) = runs.join_next().await {
        done??;
    }
    Ok(())
}

/// Who was sent away while these of eight shards do not answer, and who is in which shard.
async fn sent_away(
    silent: std::ops::Range<u16>,
    until: impl Fn(&BTreeSet<UserKey>, &BTreeSet<UserKey>) -> bool,
) -> Result<()> {
    let options = Options {
        shards: 8,
        ..options()
    };
    let store = MemoryStore::new(options, Hooks::default());
    let heard = Arc::new(Mutex::new((BTreeSet::new(), BTreeSet::new())));
    let told = heard.clone();
    let tell: Tell = Arc::new(move |key, _, word| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        match word {
            Word::Recorded(_) => told.0.insert(key.owner.clone()),
            Word::Away => told.1.insert(key.owner.clone()),
            _ => false,
        };
    });
    let config = HolderConfig {
        renew: Duration::from_millis(50),
        calm: Duration::from_millis(100),
        stuck: STUCK,
        gather: Duration::ZERO,
        backlog: 1000,
    };
    let (node, caller) = (NodeId::new("gw")?, Arc::new(store.handle()));
    let holder = Holder::start(caller, &node, 1, config, &tell, &TaskTracker::new())?;
    for n in 0..64 {
        holder.hello(key(n)?, Conn::new(1)?, state(n)?, None)?;
    }
    let heard = || heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    eventually("all are recorded", Duration::from_secs(10), || async {
        ensure!(heard().0.len() == 64);
        Ok(())
    })
    .await?;
    silent.clone().for_each(|shard| store.stall(shard, true));
    let users = (0..64).map(|n| Ok(key(n)?.owner));
    let theirs = users
        .filter(|user| {
            let shard = user.as_ref().map(|user: &UserKey| store.shard_of(user));
            shard.is_ok_and(|shard| silent.contains(&shard))
        })
        .collect::<Result<_>>()?;
    // Twice over: what must not happen can't be waited for.
    tokio::time::sleep(2 * STUCK).await;
    eventually("sent away", Duration::from_secs(10), || async {
        let away = heard().1;
        ensure!(until(&away, &theirs), "{away:?} of {theirs:?}");
        Ok(())
    })
    .await
}

const STUCK: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_a_silent_shard_are_sent_away_and_nobody_else() -> Result<()> {
    sent_away(3..4, |away, theirs| !away.is_empty() && away == theirs).await
}

/// Of eight shards one answers: it is most likely this gateway that is slow, and then its users
/// are no better off elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_hardly_anybody_answers_sends_nobody_away() -> Result<()> {
    sent_away(0..7, |away, _| away.is_empty()).await
}
