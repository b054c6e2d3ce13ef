//! The store under fire: a real Redis Cluster of three masters and three replicas, gateways that
//! open, change and close sessions, and faults. Afterwards everything equals the model, no number
//! was used twice, and nobody whose gateway renewed was closed.

#![allow(clippy::print_stdout)]

mod clients;
mod witness;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use adsum_core::{
    DeviceId, SessionKey, TenantId, UserId, UserKey, load,
    store::{Shard, Store},
};
use adsum_store::{Keys, Options, RedisConfig, RedisStore};
use adsum_tests::{RedisCluster, eventually};
use anyhow::{Context, Result, bail, ensure};
use clients::{Gateway, alike, state};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
    time::Instant,
};
use witness::Witness;

const SHARDS: Shard = 16;
const GATEWAYS: usize = 3;
const PEOPLE: u64 = 60;

/// The defaults, five times faster: a failover of Redis takes its two to three seconds whatever
/// our times are. `ADSUM_SLOW=1` runs the defaults.
fn scale() -> u64 {
    if std::env::var_os("ADSUM_SLOW").is_some() {
        1
    } else {
        5
    }
}

fn scaled(ms: u64) -> Duration {
    Duration::from_millis(ms / scale())
}

/// A machine may have two cores, and deadlines here are short: one at a time.
static TURN: Semaphore = Semaphore::const_new(1);

struct World {
    cluster: RedisCluster,
    store: RedisStore,
    gateways: Vec<Arc<Gateway>>,
    witness: Arc<Witness>,
    _tasks: JoinSet<()>,
    /// Given up last, when all processes are gone.
    _turn: SemaphorePermit<'static>,
}

fn key(gateway: usize, person: u64) -> Result<SessionKey> {
    let user = UserId::new(format!("user-{gateway}-{}", person / 2))?;
    let owner = UserKey::new(TenantId::new("acme")?, user);
    Ok(SessionKey::new(
        owner,
        DeviceId::new(format!("device-{}", person % 2))?,
    ))
}

impl World {
    async fn new(name: &str) -> Result<Self> {
        let _turn = TURN.acquire().await?;
        let cluster = RedisCluster::start(3, 1).await?;
        let options = Options {
            shards: SHARDS,
            holder_ms: 30_000 / scale(),
            settle_ms: 45_000 / scale(),
            alive_gap_ms: 10_000 / scale(),
            tomb_ms: 60_000 / scale(),
            max_deadline_ms: 120_000 / scale(),
            ..Options::default()
        };
        let config = RedisConfig {
            cluster: name.to_owned(),
            options,
            ..RedisConfig::new(cluster.urls())
        };
        let store = RedisStore::connect(config).await?;
        store.check().await?;
        let caller = || -> Arc<dyn Store> { Arc::new(store.handle()) };
        let witness = Arc::new(Witness::default());
        let mut tasks = JoinSet::new();
        for shard in 0..SHARDS {
            tasks.spawn(witness::listen(witness.clone(), caller(), shard));
            tasks.spawn(witness::read(witness.clone(), caller(), shard));
            tasks.spawn(witness::sweep(caller(), shard));
        }
        let gateways = (0..GATEWAYS)
            .map(|n| {
                Ok(Arc::new(Gateway::new(
                    caller(),
                    &format!("gw-{n}"),
                    scaled(5000),
                )?))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            _turn,
            cluster,
            store,
            gateways,
            witness,
            _tasks: tasks,
        })
    }

    /// Everybody connects, and then changes, leaves and comes back until told to stop.
    async fn load(&self, mut stop: tokio::sync::watch::Receiver<bool>) -> Result<u64> {
        let mut workers = JoinSet::new();
        for (n, gateway) in self.gateways.iter().enumerate() {
            for person in 0..PEOPLE {
                let worker = work(gateway.clone(), key(n, person)?, person, stop.clone());
                workers.spawn(worker);
            }
        }
        let _ = stop.changed().await;
        let mut operations = 0;
        while let Some(worker) = workers.join_next().await {
            operations += worker??;
        }
        Ok(operations)
    }

