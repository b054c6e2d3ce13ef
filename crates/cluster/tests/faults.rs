//! What happens to a node when etcd, or the way to it, breaks. Real processes.

#![allow(clippy::print_stdout, reason = "the times are worth reading")]

mod common;

use std::time::{Duration, Instant};

use adsum_cluster::conformance::{profile, until};
use adsum_cluster::{EtcdConfig, EtcdMembership};
use adsum_core::membership::Membership;
use adsum_local::{Direction, EtcdCluster, Proxy, eventually};
use anyhow::{Context, Result, ensure};
use common::{OnEtcd, TTL, other_than};
use futures::{FutureExt, StreamExt};
use tokio::time::sleep_until;

const SOON: Duration = Duration::from_secs(15);

/// Watches a node for longer than its lease lives: its lease never runs out, its id and the
/// members don't change, and it can be elected.
async fn notices_nothing(node: &EtcdMembership, ttl: Duration, shard: u16) -> Result<()> {
    let (mut ids, mut members) = (node.watch_node(), node.watch());
    ids.next().await.context("the id")?;
    members.next().await.context("the members")?;
    let mut least = ttl;
    let end = Instant::now() + ttl + Duration::from_millis(500);
    let asked = Instant::now();
    ensure!(node.campaign(shard).await? && node.prove(shard).await?);
    let answered = asked.elapsed();
    while Instant::now() < end {
        least = least.min(node.lease_left());
        ensure!(!least.is_zero(), "the lease ran out");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ensure!(ids.next().now_or_never().is_none(), "the id changed");
    let changed = members.next().now_or_never();
    ensure!(changed.is_none(), "the members changed: {changed:?}");
    println!("elected in {answered:?}, the lease had {least:?} left at the least");
    Ok(())
}

#[tokio::test]
async fn one_of_three_killed_is_not_noticed() -> Result<()> {
    let etcd = EtcdCluster::start(3).await?;
    let cluster = OnEtcd {
        ttl: Duration::from_secs(3),
        ..OnEtcd::new(etcd.endpoints())
    };
    let nodes = (cluster.node("one").await?, cluster.node("two").await?);
    until(nodes.0.watch(), |members| members.nodes.len() == 2).await?;
    for index in 0..3 {
        let member = etcd.member(index)?;
        member.process().kill()?;
        let shard = u16::try_from(index)?;
        tokio::try_join!(
            notices_nothing(&nodes.0, cluster.ttl, shard),
            notices_nothing(&nodes.1, cluster.ttl, shard + 3),
        )?;
        member.process().restart().await?;
        member.wait_ready().await?;
    }
    Ok(())
}

/// Worse than dead: connections stay open, and nothing is answered.
#[tokio::test]
async fn one_of_three_paused_is_not_noticed() -> Result<()> {
    let etcd = EtcdCluster::start(3).await?;
    let cluster = OnEtcd {
        ttl: Duration::from_secs(3),
        ..OnEtcd::new(etcd.endpoints())
    };
    let nodes = (cluster.node("one").await?, cluster.node("two").await?);
    until(nodes.0.watch(), |members| members.nodes.len() == 2).await?;
    for index in 0..3 {
        let member = etcd.member(index)?;
        member.process().pause()?;
        let shard = u16::try_from(index)?;
        tokio::try_join!(
            notices_nothing(&nodes.0, cluster.ttl, shard),
            notices_nothing(&nodes.1, cluster.ttl, shard + 3),
        )?;
        // Not resumed: the etcd we test with (3.4.23) may end our leases then, when the leader of
        // before wakes up and believes that they have run out (etcd's issue 15247).
        member.process().kill()?;
        member.process().restart().await?;
        member.wait_ready().await?;
    }
    Ok(())
}

#[tokio::test]
async fn all_of_etcd_stopped_and_started_again() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    let cluster = OnEtcd::new(etcd.endpoints());
    let (one, two) = (cluster.node("one").await?, cluster.node("two").await?);
    until(one.watch(), |members| members.nodes.len() == 2).await?;
    let old = one.node();
    ensure!(one.campaign(1).await?);

    etcd.kill_all()?;
    let killed = Instant::now();
    sleep_until((killed + TTL).into()).await;
    ensure!(one.lease_left().is_zero(), "in time, whatever etcd does");
    until(one.watch_node(), Option::is_none).await?;
    let members = until(one.watch(), |members| members.stale).await?;
    println!("stale {:?} after the kill", killed.elapsed());
    ensure!(
        members.nodes.contains_key(&old) && members.nodes.len() == 2,
        "kept as last known"
    );
    ensure!(one.owners().get(&1) == Some(&old));
    ensure!(one.campaign(2).await.is_err_and(|error| error.retry()));
    ensure!(one.prove(1).await.is_err_and(|error| error.retry()));
    ensure!(one.resign(1).await.is_err_and(|error| error.retry()));

    etcd.restart_all().await?;
    let back = Instant::now();
    let new = until(one.watch_node(), other_than(&old))
        .await?
        .context("a node")?;
    let settled = |members: &std::sync::Arc<adsum_core::membership::Members>| {
        !members.stale && members.nodes.len() == 2 && members.nodes.contains_key(&new)
    };
    until(one.watch(), settled).await?;
    until(two.watch(), settled).await?;
    ensure!(two.campaign(1).await?, "what the lost lease held is free");
    println!("all as before {:?} after etcd was back", back.elapsed());
    ensure!(back.elapsed() < SOON);
    Ok(())
}

