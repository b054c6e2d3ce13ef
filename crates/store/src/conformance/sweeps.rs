//! What a sweep may do, and what not.

use adsum_core::store::{Due, Fence, Renewed, Swept};

use super::{Labs, kit::*};

/// The four bounds of a sweep.
pub async fn sweep_is_bounded_refuses_a_lower_fence_waits_while_settling_and_clamps(
    labs: &dyn Labs,
) {
    let kit = Kit::new(labs).await;
    for n in 0..7 {
        kit.touch(&format!("u{n}/tv"), (5, 1), 1_000).await;
    }
    // Waits while settling.
    let born = kit.now();
    kit.pass(2_000).await;
    let left = born + kit.lab.options().settle_ms - kit.now();
    assert_eq!(kit.swept(3).await, (0, Some(left)));
    kit.pass(left - 1).await;
    assert_eq!(kit.swept(3).await, (0, Some(1)));
    kit.lab.advance(1);
    // Bounded.
    let low = kit.claim().await;
    assert_eq!(
        kit.sweep(low, 3).await,
        Swept::Ok {
            closed: 3,
            next_ms: Some(0)
        }
    );
    assert_eq!(
        kit.sweep(low, 0).await,
        Swept::Ok {
            closed: 1,
            next_ms: Some(0)
        },
        "at least 1"
    );
    // Refuses a lower fence; the highest goes on.
    let high = kit.claim().await;
    assert_eq!(
        high,
        Fence {
            number: low.number + 1,
            ..low
        }
    );
    assert_eq!(kit.sweep(low, 3).await, Swept::Refused);
    assert_eq!(
        kit.sweep(high, 3).await,
        Swept::Ok {
            closed: 3,
            next_ms: Some(0)
        }
    );
    assert_eq!(
        kit.sweep(high, 3).await,
        Swept::Ok {
            closed: 0,
            next_ms: None
        }
    );
    // Clamps.
    kit.touch("far/tv", (5, 1), 10_000_000).await;
    kit.touch("farther/tv", (5, 1), 20_000_000).await;
    let most = kit.lab.options().max_deadline_ms;
    assert_eq!(
        kit.sweep(high, 1).await,
        Swept::Ok {
            closed: 0,
            next_ms: Some(most)
        }
    );
    let due = |path| Due::Session(key(path));
    assert_eq!(
        kit.deadline(&due("farther/tv")).await,
        Some(kit.now() + most),
        "furthest first"
    );
    assert_eq!(
        kit.deadline(&due("far/tv")).await,
        Some(kit.now() + 10_000_000)
    );
    kit.sweep(high, 1).await;
    assert_eq!(kit.deadline(&due("far/tv")).await, Some(kit.now() + most));
}

/// A fence is worth something only in the epoch in which it was claimed.
pub async fn a_fence_of_another_epoch_is_refused(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let old = kit.claim().await;
    assert!(matches!(kit.sweep(old, 1).await, Swept::Ok { .. }));
    kit.lab.fail_over(S).await;
    let answer = kit.store.sweep(S, old, 1).await.unwrap();
    assert_eq!(answer.value, Swept::Refused);
    assert!(
        answer.epoch > old.epoch,
        "the sweep itself met the new epoch"
    );
    assert_eq!(
        kit.sweep(
            Fence {
                epoch: old.epoch + 1,
                number: 99
            },
            1
        )
        .await,
        Swept::Refused
    );
    let new = kit.claim().await;
    assert_eq!(
        new,
        Fence {
            epoch: answer.epoch,
            number: old.number + 1
        }
    );
    assert!(matches!(kit.sweep(new, 1).await, Swept::Ok { .. }));
}

/// The reaper sleeps just until something can be due.
pub async fn a_sweep_says_when_to_come_again(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    assert_eq!(kit.swept(10).await, (0, None));
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let most = kit.lab.options().holder_ms;
    assert_eq!(
        kit.swept(10).await,
        (0, Some(most + 1)),
        "a holder's last instant counts"
    );
    kit.touch("bob/tv", (5, 1), 4_000).await;
    assert_eq!(
        kit.swept(10).await,
        (0, Some(4_000)),
        "a session's does not"
    );
    kit.lab.advance(3_999);
    assert_eq!(kit.swept(10).await, (0, Some(1)));
    kit.pass(2).await;
    assert_eq!(
        kit.swept(1).await,
        (1, Some(0)),
        "the limit was reached: come at once"
    );
    kit.pass(most - 4_001).await;
    assert_eq!(kit.swept(10).await, (0, Some(1)));
}

