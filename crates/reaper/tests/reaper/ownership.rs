//! Who sweeps what: one owner for each shard, evenly, whoever comes and goes.

use std::time::{Duration, Instant};

use adsum_core::membership::Membership;

use crate::waits::{until_left, until_owners, until_placed};
use crate::world::{World, config, ms};

#[tokio::test]
async fn every_shard_has_one_owner_and_none_has_too_many() {
    let world = World::new(config(64));
    let nodes = [world.start("a"), world.start("b"), world.start("c")];
    let began = Instant::now();
    until_placed(
        &*nodes[0].membership,
        64,
        nodes.iter().map(|n| n.id()).collect(),
    )
    .await;
    println!("64 shards placed on 3 nodes after {:?}", began.elapsed());
    let mut shards = Vec::new();
    for node in &nodes {
        // The placement is right as soon as all were elected; wait for the fences too.
        let status = node
            .until(|s| s.shards.len() == s.placed && s.shards.values().all(|s| s.last.is_some()))
            .await;
        assert!(
            status.shards.len() <= (64 * 5_usize).div_ceil(3 * 4),
            "{}",
            status.shards.len()
        );
        assert!(
            status
                .shards
                .values()
                .all(|shard| shard.fence.is_some() && shard.idle.is_none())
        );
        assert_eq!((status.candidates, status.idle()), (3, None));
        shards.extend(status.shards.into_keys());
    }
    shards.sort_unstable();
    assert_eq!(shards, (0..64).collect::<Vec<_>>());
    world.assert_single();
}

#[tokio::test]
async fn a_killed_reapers_shards_are_taken_over() {
    let world = World::new(config(64));
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    until_placed(&*a.membership, 64, vec![a.id(), b.id(), c.id()]).await;
    for user in 0..200 {
        world
            .open(world.user(&format!("user-{user}")), "gw~1")
            .await;
    }
    c.kill().await;
    let died = Instant::now();
    until_placed(&*a.membership, 64, vec![a.id(), b.id()]).await;
    println!("taken over {:?} after the lease ended", died.elapsed());
    assert!(died.elapsed() < Duration::from_secs(3));
    until_left(&world, 200, &a.status).await;
    world.assert_single();
}

#[tokio::test]
async fn a_drained_reaper_hands_over_within_a_second_although_it_stays_a_member() {
    let world = World::new(config(64));
    let (a, b, c) = (world.start("a"), world.start("b"), world.start("c"));
    until_placed(&*a.membership, 64, vec![a.id(), b.id(), c.id()]).await;
    let began = Instant::now();
    let drained = c.drain().await;
    println!("resigned after {:?}", began.elapsed());
    until_placed(&*a.membership, 64, vec![a.id(), b.id()]).await;
    println!("handed over after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(a.membership.members().nodes.contains_key(&drained.node()));
    a.until(|status| status.candidates == 2).await;
    world.assert_single();
}

#[tokio::test]
async fn what_a_silent_node_does_not_take_is_taken_after_the_grace() {
    let mut world = World::new(config(16));
    world.config.ownerless_grace = ms(200);
    // A member with the role of a reaper whose reaper never starts.
    let (_store, silent) = world.join("silent");
    let began = Instant::now();
    let a = world.start("a");
    until_owners(&*a.membership, |owners| {
        owners.len() < 16 && !owners.is_empty()
    })
    .await;
    until_owners(&*a.membership, |owners| owners.len() == 16).await;
    println!("all taken after {:?}", began.elapsed());
    assert!(began.elapsed() >= ms(200));
    assert!(
        !silent
            .owners()
            .values()
            .any(|owner| *owner == silent.node())
    );
}

#[tokio::test]
async fn a_newcomer_gets_its_share_and_no_departure_is_told_twice() {
    let world = World::new(config(32));
    let a = world.start("a");
    until_placed(&*a.membership, 32, vec![a.id()]).await;
    for user in 0..500 {
        world
            .touch(world.user(&format!("user-{user}")), user * 2)
            .await;
    }
    let b = world.start("b");
    let began = Instant::now();
    until_placed(&*a.membership, 32, vec![a.id(), b.id()]).await;
    println!("the newcomer has its share after {:?}", began.elapsed());
    until_left(&world, 500, &b.status).await;
    let status = a.status.borrow().clone();
    assert!(status.handovers > 0 && status.losses == 0);
    world.assert_single();
}
