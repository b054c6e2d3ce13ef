//! A rolling restart: every gateway in turn is told to go, and started again.

use std::time::Duration;

use adsum_client::Topic;
use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::{
    crowd::{all_online, gather, mark},
    watcher::Watcher,
    world::{World, scaled, url},
};

const CLIENTS: usize = 3000;

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_three_gateways_is_seen_by_nobody() -> Result<()> {
    let world = World::new("rolling").await?;
    let quiet = world.gateway("quiet").await?;
    let mut gateways = Vec::new();
    for n in 1..=3 {
        gateways.push(world.gateway(&format!("gateway-{n}")).await?);
    }
    let urls: Vec<_> = gateways.iter().map(url).collect();
    let start = Instant::now();
    let clients = gather(0..CLIENTS, &urls).await?;
    println!("{CLIENTS} clients connected in {:.1?}", start.elapsed());

    let aside = Watcher::new("aside", &[url(&quiet)], Topic::Tenant).await?;
    let amid = Watcher::new("amid", &urls, Topic::Tenant).await?;
    aside.knows(CLIENTS + 2).await?;
    amid.knows(CLIENTS + 2).await?;
    world.settled().await?;
    aside.forget();
    amid.forget();

    for gateway in &gateways {
        let start = Instant::now();
        gateway.process().stop_within(scaled(40_000)).await?;
        println!(
            "{} drained and gone in {:.1?}",
            gateway.name(),
            start.elapsed()
        );
        ensure!(start.elapsed() < scaled(35_000), "it had to be killed");
        gateway.process().restart().await?;
        gateway.wait_up().await?;
    }
    all_online(&clients).await?;
    // Whatever deadlines were left behind have passed.
    tokio::time::sleep(scaled(30_000) + Duration::from_secs(1)).await;
    let _mark = mark("mark", &urls).await?;
    for (name, watcher) in [("aside", &aside), ("amid", &amid)] {
        watcher.hears_of("mark").await?;
        let seen = watcher.seen();
        let others: Vec<_> = seen.iter().filter(|s| s.user != "mark").collect();
        ensure!(
            others.is_empty(),
            "{name} saw {} things, such as {:?}",
            others.len(),
            &others[..others.len().min(5)]
        );
        watcher.knows(CLIENTS + 3).await?;
    }
    Ok(())
}
