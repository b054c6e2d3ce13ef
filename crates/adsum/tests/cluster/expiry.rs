//! The end of a gateway with very many sessions: swept in bounded steps, with room for others in
//! between.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::{
    Conn, SessionKey, Stamp,
    store::{Alter, Altered, Store},
};
use adsum_tests::{Machine, eventually};
use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ledger::Marks;
use crate::scene::{Crowd, Scene};
use crate::world::{key, state};

const SESSIONS: u32 = 100_000;
/// What the longest call should stay below.
const GOAL: Duration = Duration::from_millis(25);
/// What it must stay below, on whatever machine, besides what the host took from it meanwhile.
const BOUND: Duration = Duration::from_millis(250);
/// Slower calls are remembered.
const SLOW: Duration = Duration::from_millis(1);
/// Between two changes of the one who lives.
const BEAT: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_expiry_is_swept_in_bounded_steps() -> Result<()> {
    let scene = Scene::new("expiry", 2).await?;
    let store = &*scene.store;
    let living = scene.crowd("living~1", 2_000_000).await?;
    let began = Instant::now();
    let keys: Vec<SessionKey> = (0..SESSIONS.into()).map(key).collect::<Result<_>>()?;
    let mut dying = Crowd::open(&scene.store, "dying~1", keys).await?;
    println!(
        "a mass expiry: {SESSIONS} sessions opened in {:?}",
        began.elapsed()
    );

    let marks = Marks::now(store).await?;
    let before = Machine::now();
    let masters = scene.world.redis.masters().await?;
    for master in &masters {
        master.watch_slow(SLOW).await?;
    }
    let lapsed = dying.lapse().await?;
    let (stop, stopped) = watch::channel(());
    let changes = tokio::spawn(change_until(
        Arc::clone(&scene.store),
        living.keys.clone(),
        stopped,
    ));
    // The logs are read once, afterwards: reading all of them again and again would be the load.
    for shard in 0..store.shards() {
        eventually("all are swept", Duration::from_secs(60), || async {
            let left = store.held(shard, &dying.holder, None, 1).await?;
            ensure!(left.is_empty(), "shard {shard} holds some");
            Ok(())
        })
        .await?;
    }
    drop(stop);
    let (mut latencies, again) = changes.await??;
    let told = marks.closes(store).await?.once_each(&dying.keys)?;
    println!(
        "a mass expiry: all {SESSIONS} departures, each once, within {} ms of the deadline",
        told.saturating_sub(lapsed)
    );
    let counted = scene
        .nodes
        .iter()
        .map(|node| node.metric("adsum_reaper_closed_total"));
    let counted: f64 = try_join_all(counted).await?.iter().sum();
    println!("a mass expiry: the reapers have counted {counted}");
    latencies.sort_unstable();
    let p99 = latencies[latencies.len() * 99 / 100];
    let most = latencies.last().copied().context("no changes")?;
    println!(
        "a mass expiry: {} changes of others meanwhile, p99 {p99:?}, longest {most:?}, asked twice {again}",
        latencies.len()
    );
    let mut slow = Vec::new();
    for master in &masters {
        slow.extend(master.slow_calls().await?);
    }
    let stolen = Machine::now().stolen_since(&before);
    slow.sort_unstable();
    let (longest, call) = slow.last().cloned().unwrap_or_default();
    println!(
        "a mass expiry: {} calls above {SLOW:?}, the longest {longest:?} ({call}), goal {GOAL:?}; {stolen:?} stolen",
        slow.len()
    );
    if longest > GOAL {
        println!("WARNING: a mass expiry: the longest call is above its goal");
    }
    ensure!(
        longest <= BOUND + stolen,
        "a call of {longest:?} keeps others waiting"
    );
    Ok(())
}

/// Changes one session after another; answers how long each took, and how many the store had to
/// ask for twice. None may fail.
async fn change_until(
    store: Arc<dyn Store>,
    keys: Vec<SessionKey>,
    mut stop: watch::Receiver<()>,
) -> Result<(Vec<Duration>, u32)> {
    let (mut tick, mut latencies, mut again) = (tokio::time::interval(BEAT), Vec::new(), 0);
    for rev in 2.. {
        for key in &keys {
            tokio::select! {
                _ = stop.changed() => return Ok((latencies, again)),
                _ = tick.tick() => {}
            }
            let room = format!("room-{rev}");
            let stamp = Stamp {
                conn: Conn::new(1)?,
                rev,
            };
            let change = Alter {
                key: key.clone(),
                stamp,
                state: state(&[&room])?,
                origin: None,
            };
            let began = Instant::now();
            let answer = store.alter(change).await?.value;
            latencies.push(began.elapsed());
            let Altered::Ok { committed, .. } = answer else {
                bail!("{key:?}: {answer:?}");
            };
            again += u32::from(!committed);
        }
    }
    Ok((latencies, again))
}
