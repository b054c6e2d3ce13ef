//! One accepted sweeper per shard, also when an old one wakes up.

use std::time::Duration;

use adsum_core::membership::Membership;
use adsum_reaper::Idle;
use tokio::time::sleep;

use crate::spies::Asked;
use crate::waits::{until_left, until_owners};
use crate::world::{World, config, ms};

#[tokio::test]
async fn a_paused_reaper_is_refused_when_it_wakes() {
    let mut world = World::new(config(1));
    world.config.ownerless_grace = ms(100);
    world.config.call_timeout = Duration::from_secs(60);
    // Only the lease may take the shard from it.
    world.config.handover_after = Duration::from_secs(60);
    let a = world.start("a");
    a.until(|status| status.sweeps > 0).await;
    // It stops in the middle of a sweep: after it made sure of its lease, before the store.
    a.store.held_up.send_replace(Some(0));
    for user in world.users_of(0, "user").take(50) {
        world.open(user, "gw~1").await;
    }
    let old = a.id();
    let b = world.start("b");
    // The pause must have reached the sweep before the lease ends.
    sleep(world.config.sweep_interval * 2).await;
    assert!(world.cluster.expire(&old));
    let heir = b.until(|status| status.closed == 50).await.shards[&0].fence;

    a.store.held_up.send_replace(None);
    let status = a.until(|status| status.refusals == 1).await;
    assert_eq!(status.closed, 0);
    a.until(|status| status.losses == 1 && status.shards.is_empty())
        .await;
    assert_eq!(
        b.until(|_| true).await.shards[&0].fence,
        heir,
        "the heir was not disturbed"
    );
    until_left(&world, 50, &b.status).await;
    world.assert_single();
}

#[tokio::test]
async fn a_new_epoch_is_proved_claimed_and_settled_before_anything_is_closed() {
    let world = World::new(config(1));
    let a = world.start("a");
    let before = a.until(|status| status.sweeps > 0).await.shards[&0]
        .fence
        .unwrap();
    world.touch(world.user("ann"), 1).await;
    world.store.fail_over(0);
    a.until(|status| status.shards[&0].idle == Some(Idle::Settling))
        .await;
    let status = a
        .until(|status| status.closed == 1 && status.shards[&0].idle.is_none())
        .await;
    let after = status.shards[&0].fence.unwrap();
    assert!(after > before && after.epoch > before.epoch);
    assert_eq!(status.refusals, 1);
    let asked: Vec<_> = world.asked().into_iter().map(|(_, asked)| asked).collect();
    let refused = asked
        .iter()
        .position(|asked| matches!(asked, Asked::Sweep(0, _, None)));
    assert_eq!(
        asked[refused.unwrap() + 1..][..2],
        [Asked::Prove(0), Asked::Claim(0)]
    );
}

#[tokio::test]
async fn an_election_that_vanished_is_noticed() {
    let world = World::new(config(1));
    let a = world.start("a");
    a.until(|status| status.sweeps > 0).await;
    // Somebody deletes the key behind the reaper's back, and nobody takes the shard.
    a.membership.inner.resign(0).await.unwrap();
    a.until(|status| status.losses == 1).await;
    let status = a
        .until(|status| status.elections == 2 && status.shards[&0].fence.is_some())
        .await;
    assert_eq!(status.refusals, 0);
}

#[tokio::test]
async fn nodes_that_come_go_and_lose_their_leases_tell_every_departure_once() {
    let mut world = World::new(config(16));
    world.config.ownerless_grace = ms(100);
    world.config.handover_again = ms(100);
    let mut nodes = vec![world.start("n0"), world.start("n1"), world.start("n2")];
    let mut opened = 0;
    for round in 0..40_usize {
        for _ in 0..25 {
            let user = world.user(&format!("user-{opened}"));
            match opened % 2 {
                0 => drop(world.touch(user, rand_ms(1, 300)).await),
                _ => world.open(user, &format!("gw~{}", opened / 25)).await,
            }
            opened += 1;
        }
        sleep(ms(rand_ms(20, 60))).await;
        let victim = usize::try_from(rand_ms(0, 2)).unwrap();
        match round % 4 {
            0 => assert!(world.cluster.expire(&nodes[victim].id())),
            1 => nodes.swap_remove(victim).kill().await,
            2 => nodes.push(world.start(&format!("n{}", round + 3))),
            _ => {
                // Somebody is slow: its sweep of a shard arrives when others may own it.
                let shard = u16::try_from(rand_ms(0, 15)).unwrap();
                nodes[victim].store.held_up.send_replace(Some(shard));
            }
        }
    }
    for node in &nodes {
        node.store.held_up.send_replace(None);
    }
    let watcher = &nodes[0].membership;
    until_owners(&**watcher, |owners| owners.len() == 16).await;
    until_left(&world, opened, &nodes[0].status).await;
    world.assert_single();
    let asked = world.asked();
    let count = |wanted: fn(&Asked) -> bool| asked.iter().filter(|(_, a)| wanted(a)).count();
    let refused = count(|asked| matches!(asked, Asked::Sweep(_, _, None)));
    let claims = count(|asked| matches!(asked, Asked::Claim(_)));
    println!(
        "{opened} departures, {} calls, {claims} claims, {refused} refused",
        asked.len()
    );
}

fn rand_ms(from: u64, to: u64) -> u64 {
    rand::random_range(from..=to)
}
