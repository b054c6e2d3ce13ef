//! A gateway that is killed with thousands of clients on it.

use std::collections::HashSet;

use adsum_client::{Reason, Topic};
use anyhow::{Result, ensure};
use tokio::time::{Duration, Instant};

use crate::{
    crowd::{all_online, count_at, gather, mark},
    watcher::{Watcher, What},
    world::{World, scaled, url},
};

const STAY: usize = 2700;
const LOST: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn of_a_killed_gateways_clients_only_those_who_stay_away_are_told_and_once() -> Result<()> {
    let world = World::new("killed").await?;
    let (first, second) = (
        world.gateway("first").await?,
        world.gateway("second").await?,
    );
    let both = [url(&first), url(&second)];
    // Nobody can go anywhere else, so all are on the first.
    second.process().stop().await?;
    let clients = gather(0..STAY, &both).await?;
    let lost = gather(STAY..STAY + LOST, &both[..1]).await?;
    ensure!(count_at(&clients, &first.public().to_string()) == STAY);
    second.process().restart().await?;
    second.wait_up().await?;

    let watcher = Watcher::new("watcher", &[url(&second)], Topic::Tenant).await?;
    watcher.knows(STAY + LOST + 1).await?;
    world.settled().await?;
    watcher.forget();

    let killed = Instant::now();
    first.process().kill()?;
    all_online(&clients).await?;
    println!("{STAY} clients back after {:.1?}", killed.elapsed());
    watcher.knows(STAY + 1).await?;
    let _mark = mark("mark", &both[1..]).await?;
    watcher.hears_of("mark").await?;

    let seen = watcher.seen();
    let mut told = HashSet::new();
    let unexplained = seen.iter().filter(|s| s.what == What::Left(None)).count();
    println!("{unexplained} of {} told without a reason", seen.len());
    let mut times = Vec::new();
    for seen in seen.iter().filter(|s| s.user != "mark") {
        ensure!(seen.what == What::Left(Some(Reason::NodeLost)), "{seen:?}");
        ensure!(told.insert(seen.user.clone()), "told twice: {seen:?}");
        times.push(seen.at - killed);
    }
    times.sort_unstable();
    let last = times.last().copied().unwrap_or_default();
    println!(
        "{} told as lost: the first after {:.1?}, half after {:.1?}, the last after {last:.1?}",
        told.len(),
        times.first().copied().unwrap_or_default(),
        times.get(times.len() / 2).copied().unwrap_or_default(),
    );
    ensure!(told.len() == LOST, "{} were told", told.len());
    let away = |user: &String| {
        user.strip_prefix("user-")
            .unwrap()
            .parse::<usize>()
            .unwrap()
            >= STAY
    };
    ensure!(told.iter().all(away), "one who came back was told as lost");
    let bound = scaled(30_000) + Duration::from_secs(1);
    ensure!(last <= bound, "{last:?} is more than {bound:?}");
    drop(lost);
    Ok(())
}
