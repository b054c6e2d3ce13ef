//! The Redis store against a real cluster that breaks: operations and subscriptions go on.
#![allow(
    clippy::print_stdout,
    reason = "a test says what it expects, and what it measured"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Conn, DeviceId, Incarnation, Preference, SessionKey, Stamp, State, TenantId, UserId, UserKey,
    Visibility,
    store::{Open, Opened, Preferred, Push, Shard, Store, StoreError},
};
use adsum_local::redis::{RedisCluster, RedisNode};
use adsum_store::{Keys, Options, RedisConfig, RedisStore};
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use redis::cmd;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

const SHARDS: Shard = 6;
const LIMIT: Duration = Duration::from_secs(30);

async fn connect(cluster: &RedisCluster) -> Result<Arc<RedisStore>> {
    let mut config = RedisConfig::new(cluster.urls());
    config.options = Options {
        shards: SHARDS,
        ..Options::default()
    };
    config.deadline = Duration::from_secs(10);
    let store = RedisStore::connect(config).await?;
    store.check().await?;
    Ok(Arc::new(store))
}

fn slot(shard: Shard) -> u16 {
    Keys::of_all("adsum", 1, SHARDS)[usize::from(shard)].slot
}

fn user(n: u64) -> Result<UserKey> {
    Ok(UserKey::new(
        TenantId::new("t")?,
        UserId::new(format!("u{n}"))?,
    ))
}

/// Somebody of a shard.
fn user_of(store: &RedisStore, shard: Shard) -> Result<UserKey> {
    for n in 0.. {
        let user = user(n)?;
        if store.shard_of(&user) == shard {
            return Ok(user);
        }
    }
    unreachable!()
}

fn open(owner: UserKey, conn: u64) -> Result<Open> {
    Ok(Open {
        key: SessionKey::new(owner, DeviceId::new(format!("d{conn}"))?),
        holder: Incarnation::new("gw~1")?,
        stamp: Stamp {
            conn: Conn::new(conn)?,
            rev: 1,
        },
        state: State::default(),
        opened_at: 0,
        prefs: None,
        origin: None,
    })
}

/// Opens and closes sessions in every shard until told to stop, and sees how long each takes.
struct Load {
    tasks: JoinSet<Result<()>>,
    stop: Arc<AtomicBool>,
    done: Arc<Vec<AtomicU64>>,
    longest: Arc<Vec<AtomicU64>>,
}

