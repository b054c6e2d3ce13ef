//! A gateway that freezes past its deadline, and wakes when its clients are long elsewhere.

use adsum_client::Topic;
use anyhow::{Result, ensure};
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    crowd::{all_online, count_at, gather, mark},
    watcher::Watcher,
    world::{World, scaled, url},
};

const CLIENTS: usize = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_wakes_after_40_seconds_harms_nobody() -> Result<()> {
    let world = World::new("frozen").await?;
    let (first, second) = (
        world.gateway("first").await?,
        world.gateway("second").await?,
    );
    let both = [url(&first), url(&second)];
    second.process().stop().await?;
    let clients = gather(0..CLIENTS, &both).await?;
    second.process().restart().await?;
    second.wait_up().await?;
    let watcher = Watcher::new("watcher", &[url(&second)], Topic::Tenant).await?;
    watcher.knows(CLIENTS + 1).await?;
    world.settled().await?;
    watcher.forget();

    let frozen = Instant::now();
    first.process().pause()?;
    adsum_tests::eventually("all clients have moved", scaled(40_000), || async {
        let moved = count_at(&clients, &second.public().to_string());
        ensure!(moved == CLIENTS, "{moved} have");
        Ok(())
    })
    .await?;
    println!("{CLIENTS} clients had moved after {:.1?}", frozen.elapsed());
    sleep_until(frozen + scaled(40_000)).await;
    first.process().resume()?;

    // It finds its sockets broken and its sessions superseded; whatever it would do about them
    // it has done by then.
    tokio::time::sleep(scaled(45_000) + Duration::from_secs(1)).await;
    all_online(&clients).await?;
    let _mark = mark("mark", &both[1..]).await?;
    watcher.hears_of("mark").await?;
    let seen = watcher.seen();
    let others: Vec<_> = seen.iter().filter(|s| s.user != "mark").collect();
    ensure!(
        others.is_empty(),
        "{} things were seen, such as {:?}",
        others.len(),
        &others[..others.len().min(5)]
    );
    watcher.knows(CLIENTS + 2).await?;
    ensure!(count_at(&clients, &second.public().to_string()) == CLIENTS);
    Ok(())
}
