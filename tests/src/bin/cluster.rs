//! A whole cluster on this machine, as real processes: 6 Redis, 3 etcd, 3 gateways and
//! 3 dispatchers with reapers. Stops cleanly on Ctrl-C, and leaves nothing behind.
//!
//! Usage: `cluster <adsum binary>`; `make cluster` builds it first.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::{Duration, Instant};

use adsum_tests::{EtcdCluster, Node, NodeOptions, RedisCluster, TestDir, eventually};
use anyhow::{Context, Result, ensure};

const NODES: [(&str, &str); 6] = [
    ("dispatcher-0", "dispatcher,reaper"),
    ("dispatcher-1", "dispatcher,reaper"),
    ("dispatcher-2", "dispatcher,reaper"),
    ("gateway-0", "gateway"),
    ("gateway-1", "gateway"),
    ("gateway-2", "gateway"),
];

#[tokio::main]
async fn main() -> Result<()> {
    let binary = std::env::args()
        .nth(1)
        .context("usage: cluster <adsum binary>")?;
    ensure!(
        Path::new(&binary).exists(),
        "{binary} does not exist: run `make cluster`"
    );
    let start = Instant::now();
    println!("starting 6 Redis and 3 etcd …");
    let (redis, etcd) = tokio::try_join!(RedisCluster::start(3, 1), EtcdCluster::start(3))?;
    let logs = TestDir::new("cluster")?;
    println!("starting {} nodes …", NODES.len());
    let mut nodes = Vec::new();
    for (name, roles) in NODES {
        // The real times: this is a cluster to look at, not a test.
        let options = NodeOptions {
            settings: Vec::new(),
            ..NodeOptions::fast(&binary, name, roles)
        };
        let options = options.in_cluster(&redis.urls(), &etcd.endpoints());
        nodes.push(Node::start(logs.path(), &options).await?);
    }
    let gateways: Vec<_> = nodes
        .iter()
        .filter(|n| n.name().starts_with("gateway"))
        .collect();
    eventually("every gateway is fed", Duration::from_secs(60), || async {
        for gateway in &gateways {
            let ready = gateway.readyz().await?;
            ensure!(
                ready["gateway"]["stale_shards"] == 0,
                "{} waits",
                gateway.name()
            );
        }
        Ok(())
    })
    .await?;
    print_addresses(&redis, &etcd, &nodes, &logs, start);
    tokio::signal::ctrl_c().await?;
    println!("\nstopping …");
    // Gateways first, so that nobody looks for a dispatcher that is gone.
    for node in nodes.iter().rev() {
        node.process().stop().await?;
    }
    println!("stopped");
    Ok(())
}

fn print_addresses(
    redis: &RedisCluster,
    etcd: &EtcdCluster,
    nodes: &[Node],
    logs: &TestDir,
    start: Instant,
) {
    println!("up after {:.1} s\n", start.elapsed().as_secs_f64());
    println!("  redis   {}", redis.urls().join(" "));
    println!("  etcd    {}", etcd.endpoints().join(" "));
    for node in nodes {
        println!("  {:<14} http://{}/readyz", node.name(), node.internal());
    }
    println!("\nclients, from this machine without signed tokens:");
    let gateways = nodes.iter().filter(|n| n.name().starts_with("gateway"));
    for (gateway, user) in gateways.zip(["ann", "bob", "eve"]) {
        let server = gateway.public();
        println!("  adsum join lobby --as {user} --server ws://{server}");
    }
    println!("\n  logs    {}/*.log", logs.path().display());
    println!("  shards  http://{}/admin/shards", nodes[0].internal());
    println!("\nCtrl-C stops it");
}
