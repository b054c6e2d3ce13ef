//! No sweep without a lease that is certain, and none after it without a proof.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use adsum_reaper::Idle;
use tokio::time::sleep;

use crate::spies::Asked;
use crate::waits::until_left;
use crate::world::{World, config, ms};

fn idle(status: &adsum_reaper::ReaperStatus, idle: Idle) -> bool {
    !status.shards.is_empty() && status.shards.values().all(|shard| shard.idle == Some(idle))
}

#[tokio::test]
async fn without_a_certain_lease_nothing_is_asked_of_the_store() {
    let world = World::new(config(4));
    let (store, membership) = world.join("a");
    // Exactly the margin is not enough.
    *membership.left.lock().unwrap() = Some(world.config.lease_margin);
    let a = world.run((store, membership));
    let status = a
        .until(|status| status.shards.len() == 4 && idle(status, Idle::NoLease))
        .await;
    assert_eq!((status.idle(), status.sweeps), (Some(Idle::NoLease), 0));
    sleep(world.config.sweep_interval * 3).await;
    assert_eq!(world.asked(), []);

    *a.membership.left.lock().unwrap() = None;
    a.until(|status| status.shards.values().all(|shard| shard.last.is_some()))
        .await;
    for shard in 0..4 {
        let asked = world.asked();
        let of_shard = |asked: &&Asked| match asked {
            Asked::Prove(s) | Asked::Claim(s) | Asked::Sweep(s, ..) => *s == shard,
        };
        let mut asked = asked.iter().map(|(_, asked)| asked).filter(of_shard);
        assert_eq!(asked.next(), Some(&Asked::Prove(shard)));
        assert_eq!(asked.next(), Some(&Asked::Claim(shard)));
    }
}

#[tokio::test]
async fn a_lease_that_was_doubtful_is_proved_and_a_new_fence_claimed() {
    let world = World::new(config(1));
    let a = world.start("a");
    let before = a.until(|status| status.sweeps > 0).await.shards[&0].fence;
    *a.membership.left.lock().unwrap() = Some(Duration::ZERO);
    let status = a.until(|status| idle(status, Idle::NoLease)).await;
    assert_eq!(
        status.shards[&0].fence, None,
        "the shard is kept in mind, its fence is not"
    );
    let asked = world.asked().len();
    world.touch(world.user("ann"), 1).await;
    sleep(world.config.sweep_interval * 3).await;
    assert_eq!(world.asked().len(), asked);

    *a.membership.left.lock().unwrap() = None;
    let status = a.until(|status| status.closed == 1).await;
    assert!(status.shards[&0].fence > before);
    assert_eq!(
        world.asked()[asked..][..2]
            .iter()
            .map(|(_, a)| a.clone())
            .collect::<Vec<_>>(),
        [Asked::Prove(0), Asked::Claim(0)]
    );
    assert_eq!((status.refusals, status.elections), (0, 1));
}

#[tokio::test]
async fn a_registry_that_is_away_stops_all_sweeps_and_all_resume_after_it() {
    let world = World::new(config(8));
    let nodes = [world.start("a"), world.start("b")];
    for node in &nodes {
        node.until(|s| s.placed > 0 && s.shards.values().any(|s| s.last.is_some()))
            .await;
    }
    world.cluster.set_available(false);
    for node in &nodes {
        node.until(|status| status.stale && status.idle() == Some(Idle::NoLease))
            .await;
    }
    let asked = world.asked().len();
    for user in 0..40 {
        world.touch(world.user(&format!("user-{user}")), 1).await;
    }
    sleep(world.config.sweep_interval * 3).await;
    let since: Vec<_> = world.asked().split_off(asked);
    assert!(
        !since
            .iter()
            .any(|(_, a)| matches!(a, Asked::Sweep(..) | Asked::Claim(_))),
        "{since:?}"
    );

    world.cluster.set_available(true);
    until_left(&world, 40, &nodes[0].status).await;
    world.assert_single();
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_asked_with_patience() {
    let world = World::new(config(1));
    let a = world.start("a");
    a.until(|status| status.sweeps > 0).await;
    world.touch(world.user("ann"), 1).await;
    world.store.stall(0, true);
    a.until(|status| idle(status, Idle::Store)).await;
    sleep(ms(500)).await;
    let errors = a.status.borrow().errors;
    assert!((2..40).contains(&errors), "{errors}");
    world.store.stall(0, false);
    let status = a.until(|status| status.closed == 1).await;
    assert_eq!((status.elections, status.refusals), (1, 0));
}

#[tokio::test]
async fn a_node_that_is_cut_off_from_the_store_leaves_its_shards_to_another() {
    let mut world = World::new(config(8));
    world.config.ownerless_grace = ms(100);
    world.config.give_up_after = ms(200);
    let (a, b) = (world.start("a"), world.start("b"));
    for node in [&a, &b] {
        node.until(|s| s.shards.values().any(|s| s.last.is_some()))
            .await;
    }
    a.store.deaf.store(true, SeqCst);
    b.until(|s| s.shards.len() == 8 && s.shards.values().all(|s| s.last.is_some()))
        .await;
    world.assert_single();
}