#[tokio::test]
async fn etcd_wiped_and_started_again_is_joined_again() -> Result<()> {
    let etcd = EtcdCluster::start(3).await?;
    let cluster = OnEtcd::new(etcd.endpoints());
    let (one, two) = (cluster.node("one").await?, cluster.node("two").await?);
    cluster.age(100).await?;
    until(one.watch(), |members| members.nodes.len() == 2).await?;
    let (old, old_two, watched) = (one.node(), two.node(), two.watch());
    ensure!(one.campaign(1).await?);
    // The revision that the nodes have heard of is above any that the empty etcd will soon have.
    until(two.watch_owners(), |owners| owners.len() == 1).await?;

    let shrank = tokio::spawn(async move {
        let mut watched = watched;
        until(&mut watched, |members| members.nodes.len() < 2).await
    });
    etcd.wipe_and_restart().await?;
    let back = Instant::now();
    let new = until(one.watch_node(), other_than(&old))
        .await?
        .context("a node")?;
    until(two.watch_node(), other_than(&old_two)).await?;
    ensure!(one.campaign(1).await? && !two.campaign(1).await?);
    let again = |members: &std::sync::Arc<adsum_core::membership::Members>| {
        !members.stale && members.nodes.len() == 2 && members.nodes.contains_key(&new)
    };
    until(one.watch(), again).await?;
    until(two.watch(), again).await?;
    println!(
        "joined and elected {:?} after the empty etcd was ready",
        back.elapsed()
    );
    ensure!(back.elapsed() < SOON);
    ensure!(
        !shrank.is_finished(),
        "{:?} were enough for somebody",
        shrank.await?
    );
    shrank.abort();
    Ok(())
}

#[tokio::test]
async fn compaction_while_the_watch_is_cut_is_survived() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    let cluster = OnEtcd {
        ttl: Duration::from_secs(10),
        ..OnEtcd::new(etcd.endpoints())
    };
    let proxy = Proxy::start(
        etcd.member(0)?
            .endpoint()
            .trim_start_matches("http://")
            .parse()?,
    )?;
    let behind = cluster
        .node_via("behind", format!("http://{}", proxy.address()))
        .await?;
    let gone = cluster.node("gone").await?;
    until(behind.watch(), |members| members.nodes.len() == 2).await?;

    proxy.cut();
    until(behind.watch(), |members| members.stale).await?;
    gone.leave().await?;
    let new = cluster.node("new").await?;
    ensure!(new.campaign(1).await?);
    cluster.age(5).await?;
    let mut client = cluster.client().await?;
    let revision = client
        .get("/other", None)
        .await?
        .header()
        .context("header")?
        .revision();
    client.compact(revision, None).await?;
    proxy.heal();

    let is_new = |owner: &adsum_core::NodeId| *owner == new.node();
    until(behind.watch_owners(), |owners| {
        owners.get(&1).is_some_and(is_new)
    })
    .await?;
    until(behind.watch(), |members| {
        !members.stale
            && members.nodes.len() == 2
            && members.nodes.contains_key(&new.node())
            && members.nodes.contains_key(&behind.node())
    })
    .await?;
    Ok(())
}

