//! One accepted sweeper per shard, whatever happens to the processes; every departure told, once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adsum_core::store::{Fence, Shard, Swept};
use adsum_tests::{Node, eventually};
use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

use crate::ledger::{Marks, all_closed, swept_by};
use crate::scene::Scene;
use crate::world::{HOLDER, LEASE, SHARDS};

const PATIENCE: Duration = Duration::from_secs(30);

/// Which node has held which fence: no fence may ever be held by two.
#[derive(Default)]
struct Fences(Mutex<BTreeMap<(Shard, u64), String>>);

impl Fences {
    /// Looks at the nodes that can answer.
    async fn look(&self, nodes: &[Node]) -> Result<()> {
        for node in nodes.iter().filter(|node| node.process().is_live()) {
            let (held, name) = (swept_by(node).await?, node.name());
            let mut known = self.known();
            for fence in held {
                let first = known.entry(fence).or_insert_with(|| name.to_owned());
                ensure!(first == name, "{fence:?} is held by {first} and by {name}");
            }
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<(Shard, u64), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_reaper_is_refused_by_the_fence() -> Result<()> {
    let scene = Scene::new("paused", 2).await?;
    let (store, nodes) = (&*scene.store, &scene.nodes);
    let (paused, other) = (&nodes[0], &nodes[1]);
    let marks = Marks::now(store).await?;
    let fences = Fences::default();
    fences.look(nodes).await?;
    let before = swept_by(paused).await?;
    ensure!(!before.is_empty(), "the node to pause sweeps nothing");

    // The first gateway dies while the reaper of half the shards sleeps past its lease.
    let mut first = scene.crowd("first~1", 10_000).await?;
    paused.process().pause()?;
    let began = Instant::now();
    let lapsed = first.lapse().await?;
    let told = all_closed(store, &marks, &first.keys, PATIENCE).await?;
    println!(
        "a paused reaper: the other swept its {} shards {} ms after the holder's deadline",
        before.len(),
        told.saturating_sub(lapsed)
    );
    ensure!(began.elapsed() > LEASE, "the pause was too short");
    fences.look(nodes).await?;

    // The second gateway's deadline has just passed when the reaper wakes up: there is something
    // to sweep, and two who think that it is theirs.
    let after = swept_by(other).await?;
    let mut second = scene.crowd("second~1", 20_000).await?;
    let lapsed = second.lapse().await?;
    scene.until(lapsed).await?;
    paused.process().resume()?;
    let awake = Instant::now();
    // What the sleeper would send, in every shard: refused.
    for (shard, number) in &before {
        let epoch = store.log(*shard, 0, 0).await?.position;
        let epoch = epoch.context("a shard was not born")?.epoch;
        let old = Fence {
            epoch,
            number: *number,
        };
        let answer = store.sweep(*shard, old, 10).await?.value;
        ensure!(answer == Swept::Refused, "{shard}: {answer:?}");
        ensure!(
            after.get(shard) > Some(number),
            "{shard} has no higher fence"
        );
    }
    let told = eventually("the second crowd is swept", PATIENCE, || async {
        let closes = marks.closes(store).await?;
        let wanted = first.keys.len() + second.keys.len();
        ensure!(closes.len() >= wanted, "{} of {wanted}", closes.len());
        closes.last().context("nothing was closed")
    })
    .await?;
    println!(
        "a paused reaper: awake again, departures are told {} ms after the deadline",
        told.saturating_sub(lapsed)
    );
    // It gives up what it had, comes back as another node, and gets its part.
    eventually("the sleeper sweeps again", PATIENCE, || async {
        // Every look at the fences is one more chance to see two holders of one.
        fences.look(nodes).await?;
        let again = swept_by(paused).await?;
        ensure!(!again.is_empty(), "nothing yet");
        let old = |(shard, fence): (&Shard, &u64)| before.get(shard) == Some(fence);
        ensure!(!again.iter().any(old), "it sweeps under an old fence");
        Ok(())
    })
    .await?;
    let counts = scene.all_swept().await?;
    fences.look(nodes).await?;
    println!(
        "a paused reaper: {counts:?} shards {:?} after it woke up, refusals {}, fences seen {}",
        awake.elapsed(),
        paused.metric("adsum_reaper_refusals_total").await?,
        fences.known().len()
    );
    let all = [first.keys.clone(), second.keys.clone()].concat();
    marks.closes(store).await?.once_each(&all)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_reaper_is_replaced_in_time() -> Result<()> {
    let scene = Scene::new("killed", 2).await?;
    let store = &*scene.store;
    let marks = Marks::now(store).await?;
    let shards = swept_by(&scene.nodes[0]).await?.len();
    let mut crowd = scene.crowd("dead~1", 10_000).await?;
    let lapsed = crowd.lapse().await?;
    // The reaper dies just before it would have swept: the worst moment.
    scene.until(lapsed - 50).await?;
    let killed = scene.clock().await?;
    scene.nodes[0].process().kill()?;
    let told = all_closed(store, &marks, &crowd.keys, PATIENCE).await?;
    let (late, after) = (told.saturating_sub(lapsed), told.saturating_sub(killed));
    println!(
        "a killed reaper of {shards} shards: the last departure {late} ms after the holder's \
         deadline, {after} ms after the kill"
    );
    let bound = u64::try_from((LEASE + Duration::from_secs(3)).as_millis())?;
    ensure!(late <= bound, "{late} ms late, above {bound} ms");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_reaper_hands_over_at_once() -> Result<()> {
    let scene = Scene::new("stopped", 2).await?;
    let store = &*scene.store;
    let (stopped, heir) = (&scene.nodes[0], &scene.nodes[1]);
    let marks = Marks::now(store).await?;
    let before = swept_by(stopped).await?;
    let mut crowd = scene.crowd("dead~1", 10_000).await?;
    let lapsed = crowd.lapse().await?;
    // It is told to stop when its departures are due.
    scene.until(lapsed - 50).await?;
    let began = Instant::now();
    stopped.process().stop().await?;
    let exited = Instant::now();
    eventually("the heir sweeps all", PATIENCE, || async {
        let now = swept_by(heir).await?;
        let taken = |(shard, fence): (&Shard, &u64)| now.get(shard) > Some(fence);
        let missing = before.iter().filter(|(s, f)| !taken((*s, *f))).count();
        ensure!(missing == 0, "{missing} shards have no other owner");
        Ok(())
    })
    .await?;
    let handed = exited.elapsed();
    let told = all_closed(store, &marks, &crowd.keys, PATIENCE).await?;
    println!(
        "a stopped reaper of {} shards: it exits within {:?}, all are swept again {handed:?} \
         later; the last departure {} ms after the holder's deadline",
        before.len(),
        exited - began,
        told.saturating_sub(lapsed)
    );
    ensure!(
        handed <= Duration::from_secs(1),
        "handed over in {handed:?}"
    );
    let bound = u64::try_from(HOLDER.as_millis())?;
    ensure!(told.saturating_sub(lapsed) <= bound, "departures waited");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reapers_share_the_shards_evenly() -> Result<()> {
    let mut scene = Scene::new("even", 3).await?;
    let before = evenly(&scene.nodes).await?;
    let began = Instant::now();
    scene
        .nodes
        .push(scene.world.node("reaper-3", "reaper").await?);
    let with = evenly(&scene.nodes).await?;
    let (joined, moved) = (began.elapsed(), moved(&before, &with));
    println!("a fourth reaper: {moved} shards moved within {joined:?}");
    ensure!(moved <= most(4), "{moved} shards moved");

    let fourth = scene.nodes.pop().context("no fourth node")?;
    let began = Instant::now();
    fourth.process().stop().await?;
    let without = evenly(&scene.nodes).await?;
    let (left, moved) = (began.elapsed(), self::moved(&with, &without));
    println!("without the fourth reaper: {moved} shards moved within {left:?}");
    ensure!(moved <= most(4), "{moved} shards moved");
    Ok(())
}

/// `ceil(1.25 × mean)`: what one of so many nodes may own, and so what may move with it.
fn most(nodes: usize) -> usize {
    (5 * usize::from(SHARDS)).div_ceil(4 * nodes)
}

/// Waits until the nodes share all shards evenly; answers who sweeps which.
async fn evenly(nodes: &[Node]) -> Result<BTreeMap<Shard, String>> {
    let shared = eventually("the load is even", PATIENCE, || async {
        let mut sweepers = BTreeMap::new();
        for node in nodes {
            let (swept, name) = (swept_by(node).await?, node.name());
            let share = usize::from(SHARDS) / nodes.len()..=most(nodes.len());
            ensure!(share.contains(&swept.len()), "{name} has {}", swept.len());
            let all = swept.into_keys().map(|shard| (shard, name.to_owned()));
            sweepers.extend(all);
        }
        ensure!(sweepers.len() == usize::from(SHARDS), "{}", sweepers.len());
        Ok(sweepers)
    })
    .await?;
    let load = |node: &Node| shared.values().filter(|name| *name == node.name()).count();
    let loads: Vec<usize> = nodes.iter().map(load).collect();
    println!(
        "{} reapers: {loads:?}, at most {}",
        nodes.len(),
        most(nodes.len())
    );
    Ok(shared)
}

fn moved(before: &BTreeMap<Shard, String>, after: &BTreeMap<Shard, String>) -> usize {
    let other = |(shard, name): &(&Shard, &String)| before.get(shard) != Some(name);
    after.iter().filter(other).count()
}
