//! The membership on etcd keeps the contract, and what is true of etcd only.

mod common;

use std::time::{Duration, Instant};

use adsum_cluster::conformance::{profile, until};
use adsum_cluster::{EtcdConfig, EtcdMembership};
use adsum_core::membership::Membership;
use adsum_local::{Ports, eventually, shared};
use anyhow::{Result, ensure};
use common::OnEtcd;

adsum_cluster::conformance!(OnEtcd::new(shared::etcd().await?.endpoints()));

#[tokio::test]
async fn an_etcd_that_does_not_answer_is_a_clear_error_at_start() -> Result<()> {
    let ports = Ports::default();
    let endpoint = format!("http://127.0.0.1:{}", ports.take()?);
    let config = EtcdConfig {
        connect_timeout: Duration::from_secs(1),
        ..EtcdConfig::new(vec![endpoint.clone()], "main")
    };
    let started = Instant::now();
    let Err(error) = EtcdMembership::connect(config, profile("one")).await else {
        anyhow::bail!("connected to nothing");
    };
    ensure!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    let text = error.to_string();
    ensure!(
        error.retry() && text.contains(&endpoint) && text.contains("refused"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn a_dead_endpoint_in_the_list_does_not_matter_at_start() -> Result<()> {
    let ports = Ports::default();
    let mut endpoints = vec![format!("127.0.0.1:{}", ports.take()?)];
    endpoints.extend(shared::etcd().await?.endpoints());
    let cluster = OnEtcd::new(endpoints);
    for name in ["one", "two", "three"] {
        let node = cluster.node(name).await?;
        ensure!(node.campaign(1).await?);
        node.leave().await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_entry_that_somebody_deleted_is_written_again() -> Result<()> {
    let cluster = OnEtcd::new(shared::etcd().await?.endpoints());
    let (one, two) = (cluster.node("one").await?, cluster.node("two").await?);
    let node = one.node();
    cluster
        .client()
        .await?
        .delete(cluster.key(&node), None)
        .await?;
    until(two.watch(), |members| !members.nodes.contains_key(&node)).await?;
    until(two.watch(), |members| members.nodes.contains_key(&node)).await?;
    ensure!(
        one.node() == node && !one.lease_left().is_zero(),
        "its lease was never in doubt"
    );
    Ok(())
}

/// The whole runtime stands still, as under SIGSTOP: nothing runs that could have noticed.
#[tokio::test]
async fn after_a_pause_longer_than_the_ttl_nothing_is_left() -> Result<()> {
    let cluster = OnEtcd::new(shared::etcd().await?.endpoints());
    let node = cluster.node("one").await?;
    let old = node.node();
    ensure!(node.campaign(1).await? && node.lease_left() <= common::TTL);
    std::thread::sleep(common::TTL + Duration::from_millis(100));
    ensure!(node.lease_left().is_zero());
    ensure!(
        node.prove(1).await.is_err_and(|error| error.retry()),
        "it has another lease by now"
    );
    until(node.watch_node(), common::other_than(&old)).await?;
    ensure!(
        !node.prove(1).await?,
        "what it owned, it owned under another name"
    );
    until(node.watch(), |members| members.nodes.len() == 1).await?;
    ensure!(node.campaign(1).await?);
    Ok(())
}

#[tokio::test]
async fn a_dropped_node_stops_renewing() -> Result<()> {
    let cluster = OnEtcd::new(shared::etcd().await?.endpoints());
    let node = cluster.node("one").await?;
    let key = cluster.key(&node.node());
    drop(node);
    let client = cluster.client().await?;
    eventually("the entry is gone", Duration::from_secs(10), async || {
        let found = client.clone().get(key.as_str(), None).await?;
        ensure!(found.count() == 0, "still there");
        Ok(())
    })
    .await
}
