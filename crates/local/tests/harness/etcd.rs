//! etcd that loses a member, a restart, or everything.

use std::time::Instant;

use adsum_local::{EtcdCluster, EtcdMember};
use anyhow::{Result, ensure};
use serde_json::json;

/// "key" and "value" in base64.
const KEY: &str = "a2V5";
const VALUE: &str = "dmFsdWU=";

async fn put(member: &EtcdMember) -> Result<()> {
    let answer = member
        .call("/v3/kv/put", &json!({"key": KEY, "value": VALUE}))
        .await?;
    ensure!(answer["header"].is_object(), "{answer}");
    Ok(())
}

async fn has_value(member: &EtcdMember) -> Result<bool> {
    let answer = member.call("/v3/kv/range", &json!({"key": KEY})).await?;
    ensure!(answer["header"].is_object(), "{answer}");
    Ok(answer["kvs"][0]["value"] == VALUE)
}

#[tokio::test]
async fn etcd_survives_the_loss_of_its_leader() -> Result<()> {
    let begun = Instant::now();
    let etcd = EtcdCluster::start(3).await?;
    println!("start of three: {:?}", begun.elapsed());
    put(etcd.member(0)?).await?;

    let leader = etcd.leader().await?;
    leader.process().kill()?;
    let killed = Instant::now();
    etcd.wait_ready().await?;
    println!("ready without the leader: {:?}", killed.elapsed());
    let successor = etcd.leader().await?;
    ensure!(successor.endpoint() != leader.endpoint());
    ensure!(has_value(successor).await?);
    put(successor).await?;

    leader.process().restart().await?;
    etcd.wait_ready().await?;
    ensure!(has_value(leader).await?);
    Ok(())
}

#[tokio::test]
async fn etcd_keeps_its_data_when_all_are_killed_and_restarted() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    put(etcd.member(0)?).await?;
    etcd.kill_all()?;
    ensure!(has_value(etcd.member(0)?).await.is_err());
    etcd.restart_all().await?;
    ensure!(has_value(etcd.member(0)?).await?);
    Ok(())
}

#[tokio::test]
async fn etcd_wiped_and_restarted_serves_without_its_data() -> Result<()> {
    let etcd = EtcdCluster::start(3).await?;
    let endpoints = etcd.endpoints();
    put(etcd.member(0)?).await?;
    let begun = Instant::now();
    etcd.wipe_and_restart().await?;
    println!("wiped and restarted: {:?}", begun.elapsed());
    ensure!(etcd.endpoints() == endpoints);
    ensure!(!has_value(etcd.member(1)?).await?);
    put(etcd.member(1)?).await?;
    ensure!(has_value(etcd.member(2)?).await?);
    Ok(())
}
