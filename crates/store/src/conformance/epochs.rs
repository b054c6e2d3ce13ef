//! Births, failovers, losses: a new epoch is above all that was seen, and settles.

use std::collections::HashMap;

use adsum_core::{
    Event, Version,
    store::{LogPage, Position, StoreError},
};

use super::{Labs, kit::*};
use crate::{Options, load};

/// Reads of a shard without `meta` say so, and give birth to nothing; any write does.
pub async fn a_missing_meta_is_not_born(labs: &dyn Labs) {
    let kit = Kit::new(labs).await;
    let nothing = LogPage {
        position: None,
        entries: vec![],
        hole: false,
    };
    let read = kit.read("ann").await;
    assert!(read.settling, "absence means nothing yet");
    assert_eq!((read.person, read.last_seen), (None, None));
    assert_eq!(kit.store.contacts(&user("ann")).await.unwrap(), None);
    assert!(kit.store.scan(S, 0).await.unwrap().people.is_empty());
    assert!(kit.held("a~1").await.is_empty() && kit.deadlines().await.is_empty());
    assert_eq!(kit.store.log(S, 0, 9).await.unwrap(), nothing);
    assert_eq!(load(&*kit.store, S).await.unwrap(), None);
    kit.store.check().await.unwrap();
    assert_eq!(kit.store.log(S, 0, 9).await.unwrap(), nothing, "still not");
    let epoch = kit.store.claim(S).await.unwrap().epoch;
    assert!(epoch > kit.now());
    let position = kit.position().await;
    assert_eq!(
        (position.epoch, position.seq, position.first),
        (epoch, 1, 1)
    );
    assert!(position.settling, "a birth may be a loss");
    assert_eq!(kit.told_after(0).await, ["epoch"]);
    kit.lab.flush(S).await;
    assert_eq!(
        kit.store.log(S, 0, 9).await.unwrap(),
        nothing,
        "a flush is no empty shard"
    );
}

/// The cheap look: it sees every change, and never calls a shard quiet that is not.
pub async fn a_glance_tells_whether_there_is_anything_new(labs: &dyn Labs) {
    let kit = Kit::new(labs).await;
    let quiet = async |at: Version| kit.store.ends_with(S, at).await.unwrap();
    assert!(!quiet(Version::ZERO).await, "not born");
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let at = |position: Position| Version::new(position.epoch, position.seq);
    let settling = at(kit.position().await);
    assert!(!quiet(settling).await, "settling is for a real look");
    kit.settle().await;
    let settled = at(kit.position().await);
    assert!(quiet(settled).await);
    assert!(!quiet(settling).await);
    kit.alter("ann/web", (5, 2), &["hall"]).await;
    assert!(!quiet(settled).await);
    let last = at(kit.position().await);
    assert!(quiet(last).await);
    kit.lab.lose_last(S, 1).await;
    assert!(!quiet(last).await, "what was lost is missed");
    kit.lab.flush(S).await;
    assert!(!quiet(last).await);
}

/// After a flush, a failover, A → B → A, and whatever the clock does.
pub async fn a_new_epoch_is_above_all_that_was_seen(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let mut highest = kit.claim().await.epoch;
    for clock in [0, 86_400_000, -86_400_000, -5_000] {
        kit.lab.advance(clock);
        for accident in 0..3 {
            kit.opened("ann/web", &format!("a~{highest}"), (highest, 1))
                .await;
            match accident {
                0 => kit.lab.fail_over(S).await,
                1 => kit.lab.flush(S).await,
                _ => kit.lab.lose_last(S, 3).await,
            }
            let answer = kit.store.claim(S).await.unwrap();
            assert_eq!(answer.value.epoch, answer.epoch);
            assert!(answer.epoch > highest, "accident {accident} at {clock}");
            highest = answer.epoch;
        }
        // A → B → A: it goes back before its last epoch and says that it is A, as it was.
        kit.settle().await;
        kit.lab.fail_over(S).await;
        let seen = kit.claim().await.epoch;
        kit.claim().await;
        kit.lab.rewind(S, 2).await;
        let at = kit.position().await;
        assert!(at.epoch < seen && !at.settling, "it knows nothing of it");
        let other = kit.lab.caller().await;
        assert_eq!(
            other.claim(S).await.unwrap().epoch,
            at.epoch,
            "nor does another caller"
        );
        highest = kit.claim().await.epoch;
        assert!(highest > seen, "but this one does");
        assert_eq!(other.claim(S).await.unwrap().epoch, highest);
    }
}

