//! A mass expiry is worked off in bounded steps, and starves nobody.

use std::collections::BTreeMap;
use std::time::Instant;

use adsum_core::Incarnation;
use adsum_core::store::{Lease, Store};
use adsum_store::{MemoryStore, Options};

use crate::spies::Asked;
use crate::world::{World, config, ms, options};

const MASS: usize = 20_000;

#[tokio::test]
async fn a_mass_expiry_in_one_shard_does_not_delay_the_others() {
    let mut world = World::new(config(8));
    // One sweep at a time, each as slow as a script that closes 500: the worst case.
    world.config.concurrent_sweeps = 1;
    world.work = ms(20);
    world.store = MemoryStore::embedded(Options {
        holder_ms: 60_000,
        ..options(8)
    });
    for user in world.users_of(0, "mass").take(MASS) {
        world.open(user, "gw~1").await;
    }
    let (holder, soon) = (Incarnation::new("gw~1").unwrap(), Lease::Drain(200));
    world.store.renew(0, &holder, soon).await.unwrap();
    let mut deadlines = BTreeMap::new();
    for shard in 1..8 {
        for (number, user) in (1..).zip(world.users_of(shard, "other").take(20)) {
            let deadline = world.touch(user.clone(), 200 + 60 * number).await;
            deadlines.insert(user, deadline);
        }
    }
    let all = u64::try_from(MASS + deadlines.len()).unwrap();
    let a = world.start("a");
    let began = Instant::now();
    a.until(|status| status.closed == all).await;
    println!("{all} sessions closed in {:?}", began.elapsed());

    let departures = world.departures().await;
    assert_eq!(departures.len() as u64, all);
    assert!(departures.values().all(|told| told.len() == 1));
    let late = |(user, deadline): (_, &u64)| departures[user][0].saturating_sub(*deadline);
    let late = deadlines.iter().map(late).max().unwrap();
    println!("the latest of the other shards left {late} ms after its deadline");
    assert!(late < 1_000, "{late}");

    let asked = world.asked();
    let sweeps = asked.iter().filter_map(|(_, asked)| match asked {
        Asked::Sweep(shard, _, Some(closed)) => Some((*shard, *closed)),
        _ => None,
    });
    let sweeps: Vec<_> = sweeps.collect();
    assert!(sweeps.iter().all(|(_, closed)| *closed <= 500));
    assert!(sweeps.iter().filter(|(shard, _)| *shard == 0).count() >= MASS / 500);
}

#[tokio::test]
async fn a_shard_that_hangs_does_not_keep_the_others_waiting() {
    let mut world = World::new(config(4));
    world.config.concurrent_sweeps = 1;
    let a = world.start("a");
    a.until(|s| s.shards.len() == 4 && s.shards.values().all(|s| s.last.is_some()))
        .await;
    a.store.held_up.send_replace(Some(0));
    // Now the sweep of shard 0 holds the only turn, and will not come back.
    tokio::time::sleep(world.config.sweep_interval).await;
    let user = world.users_of(1, "user").next().unwrap();
    let deadline = world.touch(user.clone(), 1).await;
    a.until(|status| status.closed == 1).await;
    let late = world.departures().await[&user][0] - deadline;
    println!("left {late} ms after its deadline");
    assert!(late < 1_000, "{late}");
    let status = a.status.borrow().clone();
    assert!(status.shards[&0].last.unwrap().answered < status.shards[&1].last.unwrap().answered);
}
