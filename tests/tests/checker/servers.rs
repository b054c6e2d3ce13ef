//! Single reaper, Bounded: what only servers can tell.

use adsum_tests::{
    checker::Invariant,
    history::{Event, Fault},
};

use crate::script::Script;

fn claimed(fence: (u64, u64)) -> Event {
    Event::Claimed {
        shard: 0,
        reaper: "r".to_owned(),
        fence,
    }
}

fn swept(fence: (u64, u64)) -> Event {
    Event::Swept {
        shard: 0,
        reaper: "r".to_owned(),
        fence,
    }
}

#[test]
fn no_sweep_below_the_highest_fence() {
    let sweep = |fence| {
        Script::new()
            .at(1, claimed((1, 4)))
            .at(2, claimed((1, 5)))
            .at(3, swept(fence))
            .verdict()
    };
    assert_eq!(sweep((1, 5)), []);
    assert_eq!(sweep((1, 4)), [Invariant::SingleReaper]);
    assert_eq!(sweep((0, 9)), [Invariant::SingleReaper], "an older epoch");
}

/// A server that was deposed may accept what was on its way to it, and forgets it.
#[test]
fn a_sweep_that_a_failover_lost_is_none() {
    let sweep = |fence| {
        let shards = vec![0];
        Script::new()
            .broke(1, Fault::Failover { shards, lost: 1 }, 2_000)
            .at(2_000, claimed((2, 5)))
            .at(2_100, swept(fence))
            .verdict()
    };
    assert_eq!(sweep((1, 9)), []);
    assert_eq!(sweep((2, 4)), [Invariant::SingleReaper]);
}

#[test]
fn nothing_beyond_its_limit() {
    let size = |size| {
        let what = "states waiting".to_owned();
        let limit = 10;
        Script::new()
            .at(1, Event::Size { what, size, limit })
            .verdict()
    };
    assert_eq!(size(10), []);
    assert_eq!(size(11), [Invariant::Bounded]);
}