/// A watch whose answers are lost says nothing, and breaks nothing: the check finds out, long
/// before HTTP/2's keepalive does (after 9 s).
#[tokio::test]
async fn a_silent_watch_is_found_out() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    let target = etcd.member(0)?.endpoint();
    let target = target.trim_start_matches("http://").parse()?;
    let (proxies, direct) = (
        [Proxy::start(target)?, Proxy::start(target)?],
        OnEtcd::new(etcd.endpoints()),
    );
    let behind = EtcdConfig {
        endpoints: proxies
            .iter()
            .map(|proxy| proxy.address().to_string())
            .collect(),
        lease_ttl: Duration::from_secs(30),
        ..direct.config()
    };
    let node = EtcdMembership::connect(behind, profile("behind")).await?;
    let other = direct.node("other").await?;
    until(node.watch(), |members| members.nodes.len() == 2).await?;
    // One of the two carries the watch.
    for (shard, proxy) in (1..).zip(&proxies) {
        proxy.blackhole(Direction::ToClient);
        ensure!(other.campaign(shard).await?);
        let changed = Instant::now();
        until(node.watch_owners(), |owners| owners.contains_key(&shard)).await?;
        println!("seen after {:?}", changed.elapsed());
        ensure!(changed.elapsed() < Duration::from_secs(6));
        ensure!(!node.members().stale);
        proxy.heal();
    }
    Ok(())
}

/// A node cut off knows that its lease is over before anybody else can have its shard.
#[tokio::test]
async fn a_node_cut_off_gives_up_before_others_take_over() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    let cluster = OnEtcd::new(etcd.endpoints());
    let proxy = Proxy::start(
        etcd.member(0)?
            .endpoint()
            .trim_start_matches("http://")
            .parse()?,
    )?;
    let cut = cluster
        .node_via("cut", format!("http://{}", proxy.address()))
        .await?;
    let other = cluster.node("other").await?;
    let old = cut.node();
    ensure!(cut.campaign(1).await? && !other.campaign(1).await?);

    proxy.blackhole(Direction::Both);
    eventually("the shard is taken", SOON, async || {
        ensure!(other.campaign(1).await?, "not yet");
        Ok(())
    })
    .await?;
    let left = cut.lease_left();
    ensure!(left.is_zero(), "{left:?} left when it was taken");

    proxy.heal();
    until(cut.watch_node(), other_than(&old)).await?;
    ensure!(!cut.campaign(1).await? && other.prove(1).await?);
    Ok(())
}

/// Only the answers of etcd are lost: keepalives still arrive, and the node must not count on it.
#[tokio::test]
async fn keepalives_without_an_answer_do_not_count() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    let cluster = OnEtcd::new(etcd.endpoints());
    let proxy = Proxy::start(
        etcd.member(0)?
            .endpoint()
            .trim_start_matches("http://")
            .parse()?,
    )?;
    let node = cluster
        .node_via("deaf", format!("http://{}", proxy.address()))
        .await?;
    let old = node.node();
    proxy.blackhole(Direction::ToClient);
    let cut = Instant::now();
    sleep_until((cut + TTL).into()).await;
    ensure!(node.lease_left().is_zero());
    until(node.watch_node(), Option::is_none).await?;
    proxy.heal();
    until(node.watch_node(), other_than(&old)).await?;
    let alone = |members: &std::sync::Arc<adsum_core::membership::Members>| {
        !members.stale && members.nodes.len() == 1 && members.nodes.contains_key(&node.node())
    };
    until(node.watch(), alone).await?;
    Ok(())
}