impl Load {
    fn start(store: &Arc<RedisStore>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let each = || Arc::new((0..SHARDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let (done, longest) = (each(), each());
        let mut tasks = JoinSet::new();
        for shard in 0..SHARDS {
            let (store, owner) = (store.clone(), user_of(store, shard)?);
            let (stop, done, longest) = (stop.clone(), done.clone(), longest.clone());
            tasks.spawn(async move {
                for conn in 10.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    let begun = Instant::now();
                    let answer = store.open(open(owner.clone(), conn)?).await;
                    let took = begun.elapsed();
                    let answer = answer.with_context(|| format!("shard {shard}: {took:?}"))?;
                    ensure!(matches!(answer.value, Opened::Ok { .. }), "{answer:?}");
                    store.kick(&owner, None).await?;
                    longest[usize::from(shard)].fetch_max(took.as_millis() as u64, Relaxed);
                    done[usize::from(shard)].fetch_add(1, Relaxed);
                    sleep(Duration::from_millis(5)).await;
                }
                Ok(())
            });
        }
        Ok(Self {
            tasks,
            stop,
            done,
            longest,
        })
    }

    /// Waits until every shard got some more done.
    async fn progress(&self) -> Result<()> {
        let before: Vec<_> = self.done.iter().map(|n| n.load(Relaxed)).collect();
        let all = || {
            self.done
                .iter()
                .zip(&before)
                .all(|(n, b)| n.load(Relaxed) >= b + 5)
        };
        let wait = async {
            while !all() && self.tasks.len() == usize::from(SHARDS) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, wait)
            .await
            .with_context(|| format!("{:?} go on", self.done))
    }

    async fn stop(mut self, what: &str) -> Result<()> {
        self.stop.store(true, Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        println!(
            "{what}: done {:?}, longest ms {:?}",
            self.done, self.longest
        );
        Ok(())
    }
}

/// Counts of what each shard's subscriber heard.
struct Ears {
    changes: Arc<Vec<AtomicU64>>,
    lost: Arc<Vec<AtomicU64>>,
    _tasks: JoinSet<()>,
}

impl Ears {
    async fn open(store: &RedisStore) -> Result<Self> {
        let each = || Arc::new((0..SHARDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let (changes, lost, mut tasks) = (each(), each(), JoinSet::new());
        for shard in 0..SHARDS {
            let mut pushes = store.subscribe(shard).await?;
            let (changes, lost) = (changes.clone(), lost.clone());
            tasks.spawn(async move {
                while let Some(push) = pushes.next().await {
                    let count = if push == Push::Lost { &lost } else { &changes };
                    count[usize::from(shard)].fetch_add(1, Relaxed);
                }
            });
        }
        Ok(Self {
            changes,
            lost,
            _tasks: tasks,
        })
    }

    /// Waits until every shard hears of changes.
    async fn hear(&self, what: &str) -> Result<()> {
        let begun = Instant::now();
        let before: Vec<_> = self.changes.iter().map(|n| n.load(Relaxed)).collect();
        let all = || {
            self.changes
                .iter()
                .zip(&before)
                .all(|(n, b)| n.load(Relaxed) > *b)
        };
        let wait = async {
            while !all() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, wait)
            .await
            .with_context(|| format!("{what}: {:?}", self.changes))?;
        println!(
            "{what}: all heard after {:?}, lost {:?}",
            begun.elapsed(),
            self.lost
        );
        Ok(())
    }

    fn told(&self, shard: Shard) -> bool {
        self.lost[usize::from(shard)].load(Relaxed) > 0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_is_killed() -> Result<()> {
    let cluster = RedisCluster::start(3, 1).await?;
    let store = connect(&cluster).await?;
    let ears = Ears::open(&store).await?;
    let load = Load::start(&store)?;
    ears.hear("before").await?;
    let begun = Instant::now();
    cluster.kill_master_of(slot(0)).await?;
    load.progress().await?;
    println!("operations went on after {:?}", begun.elapsed());
    ears.hear("after the kill").await?;
    assert!(ears.told(0));
    load.stop("killed").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_goes_silent() -> Result<()> {
    let cluster = RedisCluster::start(3, 1).await?;
    let store = connect(&cluster).await?;
    let ears = Ears::open(&store).await?;
    let load = Load::start(&store)?;
    ears.hear("before").await?;
    let begun = Instant::now();
    let master: &RedisNode = cluster.master_of(slot(0)).await?;
    master.process().pause()?;
    load.progress().await?;
    println!("operations went on after {:?}", begun.elapsed());
    ears.hear("after the silence").await?;
    assert!(ears.told(0));
    master.process().resume()?;
    sleep(Duration::from_secs(2)).await;
    load.progress().await?;
    ears.hear("after its return").await?;
    load.stop("paused").await
}

/// A master stands still, and nobody can stand in for it: whoever else has a slot goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_holds_up_nobody_else() -> Result<()> {
    let cluster = RedisCluster::start(3, 1).await?;
    let store = connect(&cluster).await?;
    let ears = Ears::open(&store).await?;
    let load = Load::start(&store)?;
    ears.hear("before").await?;
    let away = cluster.master_of(slot(0)).await?;
    let mut silent = cluster.replicas_of(away).await?;
    silent.push(away);
    let mut others = Vec::new();
    for shard in 0..SHARDS {
        if cluster.master_of(slot(shard)).await?.id() != away.id() {
            others.push(usize::from(shard));
        }
    }
    silent.iter().try_for_each(|node| node.process().pause())?;
    sleep(Duration::from_secs(6)).await;
    let waited = |shard: &usize| Duration::from_millis(load.longest[*shard].load(Relaxed));
    let longest = others.iter().map(waited).max().context("others")?;
    let lost = others.iter().filter(|s| ears.told(**s as Shard)).count();
    silent.iter().try_for_each(|node| node.process().resume())?;
    println!("others waited for {longest:?} at most");
    // An attempt alone takes a second: nobody waited for one.
    ensure!(longest < Duration::from_millis(900), "{longest:?}");
    ensure!(lost == 0, "{lost} of the others lost pushes");
    load.progress().await?;
    ears.hear("after its return").await?;
    load.stop("stood still").await
}

/// Moves the keys of a slot one by one, so that scripts meet a slot of which a part is gone.
async fn move_key_by_key(source: &RedisNode, target: &RedisNode, slot: u16) -> Result<()> {
    let set_slot = |state: &str, node: &RedisNode| {
        let mut command = cmd("CLUSTER");
        command.arg("SETSLOT").arg(slot).arg(state).arg(node.id());
        command
    };
    target.query::<()>(&set_slot("IMPORTING", source)).await?;
    source.query::<()>(&set_slot("MIGRATING", target)).await?;
    for key in &Keys::of_all("adsum", 1, SHARDS)[0].all {
        let mut command = cmd("MIGRATE");
        command
            .arg("127.0.0.1")
            .arg(target.port())
            .arg(key)
            .arg(0)
            .arg(5000);
        ensure!(
            source.query::<String>(&command).await? == "OK",
            "{key} was there"
        );
        sleep(Duration::from_millis(60)).await;
    }
    sleep(Duration::from_millis(500)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_load() -> Result<()> {
    let cluster = RedisCluster::start(3, 1).await?;
    let store = connect(&cluster).await?;
    let ears = Ears::open(&store).await?;
    let load = Load::start(&store)?;
    ears.hear("before").await?;
    let epoch = store.claim(0).await?.epoch;
    let home = cluster.master_of(slot(0)).await?.id().to_owned();
    let target = cluster
        .masters()
        .await?
        .into_iter()
        .find(|n| n.id() != home);
    let target = target.context("another master")?;
    let source = cluster.master_of(slot(0)).await?;
    move_key_by_key(source, target, slot(0)).await?;
    cluster.migrate_slot(slot(0), target, None).await?;
    load.progress().await?;
    ears.hear("after the move").await?;
    assert!(ears.told(0));
    let after = store.claim(0).await?;
    assert!(after.epoch > epoch, "another server, another epoch");
    let page = store.log(0, 0, 10_000).await?;
    let seqs: Vec<_> = page.entries.iter().map(|c| c.version.seq).collect();
    assert!(seqs.windows(2).all(|w| w[1] == w[0] + 1), "no gap");
    let owner = user_of(&store, 0)?;
    load.stop("moved").await?;
    let left = store.read(&[owner]).await?;
    assert!(left[0].person.is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferences_wait_for_a_replica() -> Result<()> {
    let cluster = RedisCluster::start(3, 1).await?;
    let mut config = RedisConfig::new(cluster.urls());
    config.options.shards = SHARDS;
    config.deadline = Duration::from_secs(2);
    let store = RedisStore::connect(config.clone()).await?;
    let owner = user_of(&store, 0)?;
    let nobody = || Preference::Visibility(Visibility::Nobody);
    let begun = Instant::now();
    let first = store.prefer(&owner, nobody(), 1).await?.value;
    assert!(matches!(first, Preferred::Ok(_)));
    println!("a preference took {:?}", begun.elapsed());
    let begun = Instant::now();
    for version in 2..102 {
        store.prefer(&owner, nobody(), version).await?;
    }
    println!("100 more took {:?}", begun.elapsed());

    let master = cluster.master_of(slot(0)).await?;
    for replica in cluster.replicas_of(master).await? {
        replica.process().pause()?;
    }
    let alone = store.prefer(&owner, nobody(), 200).await;
    assert_eq!(alone, Err(StoreError::NotReplicated));
    assert_eq!(
        store.read(std::slice::from_ref(&owner)).await?[0]
            .prefs
            .visibility
            .version,
        200
    );
    for replica in cluster
        .nodes()
        .iter()
        .filter(|node| node.process().is_paused())
    {
        replica.process().resume()?;
    }
    cluster.wait_settled().await?;
    let again = store.prefer(&owner, nobody(), 200).await?.value;
    assert!(matches!(again, Preferred::Ok(_)));
    config.replicas = Some(0);
    let hasty = RedisStore::connect(config).await?;
    assert!(matches!(
        hasty.prefer(&owner, nobody(), 201).await?.value,
        Preferred::Ok(_)
    ));
    Ok(())
}

/// Seconds of CPU that this process has used.
fn own_cpu() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_cluster_goes_and_returns() -> Result<()> {
    let cluster = RedisCluster::start(3, 0).await?;
    let store = connect(&cluster).await?;
    let ears = Ears::open(&store).await?;
    let owner = user_of(&store, 1)?;
    store.open(open(owner.clone(), 1)?).await?;
    for node in cluster.nodes() {
        node.process().kill()?;
    }
    sleep(Duration::from_millis(500)).await;
    let (begun, before) = (Instant::now(), own_cpu()?);
    let down = store.open(open(owner.clone(), 2)?).await;
    ensure!(matches!(down, Err(StoreError::Unavailable(_))), "{down:?}");
    let busy = (own_cpu()? - before) / begun.elapsed().as_secs_f64();
    println!(
        "{down:?} after {:?}, {busy:.2} of a core meanwhile",
        begun.elapsed()
    );
    ensure!(busy < 0.5, "the client spins: {busy:.2} of a core");
    for node in cluster.nodes() {
        node.process().restart().await?;
    }
    cluster.wait_settled().await?;
    let begun = Instant::now();
    store.open(open(owner.clone(), 3)?).await?;
    store.purge(&owner).await?;
    println!("back after {:?}", begun.elapsed());
    let load = Load::start(&store)?;
    load.progress().await?;
    ears.hear("after all returned").await?;
    load.stop("returned").await
}