/// Sessions of holders that renew stay, whatever else happens.
pub async fn a_sweep_ends_what_is_due_and_nothing_else(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.opened("ann/phone", "b~1", (5, 1)).await;
    kit.opened("bob/web", "b~1", (5, 1)).await;
    let seq = kit.seq().await;
    kit.pass_with(kit.lab.options().holder_ms + 1, "a~1").await;
    assert_eq!(kit.swept(10).await.0, 2);
    assert_eq!(
        kit.told_after(seq).await,
        ["ann/phone node_lost", "bob/web node_lost"]
    );
    assert_eq!(kit.renew("a~1").await, Renewed::Ok { held: 1 });
    let read = kit.read("ann").await;
    assert_eq!(read.person.unwrap().sessions.len(), 1);
    assert_eq!(read.last_seen, None);
    assert_eq!(kit.read("bob").await.last_seen, Some(kit.now()));
}

/// If nobody renewed or swept for a while, nobody could renew: give them one settling.
pub async fn a_silent_shard_waits_before_it_sweeps(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let fence = kit.claim().await;
    kit.lab.advance(600_000);
    let wait = kit.lab.options().settle_ms;
    assert_eq!(
        kit.sweep(fence, 9).await,
        Swept::Ok {
            closed: 0,
            next_ms: Some(wait)
        }
    );
    assert!(!kit.position().await.settling, "the epoch stays settled");
    assert_eq!(
        kit.renew("a~1").await,
        Renewed::Ok { held: 1 },
        "the holder was there all along"
    );
    let seq = kit.seq().await;
    kit.pass_with(wait, "a~1").await;
    let next_ms = Some(kit.lab.options().holder_ms + 1);
    assert_eq!(kit.sweep(fence, 9).await, Swept::Ok { closed: 0, next_ms });
    assert_eq!(kit.told_after(seq).await, Vec::<String>::new());
}

/// Tombstones are nobody's presence.
pub async fn tombstones_are_trimmed_even_while_settling(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    for n in 0..3 {
        kit.close(&format!("u{n}/web"), (5, 1)).await;
    }
    kit.touch("ann/tv", (5, 1), 1_000).await;
    kit.pass(kit.lab.options().tomb_ms).await;
    kit.lab.fail_over(S).await;
    assert_eq!(kit.swept(3).await.0, 0);
    assert_eq!(
        kit.deadlines().await.len(),
        2,
        "two of the first three were tombstones"
    );
    assert_eq!(kit.swept(3).await.0, 0);
    assert_eq!(kit.deadlines().await.len(), 1);
    kit.settle().await;
    assert_eq!(kit.swept(3).await, (1, None));
}

/// Nobody waits for the end of a tombstone: a sweep that has nothing else to do comes for all of
/// them together.
pub async fn tombstones_are_in_no_hurry(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let tomb_ms = kit.lab.options().tomb_ms;
    kit.close("u0/web", (5, 1)).await;
    kit.pass(10).await;
    kit.close("u1/web", (5, 1)).await;
    assert_eq!(kit.swept(9).await, (0, Some(tomb_ms)), "the later one");
    kit.pass(10).await;
    kit.touch("ann/tv", (5, 1), tomb_ms + 7).await;
    let next = Some(tomb_ms + 7);
    assert_eq!(kit.swept(9).await, (0, next), "only this one counts");
    kit.pass(tomb_ms - 10).await;
    assert_eq!(kit.swept(9).await, (0, Some(17)));
    assert_eq!(kit.deadlines().await.len(), 1, "they are gone");
}

/// Last seen is kept for a time.
pub async fn last_seen_is_trimmed_by_age(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let keep = kit.lab.options().retention_ms;
    for path in ["ann/web", "bob/web", "cid/web"] {
        kit.opened(path, "a~1", (5, 1)).await;
        kit.close(path, (5, 2)).await;
    }
    kit.lab.advance(i64::try_from(keep).unwrap());
    kit.swept(2).await;
    assert!(
        kit.read("ann").await.last_seen.is_some(),
        "exactly as old as allowed"
    );
    kit.lab.advance(1);
    kit.swept(2).await;
    let mut left = 0;
    for name in ["ann", "bob", "cid"] {
        left += u32::from(kit.read(name).await.last_seen.is_some());
    }
    assert_eq!(left, 1, "at most the limit");
    kit.swept(2).await;
    assert_eq!(kit.read("cid").await.last_seen, None);
}

/// A clock that goes back does not save who is being closed.
pub async fn a_condemned_holder_is_finished_even_if_the_clock_went_back(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.opened("bob/web", "a~1", (5, 1)).await;
    kit.pass(kit.lab.options().holder_ms + 1).await;
    assert_eq!(kit.swept(1).await, (1, Some(0)));
    kit.lab.advance(-5_000);
    kit.opened("cid/web", "b~1", (5, 1)).await;
    assert_eq!(kit.swept(5).await.0, 1);
    assert_eq!(kit.deadline(&Due::Condemned(holder("a~1"))).await, None);
}
