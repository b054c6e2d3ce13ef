//! etcd minor, away, and without memory: what goes on, what stops, and that it comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use adsum_core::store::Shard;
use adsum_tests::{Node, eventually};
use anyhow::{Result, ensure};
use serde_json::Value;
use tokio::time::Instant;

use crate::clients::{Watcher, all_ready};
use crate::feed::{Client, ms};
use crate::ledger::{Marks, all_closed, swept_by};
use crate::scene::Scene;
use crate::world::LEASE;

const PATIENCE: Duration = Duration::from_secs(30);
/// Three leases, and what it takes to notice.
const OUTAGE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_wiped_and_started_again() -> Result<()> {
    let scene = Scene::new("wiped", 2).await?;
    let (store, etcd) = (&*scene.store, &scene.world.etcd);
    let marks = Marks::now(store).await?;
    let mut crowd = scene.crowd("dead~1", 10_000).await?;
    let before = ids(&scene.nodes).await?;
    crowd.lapse().await?;
    etcd.wipe_and_restart().await?;
    let (back, clock) = (Instant::now(), scene.clock().await?);
    let told = all_closed(store, &marks, &crowd.keys, PATIENCE).await?;
    let resumed = told.saturating_sub(clock);
    eventually("the members are there again", PATIENCE, || async {
        for node in &scene.nodes {
            let ready = node.readyz().await?;
            ensure!(ready["membership"]["ok"] == true, "{ready}");
            ensure!(ready["membership"]["members"] == 2, "{ready}");
        }
        Ok(())
    })
    .await?;
    let members = back.elapsed();
    let counts = scene.all_swept().await?;
    println!(
        "etcd wiped: the last departure {resumed} ms after it was back, all members known after \
         {members:?}, all shards swept after {:?}: {counts:?}",
        back.elapsed()
    );
    let after = ids(&scene.nodes).await?;
    ensure!(
        before.iter().all(|id| !after.contains(id)),
        "an id was used twice"
    );
    ensure!(resumed <= 15_000, "reaping resumed after {resumed} ms");
    marks.closes(store).await?.once_each(&crowd.keys)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_stopped_for_a_while() -> Result<()> {
    let mut scene = Scene::new("away", 2).await?;
    let dispatcher = scene.world.node("dispatcher", "dispatcher").await?;
    let gateway = scene.world.node("gateway", "gateway").await?;
    scene.nodes.extend([dispatcher, gateway]);
    let (store, etcd, nodes) = (&*scene.store, &scene.world.etcd, &scene.nodes);
    let fed = || async {
        let gateway = &nodes[3].readyz().await?["gateway"];
        ensure!(gateway["dispatchers"] == 1, "no dispatcher: {gateway}");
        ensure!(gateway["stale_shards"] == 0, "stale: {gateway}");
        Ok(())
    };
    eventually("the gateway is fed", PATIENCE, fed).await?;
    let client = Client::join(&scene.world, "client", &scene.store, ms(400)).await?;
    let watchers = [Watcher::start(&client.feed, "client", "tenant")?];
    all_ready(&watchers).await?;
    etcd.stop_all().await?;
    let away = Instant::now();
    membership(nodes, false).await?;
    let noticed = away.elapsed();
    eventually("no reaper sweeps", PATIENCE, || async {
        for node in &nodes[..2] {
            let reaper = &node.readyz().await?["reaper"];
            ensure!(reaper["idle"] == "no_lease", "{}: {reaper}", node.name());
        }
        Ok(())
    })
    .await?;
    let idle = away.elapsed();

    // Changes are committed and told as ever, and nobody sweeps what lapses.
    let before = watchers[0].counts();
    let marks = Marks::now(store).await?;
    let mut crowd = scene.crowd("dead~1", 10_000).await?;
    let opened = marks.changed(store).await?;
    ensure!(opened == 64, "changes reached {opened} logs");
    eventually("diffs go on without etcd", PATIENCE, || async {
        let joins = watchers[0].counts().0 - before.0;
        ensure!(joins == crowd.keys.len(), "{joins} joins told");
        Ok(())
    })
    .await?;
    let lapsed = crowd.lapse().await?;
    let lease = u64::try_from(LEASE.as_millis())?;
    scene.until(lapsed + lease).await?;
    tokio::time::sleep_until(away + OUTAGE).await;
    let closed = marks.closes(store).await?.len();
    ensure!(closed == 0, "{closed} were swept without a lease");
    fed().await?;
    membership(nodes, false).await?;

    etcd.restart_all().await?;
    let (back, clock) = (Instant::now(), scene.clock().await?);
    let told = all_closed(store, &marks, &crowd.keys, PATIENCE).await?;
    membership(nodes, true).await?;
    let known = back.elapsed();
    let counts = scene.all_swept().await?;
    let swept = back.elapsed();
    // The dispatcher is another member now, and for a moment there are links to both.
    eventually("the gateway is fed by the new member", PATIENCE, fed).await?;
    println!(
        "etcd stopped for {:?}: said so after {noticed:?}, no reaping after {idle:?}; back: the \
         last departure after {} ms, members known after {known:?}, all shards swept after \
         {swept:?}: {counts:?}; one link to the dispatcher after {:?}",
        back - away,
        told.saturating_sub(clock),
        back.elapsed()
    );
    marks.closes(store).await?.once_each(&crowd.keys)?;
    eventually("each departure is told once", PATIENCE, || async {
        let leaves = watchers[0].counts().1 - before.1;
        ensure!(leaves == crowd.keys.len(), "{leaves} leaves told");
        Ok(())
    })
    .await?;
    watchers[0].check()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_etcd_node_killed_is_not_noticed() -> Result<()> {
    // The usual lease: a new leader of etcd is found within the time that is left of it.
    let lease = |options: adsum_tests::NodeOptions| options.with("TIMES__LEASE_TTL_MS", 5000);
    let scene = Scene::with("minor", 2, lease).await?;
    let (store, nodes) = (&*scene.store, &scene.nodes);
    let (before, owned) = (ids(nodes).await?, owners(nodes).await?);
    for (n, member) in (0..).zip(scene.world.etcd.members()) {
        let marks = Marks::now(store).await?;
        let leader = std::ptr::eq(scene.world.etcd.leader().await?, member);
        let mut crowd = scene
            .crowd(&format!("dead-{n}~1"), 10_000 * (n + 1))
            .await?;
        member.process().kill()?;
        let lapsed = crowd.lapse().await?;
        let told = all_closed(store, &marks, &crowd.keys, PATIENCE).await?;
        let late = told.saturating_sub(lapsed);
        println!(
            "etcd node {n} killed (leader: {leader}): departures {late} ms after the deadline"
        );
        ensure!(late <= 1000, "departures waited for {late} ms");
        let now = owners(nodes).await?;
        let moved = now.iter().filter(|(s, o)| owned.get(s) != Some(o)).count();
        ensure!(now == owned, "{moved} shards have another owner or fence");
        ensure!(ids(nodes).await? == before, "a member has another id");
        member.process().restart().await?;
        scene.world.etcd.wait_ready().await?;
    }
    for node in nodes {
        let refusals = node.metric("adsum_reaper_refusals_total").await?;
        ensure!(refusals < 1.0, "{} was refused", node.name());
    }
    Ok(())
}

/// Waits until all nodes say that the registry can be reached, or that it can't.
/// All nodes know each other and the test's own client, and say whether that is certain.
async fn membership(nodes: &[Node], ok: bool) -> Result<()> {
    eventually("all nodes say how it is", PATIENCE, || async {
        for node in nodes {
            let ready = node.readyz().await?;
            ensure!(ready["membership"]["ok"] == ok, "{}: {ready}", node.name());
            let stale = node.metric("adsum_membership_stale").await?;
            ensure!((stale > 0.5) != ok, "{}: stale {stale}", node.name());
            let members = &ready["membership"]["members"];
            ensure!(*members == nodes.len() + 1, "{}: {ready}", node.name());
        }
        Ok(())
    })
    .await
}

async fn ids(nodes: &[Node]) -> Result<Vec<Value>> {
    let mut ids = Vec::new();
    for node in nodes {
        ids.push(node.readyz().await?["node"].clone());
    }
    Ok(ids)
}

/// Who sweeps which shard, under which fence.
async fn owners(nodes: &[Node]) -> Result<BTreeMap<Shard, (usize, u64)>> {
    let mut owners = BTreeMap::new();
    for (n, node) in nodes.iter().enumerate() {
        let swept = swept_by(node).await?;
        owners.extend(swept.into_iter().map(|(shard, fence)| (shard, (n, fence))));
    }
    Ok(owners)
}