    /// Lets a fault happen under load, then waits until everything equals the model.
    async fn survives<F>(&self, what: &str, fault: impl FnOnce() -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let chaos = async {
            // Load first, so that the fault meets it.
            eventually("load", Duration::from_secs(30), || async {
                ensure!(self.witness.check()? > 500, "too few changes");
                Ok(())
            })
            .await?;
            let start = Instant::now();
            fault()
                .await
                .with_context(|| format!("the fault: {what}"))?;
            let took = start.elapsed();
            tokio::time::sleep(scaled(10_000)).await;
            stop.send(true)?;
            Ok::<_, anyhow::Error>(took)
        };
        let (said, took) = tokio::try_join!(self.load(stopped), chaos)?;
        let limit = scaled(45_000) * 2 + Duration::from_secs(30);
        let start = Instant::now();
        eventually("everything equals the model", limit, || {
            self.equals_the_model()
        })
        .await?;
        let entries = self.witness.check()?;
        let recorded: u64 = self.gateways.iter().map(|g| g.recorded.load(Relaxed)).sum();
        for gateway in &self.gateways {
            let wrong = gateway.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            ensure!(
                wrong.is_empty(),
                "told to the newest connections: {wrong:?}"
            );
        }
        println!(
            "{what}: fault {took:?}, clients said {said}, {recorded} recorded, {entries} entries, \
             {} epochs, equal {:?} after the load",
            self.witness.epochs(),
            start.elapsed()
        );
        Ok(())
    }

    async fn equals_the_model(&self) -> Result<()> {
        let model: BTreeMap<_, _> = self.gateways.iter().flat_map(|g| g.truth()).collect();
        let mut seen = BTreeSet::new();
        for shard in 0..SHARDS {
            let snapshot = load(&self.store, shard).await?.context("not born")?;
            ensure!(!snapshot.position.settling, "shard {shard} still settles");
            for (owner, person) in snapshot.people {
                for (device, session) in person.sessions {
                    let key = SessionKey::new(owner.clone(), device);
                    let ghost = || format!("a ghost: {key:?} {session:?}");
                    let (conn, said) = model.get(&key).with_context(ghost)?;
                    let same = session.stamp.conn == *conn && alike(&session.state, said);
                    ensure!(same, "{key:?} is {session:?}, but said {conn:?} {said:?}");
                    seen.insert(key);
                }
            }
        }
        let missing: Vec<_> = model.keys().filter(|k| !seen.contains(k)).collect();
        if let Some(first) = missing.first() {
            let shard = self.store.shard_of(&first.owner);
            let story = self.witness.story(shard, &first.owner);
            bail!(
                "{} missing, the first {:?}, newest first:\n{story}",
                missing.len(),
                model.get(first)
            );
        }
        Ok(())
    }

    fn slots(&self, name: &str) -> Vec<u16> {
        Keys::of_all(name, 1, SHARDS)
            .iter()
            .map(|k| k.slot)
            .collect()
    }
}

async fn work(
    gateway: Arc<Gateway>,
    key: SessionKey,
    seed: u64,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Result<u64> {
    let mut number = seed * 1000;
    let mut conn = 1;
    gateway.connect(&key, conn, state(number))?;
    while !*stop.borrow() {
        number += 1;
        if number.is_multiple_of(11) {
            gateway.leave(&key)?;
            conn += 1;
            gateway.connect(&key, conn, state(number))?;
        } else {
            gateway.change(&key, state(number))?;
        }
        tokio::time::sleep(Duration::from_millis(20 + seed % 7)).await;
    }
    Ok(number - seed * 1000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_nobody_their_presence() -> Result<()> {
    let world = World::new("killed").await?;
    let slot = world.slots("killed")[3];
    world
        .survives("master killed", || async {
            let old = world.cluster.kill_master_of(slot).await?;
            world.cluster.wait_failover(slot, old).await?;
            old.process().restart().await
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_heals() -> Result<()> {
    let world = World::new("emptied").await?;
    world
        .survives("FLUSHALL and FUNCTION FLUSH", || async {
            world.cluster.flush_all().await?;
            world.cluster.function_flush().await
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_away_for_a_minute_loses_nobody() -> Result<()> {
    let world = World::new("away").await?;
    let slot = world.slots("away")[7];
    world
        .survives("master and replica frozen for 60 s (scaled)", || async {
            let master = world.cluster.master_of(slot).await?;
            let replicas = world.cluster.replicas_of(master).await?;
            for node in [master].into_iter().chain(replicas.iter().copied()) {
                node.process().pause()?;
            }
            tokio::time::sleep(scaled(60_000)).await;
            for node in [master].into_iter().chain(replicas) {
                node.process().resume()?;
            }
            world.cluster.wait_settled().await
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_migrate_under_load_and_no_script_is_half_written() -> Result<()> {
    let world = World::new("moving").await?;
    world
        .survives("eight slots migrated key by key", || async {
            for slot in world.slots("moving").into_iter().step_by(2) {
                let source = world.cluster.master_of(slot).await?;
                let masters = world.cluster.masters().await?;
                let target = masters.into_iter().find(|m| m.id() != source.id());
                let target = target.context("another master")?;
                let pause = Some(Duration::from_millis(25));
                world.cluster.migrate_slot(slot, target, pause).await?;
            }
            Ok(())
        })
        .await
}
