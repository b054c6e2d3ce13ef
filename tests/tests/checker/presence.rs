//! Converge, No false offline, Bounded silence, Once.

use adsum_tests::{
    checker::Invariant,
    history::{Event, Fault, Gone},
};

use crate::script::Script;

const END: u64 = 200_000;

#[test]
fn a_good_run_is_good() {
    let script = Script::new()
        .ann_comes(1_000, 5)
        .ann_goes(20_000, Gone::Goodbye)
        .left(20_050, 6)
        .ann_comes(30_000, 7)
        .at(END, Event::End);
    assert_eq!(script.verdict(), []);
}

#[test]
fn a_picture_that_stays_wrong_does_not_converge() {
    let missed = Script::new().hello(1_000).at(END, Event::End);
    assert_eq!(missed.verdict(), [Invariant::Converge]);
    let nothing = Script::new().at(END, Event::End);
    assert_eq!(nothing.verdict(), []);
}

#[test]
fn who_is_well_must_not_be_reported_gone() {
    let told = Script::new().ann_comes(1_000, 5).left(20_000, 6);
    assert_eq!(told.verdict(), [Invariant::NoFalseOffline]);
    let shown = Script::new().ann_comes(1_000, 5).state(20_000, &[]);
    assert_eq!(shown.verdict(), [Invariant::NoFalseOffline], "by omission");
}

#[test]
fn a_return_within_the_linger_time_is_silent() {
    let broken = Gone::Broken { returns: true };
    let script = |back| {
        Script::new()
            .ann_comes(1_000, 5)
            .ann_goes(20_000, broken)
            .hello(back)
            .left(back + 1_000, 6)
    };
    assert_eq!(script(23_000).verdict(), [Invariant::NoFalseOffline]);
    assert_eq!(script(40_000).verdict(), [], "too late to be silent");
}

#[test]
fn a_gateway_that_froze_for_long_may_lose_its_sessions() {
    let frozen = |ms| {
        Script::new()
            .ann_comes(1_000, 5)
            .broke(20_000, Fault::GatewayFrozen("g0".to_owned()), ms)
            .left(55_000, 6)
    };
    assert_eq!(frozen(3_000).verdict(), [Invariant::NoFalseOffline]);
    assert_eq!(frozen(35_000).verdict(), []);
}

#[test]
fn who_is_gone_must_be_reported_in_time() {
    let ends = [
        (Gone::Goodbye, 0),
        (Gone::Broken { returns: false }, 10_000),
        (Gone::Silent, 46_000),
    ];
    for (how, within) in ends {
        let told = |at| {
            Script::new()
                .ann_comes(1_000, 5)
                .ann_goes(20_000, how)
                .left(at, 6)
                .at(END, Event::End)
        };
        assert_eq!(told(20_000 + within + 3_500).verdict(), [], "{how:?}");
        let late = told(20_000 + within + 6_000).verdict();
        assert_eq!(late, [Invariant::BoundedSilence], "{how:?}");
    }
}

#[test]
fn a_failover_delays_goodbyes_by_one_settling() {
    let fault = Fault::Failover {
        shards: vec![0],
        lost: 0,
    };
    let script = Script::new()
        .ann_comes(1_000, 5)
        .broke(19_000, fault, 2_000)
        .ann_goes(20_000, Gone::Goodbye)
        .left(68_000, 6)
        .at(END, Event::End);
    assert_eq!(script.verdict(), []);
}

#[test]
fn a_fault_excuses_only_those_whom_it_touches() {
    let script = |fault| {
        let (user, shard) = ("ann".to_owned(), 1);
        Script::new()
            .at(0, Event::Lives { user, shard })
            .ann_comes(1_000, 5)
            .broke(19_000, fault, 2_000)
            .ann_goes(20_000, Gone::Goodbye)
            .left(40_000, 6)
            .at(END, Event::End)
    };
    let failover = |shard| Fault::Failover {
        shards: vec![0, shard],
        lost: 0,
    };
    assert_eq!(script(failover(1)).verdict(), []);
    assert_eq!(script(failover(2)).verdict(), [Invariant::BoundedSilence]);
    let killed = |gateway: &str| Fault::GatewayKilled(gateway.to_owned());
    assert_eq!(script(killed("g0")).verdict(), []);
    assert_eq!(script(killed("g1")).verdict(), [Invariant::BoundedSilence]);
    // A goodbye needs no reaper.
    let reaper = Fault::ReaperFrozen("r".to_owned());
    assert_eq!(script(reaper).verdict(), [Invariant::BoundedSilence]);
}

#[test]
fn faults_at_once_do_not_add_up() {
    let stall = || Fault::Stall(vec![0]);
    let script = |told| {
        let mut script = Script::new().ann_comes(1_000, 5);
        for n in 0..5 {
            script = script.broke(15_000 + n, stall(), 2_000);
        }
        script
            .ann_goes(20_000, Gone::Goodbye)
            .left(told, 6)
            .at(END, Event::End)
    };
    assert_eq!(script(105_000).verdict(), []);
    assert_eq!(script(115_000).verdict(), [Invariant::BoundedSilence]);
}

#[test]
fn one_arrival_one_join() {
    let gone = Script::new()
        .ann_comes(1_000, 5)
        .ann_goes(20_000, Gone::Goodbye)
        .left(20_050, 6);
    let again = gone.came(26_000, 7).left(26_100, 8);
    assert_eq!(again.verdict(), [Invariant::Once]);
    let twice = Script::new().ann_comes(1_000, 5).came(2_000, 6);
    assert_eq!(twice.verdict(), [Invariant::Once]);
}

#[test]
fn one_departure_one_leave() {
    let script = Script::new()
        .ann_comes(1_000, 5)
        .ann_goes(20_000, Gone::Goodbye)
        .left(20_050, 6)
        .left(20_060, 6);
    assert_eq!(script.verdict(), [Invariant::Once]);
}

#[test]
fn a_story_says_who_what_when_and_the_seed() {
    let script = Script::new()
        .ann_comes(1_000, 5)
        .broke(10_000, Fault::Stall(vec![0]), 500)
        .left(20_000, 6);
    let stories = script.stories();
    let [story] = stories.as_slice() else {
        panic!("{stories:?}");
    };
    let parts = [
        "No false offline violated at 20.000 s (seed 7)",
        "ann has been well on phone since 1.010 s",
        "says hello to g0",
        "BROKEN for 500 ms",
        "left Some(Leave)",
    ];
    for part in parts {
        assert!(story.contains(part), "{part} is not in {story}");
    }
}
