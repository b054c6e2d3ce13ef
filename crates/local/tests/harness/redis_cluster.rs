//! Redis Clusters that are killed, paused, resharded and cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adsum_local::{ClusterOptions, RedisCluster, RedisNode, eventually};
use anyhow::{Context, Result, ensure};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncCommands, cmd};
use tokio::time::timeout;

const KEY: &str = "{room}";

async fn client(cluster: &RedisCluster) -> Result<ClusterConnection> {
    let client = ClusterClient::builder(cluster.urls()).retries(6).build()?;
    Ok(client.get_async_connection().await?)
}

/// Writes a key, waits until a replica has it too, and returns its slot.
async fn write_replicated(cluster: &RedisCluster) -> Result<u16> {
    let slot = cluster.slot_of(KEY).await?;
    let mut master = cluster.master_of(slot).await?.conn().await?;
    let () = master.set(KEY, "here").await?;
    let copies: u64 = cmd("WAIT")
        .arg(1)
        .arg(1000)
        .query_async(&mut master)
        .await?;
    ensure!(copies == 1, "the replica has no copy");
    Ok(slot)
}

/// Breaks the master of a slot by `breaking`, checks that its replica takes over with the data,
/// and that the old master comes back by `mending` as a replica of the new one.
async fn fail_over(
    breaking: fn(&RedisNode) -> Result<()>,
    mending: impl AsyncFnOnce(&RedisNode) -> Result<()>,
) -> Result<()> {
    let cluster = RedisCluster::start(3, 1).await?;
    let slot = write_replicated(&cluster).await?;
    let old = cluster.master_of(slot).await?;
    let broken = Instant::now();
    breaking(old)?;
    let new = cluster.wait_failover(slot, old).await?;
    println!("failover: {:?}", broken.elapsed());
    let value: String = new.conn().await?.get(KEY).await?;
    ensure!(value == "here");

    let mended = Instant::now();
    mending(old).await?;
    cluster.wait_settled().await?;
    println!("settled again: {:?}", mended.elapsed());
    ensure!(cluster.master_of(slot).await?.id() == new.id());
    let replicas = cluster.replicas_of(new).await?;
    ensure!(
        replicas.iter().any(|replica| replica.id() == old.id()),
        "the old one is not back"
    );
    Ok(())
}

#[tokio::test]
async fn a_cluster_serves_on_all_slots() -> Result<()> {
    let begun = Instant::now();
    let cluster = RedisCluster::start(3, 1).await?;
    println!("start of 3 masters and 3 replicas: {:?}", begun.elapsed());
    for node in cluster.nodes() {
        let info: String = node.query(cmd("CLUSTER").arg("INFO")).await?;
        ensure!(info.contains("cluster_slots_ok:16384"), "{info}");
    }
    let mut client = client(&cluster).await?;
    for key in 0..300 {
        let () = client.set(key, key).await?;
    }
    let masters = cluster.masters().await?;
    ensure!(masters.len() == 3);
    for master in masters {
        ensure!(master.query::<u64>(&cmd("DBSIZE")).await? > 50);
        ensure!(cluster.replicas_of(master).await?.len() == 1);
    }
    ensure!(cluster.used_memory().await? > 0 && cluster.cpu_seconds().await? > 0.0);
    cluster.function_flush().await?;
    cluster.flush_all().await?;
    ensure!(client.get::<_, Option<u32>>(1).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_replica_takes_over_from_a_killed_master() -> Result<()> {
    fail_over(
        |master| master.process().kill(),
        async |master| {
            master.process().restart().await?;
            master.wait_ready().await
        },
    )
    .await
}

#[tokio::test]
async fn a_replica_takes_over_from_a_paused_master() -> Result<()> {
    fail_over(
        |master| master.process().pause(),
        async |master| master.process().resume(),
    )
    .await
}

#[tokio::test]
async fn a_slot_moves_under_load_with_all_its_keys() -> Result<()> {
    const KEYS: usize = 200;
    let cluster = Arc::new(RedisCluster::start(3, 0).await?);
    let slot = cluster.slot_of(KEY).await?;
    let source = cluster.master_of(slot).await?;
    let target = cluster
        .nodes()
        .iter()
        .position(|node| node.id() != source.id());
    let target = target.context("three masters are more than one")?;
    let mut client = client(&cluster).await?;
    for key in 0..KEYS {
        let () = client.set(format!("{KEY}{key}"), 0).await?;
    }

    let mover = Arc::clone(&cluster);
    let mover = tokio::spawn(async move {
        let begun = Instant::now();
        mover
            .migrate_slot(slot, mover.node(target)?, Some(Duration::from_millis(10)))
            .await?;
        println!("migration of {KEYS} keys: {:?}", begun.elapsed());
        anyhow::Ok(())
    });
    let mut rounds = 0_u64;
    while !mover.is_finished() {
        for key in 0..KEYS {
            let () = client.incr(format!("{KEY}{key}"), 1).await?;
        }
        rounds += 1;
    }
    mover.await??;

    let target = cluster.node(target)?;
    let commands = target.info("commandstats").await?;
    ensure!(
        commands.contains_key("cmdstat_asking"),
        "no client met the slot half moved"
    );
    let mut moved = target.conn().await?;
    for key in 0..KEYS {
        let count: u64 = moved.get(format!("{KEY}{key}")).await?;
        ensure!(
            count == rounds,
            "key {key} was written {rounds} times and has {count}"
        );
    }
    let left: u64 = source
        .query(cmd("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot))
        .await?;
    ensure!(left == 0);
    Ok(())
}

#[tokio::test]
async fn clients_of_a_proxied_cluster_are_cut_off_while_its_nodes_are_not() -> Result<()> {
    let cluster = RedisCluster::start_proxied(3, 1).await?;
    let slot = write_replicated(&cluster).await?;
    let master = cluster.master_of(slot).await?;
    let mut client = client(&cluster).await?;
    let value: String = client.get(KEY).await?;
    ensure!(value == "here");

    master.proxy()?.cut();
    let answer = timeout(Duration::from_secs(1), client.get::<_, String>(KEY)).await;
    ensure!(
        !matches!(answer, Ok(Ok(_))),
        "a client got around the proxy"
    );
    let copy: String = master.conn().await?.get(KEY).await?;
    ensure!(copy == "here");

    master.proxy()?.heal();
    cluster.wait_settled().await?;
    ensure!(cluster.master_of(slot).await?.id() == master.id());
    let get = || async { Ok(client.clone().get::<_, String>(KEY).await?) };
    ensure!(eventually("the client is back", Duration::from_secs(10), get).await? == "here");
    Ok(())
}

#[tokio::test]
async fn two_clusters_run_in_parallel_and_a_third_waits_for_its_turn() -> Result<()> {
    let options = ClusterOptions {
        masters: 1,
        ..Default::default()
    };
    let (one, two) = RedisCluster::start_two(options.clone(), options).await?;
    let () = client(&one).await?.set(KEY, 1).await?;
    ensure!(
        client(&two)
            .await?
            .get::<_, Option<u32>>(KEY)
            .await?
            .is_none()
    );
    ensure!(one.urls().iter().all(|url| !two.urls().contains(url)));

    let mut third = Box::pin(RedisCluster::start(1, 0));
    ensure!(
        timeout(Duration::from_millis(300), &mut third)
            .await
            .is_err()
    );
    // Both: the next in the queue may be a test that wants two places, like this one.
    drop((one, two));
    let third = third.await?;
    ensure!(third.masters().await?.len() == 1);
    Ok(())
}