/// What a node heard in the feed counts as seen.
pub async fn an_epoch_seen_elsewhere_counts(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let epoch = kit.claim().await.epoch;
    kit.store.observe(S, epoch);
    assert_eq!(kit.claim().await.epoch, epoch, "nothing new");
    let (ahead, seq) = (epoch + 1_000_000_000, kit.seq().await);
    kit.store.observe(S, ahead);
    assert_eq!(
        kit.claim().await.epoch,
        ahead + 1,
        "1 + nonce above it, and the nonce is 0 here"
    );
    assert_eq!(kit.told_after(seq).await, ["epoch"]);
    assert!(kit.position().await.settling);
    kit.store.observe(S, epoch);
    assert_eq!(
        kit.claim().await.epoch,
        ahead + 1,
        "an older one says nothing"
    );
}

/// The first renewal or sweep past the time says it, once; opens do not.
pub async fn settled_is_committed_once_per_epoch(labs: &dyn Labs) {
    let kit = Kit::new(labs).await;
    for round in 1..=3 {
        kit.opened("ann/web", &format!("a~{round}"), (round, 1))
            .await;
        let seq = kit.seq().await;
        kit.pass(kit.lab.options().settle_ms - 1).await;
        assert_eq!(kit.told_after(seq).await, Vec::<String>::new());
        kit.lab.advance(1);
        kit.opened("ann/web", &format!("b~{round}"), (round, 2))
            .await;
        assert!(kit.position().await.settling, "an open does not settle");
        if round == 2 {
            kit.swept(1).await;
        } else {
            kit.renew("nobody~0").await;
        }
        assert_eq!(kit.told_after(seq).await, ["settled"]);
        assert!(!kit.position().await.settling);
        assert!(!kit.read("ann").await.settling);
        kit.pass(2 * kit.lab.options().settle_ms).await;
        assert_eq!(kit.told_after(seq).await, ["settled"]);
        kit.lab.fail_over(S).await;
        kit.claim().await;
        assert_eq!(kit.told_after(seq).await, ["settled", "epoch"]);
    }
}

/// Reads write nothing, but they know that a loss is possible.
pub async fn another_identity_is_told_as_settling_before_any_write(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    assert!(!kit.read("ann").await.settling);
    let before = kit.position().await;
    kit.lab.fail_over(S).await;
    let after = kit.position().await;
    assert!(after.settling);
    assert_eq!((after.epoch, after.seq), (before.epoch, before.seq));
    assert!(kit.read("ann").await.settling);
    assert!(
        load(&*kit.store, S)
            .await
            .unwrap()
            .unwrap()
            .position
            .settling
    );
}

