//! Order: numbers and words never go back.

use adsum_core::Version;
use adsum_tests::{
    checker::Invariant,
    history::{Event, Fault},
};

use crate::script::{Script, seen};

#[test]
fn no_older_state_after_a_newer_one() {
    let script = |seq, mark| {
        Script::new()
            .ann_comes(1_000, 5)
            .updated(2_000, seen(8, 3))
            .updated(3_000, seen(seq, mark))
    };
    assert_eq!(script(9, 4).verdict(), []);
    assert_eq!(script(7, 4).verdict(), [Invariant::Order], "the number");
    assert_eq!(script(9, 2).verdict(), [Invariant::Order], "the word");
}

#[test]
fn what_a_failover_lost_may_be_told_again() {
    let fault = |lost| Fault::Failover {
        shards: vec![0],
        lost,
    };
    let script = |lost| {
        Script::new()
            .ann_comes(1_000, 5)
            .updated(2_000, seen(8, 3))
            .broke(2_500, fault(lost), 10)
            .updated(3_000, seen(7, 2))
    };
    assert_eq!(script(2).verdict(), []);
    assert_eq!(script(0).verdict(), [Invariant::Order]);
}

#[test]
fn no_number_for_two_changes() {
    let commit = |what: &str| Event::Committed {
        shard: 0,
        v: Version::new(1, 5),
        what: what.to_owned(),
    };
    let same = Script::new().at(1, commit("a")).at(2, commit("a"));
    assert_eq!(same.verdict(), []);
    let other = Script::new().at(1, commit("a")).at(2, commit("b"));
    assert_eq!(other.verdict(), [Invariant::Order]);
}
