//! Single reaper, Bounded: what only servers can tell.

use adsum_tests::{checker::Invariant, history::Event};

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