/// A gateway that meets a new epoch opens its sessions again under a new incarnation.
pub async fn reopening_heals_lost_opens_lost_changes_and_ghosts_without_a_diff(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.open("ann/web", "a~1", (5, 1), &["r"]).await;
    kit.open("bob/web", "a~1", (5, 1), &["r"]).await;
    kit.open("gus/web", "a~1", (5, 1), &["r"]).await;
    // These will be lost: a change, a goodbye, an open.
    kit.lab.advance(100);
    kit.alter("bob/web", (5, 2), &["r", "s"]).await;
    kit.close("gus/web", (5, 2)).await;
    kit.open("cid/web", "a~1", (5, 1), &["r"]).await;
    let carried = kit.read("cid").await.person.unwrap().sessions[&device("web")].clone();
    let before = kit.renewed("a~1").await.epoch;
    kit.lab.lose_last(S, 4).await;
    let after = kit.renewed("a~1").await.epoch;
    assert!(after > before);
    let seq = kit.seq().await;
    kit.lab.advance(1_000);
    assert!(
        !committed(&kit.open("ann/web", "a~2", (5, 2), &["r"]).await),
        "she was there"
    );
    assert!(
        committed(&kit.open("bob/web", "a~2", (5, 3), &["r", "s"]).await),
        "a lost change"
    );
    let mut op = open("cid/web", "a~2", (5, 2), &[]);
    (op.opened_at, op.state) = (carried.opened_at, carried.state.clone());
    assert!(
        committed(&kit.store.open(op).await.unwrap().value),
        "a lost open"
    );
    let cid = &kit.read("cid").await.person.unwrap().sessions[&device("web")];
    assert!(cid.looks_like(&carried), "with the times it had");
    kit.pass_with(kit.lab.options().settle_ms, "a~2").await;
    assert_eq!(kit.swept(100).await.0, 1);
    let told = kit.told_after(seq).await;
    assert_eq!(
        told,
        ["bob/web", "cid/web", "settled", "gus/web node_lost"],
        "and the ghost left"
    );
    assert_eq!(kit.held("a~2").await, ["ann/web", "bob/web", "cid/web"]);
}

/// No number is given twice, because the epoch is another.
pub async fn numbers_go_on_after_a_loss_in_a_new_epoch(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let mut used: HashMap<Version, Event> = HashMap::new();
    for round in 1..=6 {
        for n in 0..4 {
            kit.opened(&format!("u{n}/web"), &format!("a~{round}"), (round, 1))
                .await;
            kit.alter(&format!("u{n}/web"), (round, 2), &[&format!("r{round}")])
                .await;
        }
        let log = kit.log().await;
        let seqs: Vec<_> = log.iter().map(|c| c.version.seq).collect();
        assert!(
            seqs.windows(2).all(|w| w[1] == w[0] + 1),
            "no gaps: {seqs:?}"
        );
        assert!(
            log.windows(2).all(|w| w[0].version < w[1].version),
            "ordered"
        );
        for change in log {
            let before = used.insert(change.version, change.event.clone());
            assert!(
                before.is_none_or(|b| b == change.event),
                "{} used twice",
                change.version
            );
        }
        kit.lab.lose_last(S, 3).await;
    }
}

/// A node with another number of shards would look for people in the wrong places. Every node
/// checks at its start; and where two of them meet in a shard, each operation does.
pub async fn a_wrong_number_of_shards_is_refused(labs: &dyn Labs) {
    // A caller of the same keys that counts otherwise: hash tags alone would keep them apart.
    let kit = Kit::with(
        labs,
        Options {
            shards: 2,
            ..options()
        },
    )
    .await;
    kit.store.check().await.unwrap();
    kit.claim().await;
    let wrong = kit
        .lab
        .caller_with(Options {
            shards: 3,
            ..options()
        })
        .await;
    let error = StoreError::WrongShards {
        stored: 2,
        configured: 3,
    };
    assert!(!error.retry());
    let path = |n| format!("u{n}/web");
    let here = (0..)
        .map(path)
        .find(|path| wrong.shard_of(&key(path).owner) == S)
        .unwrap();
    let before = kit.store.log(S, 0, 9).await.unwrap();
    assert_eq!(wrong.check().await, Err(error.clone()));
    assert_eq!(
        wrong.open(open(&here, "a~1", (5, 1), &[])).await,
        Err(error.clone())
    );
    assert_eq!(
        wrong.touch(vec![touch(&here, (5, 1), 9)]).await,
        Err(error.clone())
    );
    assert_eq!(wrong.claim(S).await, Err(error.clone()));
    assert_eq!(wrong.read(&[key(&here).owner]).await, Err(error.clone()));
    assert_eq!(wrong.log(S, 0, 9).await, Err(error));
    assert_eq!(
        kit.store.log(S, 0, 9).await.unwrap(),
        before,
        "nothing was written"
    );
}
