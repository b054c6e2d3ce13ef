//! The rules of a hold, one by one, with answers given by hand.

use super::*;
use crate::{
    DeviceId, Holder, Manual, Meta, Session, Stamp, TenantId, UserId, UserKey, Versioned,
    Visibility,
    store::{Altered, Answer, Closed, Opened, Renewed, Result, StoreError},
};

const TIMES: HoldTimes = HoldTimes {
    renew_ms: 5000,
    calm_ms: 10_000,
    together_ms: 1,
};

fn hold() -> Hold {
    Hold::new(NodeId::new("gw").unwrap(), 1, TIMES, 0).unwrap()
}

fn key(n: u8) -> SessionKey {
    let owner = UserKey::new(
        TenantId::new("t").unwrap(),
        UserId::new(format!("u{n}")).unwrap(),
    );
    SessionKey::new(owner, DeviceId::new("d").unwrap())
}

fn conn(n: u64) -> Conn {
    Conn::new(n).unwrap()
}

fn state(n: u8) -> State {
    State {
        meta: Some(Meta::trusted(n.to_string())),
        ..State::default()
    }
}

fn ok<T>(epoch: u64, value: T) -> Result<Answer<T>> {
    Ok(Answer {
        epoch,
        at: 0,
        whole: None,
        value,
    })
}

fn down<T>() -> Result<Answer<T>> {
    Err(StoreError::Unavailable("down".into()))
}

fn recorded(op: &Open) -> Opened {
    let session = Session {
        holder: Holder::Gateway(op.holder.clone()),
        stamp: op.stamp,
        opened_at: 77,
        state: op.state.clone(),
    };
    Opened::Ok {
        session: Box::new(session),
        prefs: Prefs::default(),
        committed: true,
    }
}

fn opens(actions: &[Action]) -> Vec<Open> {
    let open = |a: &Action| {
        if let Action::Open(op) = a {
            Some(op.clone())
        } else {
            None
        }
    };
    actions.iter().filter_map(open).collect()
}

fn closes(actions: &[Action]) -> Vec<Close> {
    let close = |a: &Action| {
        if let Action::Close(op) = a {
            Some(op.clone())
        } else {
            None
        }
    };
    actions.iter().filter_map(close).collect()
}

/// A hold with this many recorded sessions in epoch 1.
fn with_sessions(count: u8) -> Hold {
    let mut hold = hold();
    for n in 0..count {
        let sent = opens(&hold.hello(key(n), conn(10), state(n), None));
        hold.opened(&sent[0], ok(1, recorded(&sent[0])), 0);
    }
    hold.tick(0);
    hold.renewed(ok(1, Renewed::Ok { held: count.into() }), 0);
    hold
}

#[test]
fn a_holder_that_the_shard_never_knew_is_not_lost() {
    // The renewal is sent before the first open, and answered before or after it.
    for open_first in [true, false] {
        let mut hold = hold();
        hold.tick(0);
        hold.renewed(ok(1, Renewed::Gone), 0);
        let before = hold.incarnation().clone();
        hold.tick(5000);
        let sent = opens(&hold.hello(key(1), conn(10), state(1), None));
        if open_first {
            hold.opened(&sent[0], ok(1, recorded(&sent[0])), 5001);
        }
        assert!(!hold.was_swept(1));
        assert_eq!(opens(&hold.renewed(ok(1, Renewed::Gone), 5002)), []);
        if !open_first {
            hold.opened(&sent[0], ok(1, recorded(&sent[0])), 5003);
        }
        assert_eq!(*hold.incarnation(), before);

        // By the next one the shard knows it.
        hold.tick(10_000);
        assert!(hold.was_swept(1));
        assert_eq!(opens(&hold.renewed(ok(1, Renewed::Gone), 10_001)).len(), 1);
        assert_ne!(*hold.incarnation(), before);
        assert!(!hold.was_swept(1));
    }
}

#[test]
fn the_newest_of_each_setting_is_carried() {
    let prefs = |status, visibility| Prefs {
        status: Versioned {
            value: Some(Manual::Dnd),
            version: status,
        },
        visibility: Versioned {
            value: Visibility::Nobody,
            version: visibility,
        },
        ..Prefs::default()
    };
    let mut hold = with_sessions(1);
    hold.prefer(&key(0), prefs(5, 1));
    hold.prefer(&key(0), prefs(4, 2));
    hold.prefer(&key(0), Prefs::default());
    hold.prefer(&key(1), prefs(9, 9));
    let sent = opens(&hold.check(&key(0)));
    assert_eq!(sent[0].prefs, Some(prefs(5, 2)));
    // What the store knew before it heard of the newer one.
    hold.opened(&sent[0], ok(1, recorded(&sent[0])), 1);
    assert_eq!(opens(&hold.check(&key(0)))[0].prefs, Some(prefs(5, 2)));
}

#[test]
fn a_renewal_that_overtakes_the_first_open_tells_nothing() {
    let mut hold = hold();
    let sent = opens(&hold.hello(key(1), conn(10), state(1), None));
    hold.tick(0);
    assert!(!hold.was_swept(0));
    assert_eq!(opens(&hold.renewed(ok(1, Renewed::Gone), 1)), []);
    let told = hold.opened(&sent[0], ok(1, recorded(&sent[0])), 2);
    assert_eq!((opens(&told), told.len()), (vec![], 1));
}

#[test]
fn operations_of_a_session_are_serial_and_the_newest_state_wins() {
    let mut hold = hold();
    let sent = opens(&hold.hello(key(1), conn(10), state(1), None));
    assert_eq!(
        sent[0].stamp,
        Stamp {
            conn: conn(10),
            rev: 1
        }
    );
    assert!(hold.set(&key(1), conn(10), state(2), None).is_empty());
    assert!(hold.set(&key(1), conn(10), state(3), None).is_empty());
    let after = hold.opened(&sent[0], ok(1, recorded(&sent[0])), 0);
    let Some(Action::Alter(alter)) = after.last() else {
        panic!("{after:?}")
    };
    assert_eq!((alter.stamp.rev, &alter.state), (2, &state(3)));
}

#[test]
fn what_was_not_answered_is_sent_again_with_a_higher_rev() {
    let mut hold = hold();
    let sent = opens(&hold.hello(key(1), conn(10), state(1), None));
    assert!(hold.opened(&sent[0], down(), 5).is_empty());
    let again = opens(&hold.tick(1000));
    assert_eq!(again[0].stamp.rev, 2);
    // The first arrives after all: not the one that is waited for.
    assert!(
        hold.opened(&sent[0], ok(1, recorded(&sent[0])), 6)
            .is_empty()
    );
    assert_eq!(
        hold.opened(&again[0], ok(1, recorded(&again[0])), 7).len(),
        1
    );
}

#[test]
fn a_new_epoch_opens_all_connected_under_a_new_incarnation() {
    let mut hold = with_sessions(3);
    let old = hold.incarnation().clone();
    hold.end(&key(2), conn(10), Reason::Disconnect, 60_000);
    hold.tick(6000);
    let again = opens(&hold.renewed(ok(2, Renewed::Gone), 6000));
    assert_eq!(again.len(), 2, "not the one that lingers");
    for op in &again {
        assert_ne!(op.holder, old);
        assert_eq!(
            (op.stamp.rev, op.opened_at),
            (2, 77),
            "with the times the store gave"
        );
    }
    // It goes on under that one.
    for op in &again {
        let told = hold.opened(op, ok(2, recorded(op)), 6001);
        assert!(opens(&told).is_empty());
    }
    hold.tick(12_000);
    assert!(
        hold.renewed(ok(2, Renewed::Ok { held: 2 }), 12_000)
            .is_empty()
    );
}

#[test]
fn gone_opens_everything_again_also_when_an_open_hears_it() {
    let mut hold = with_sessions(2);
    let sent = opens(&hold.hello(key(9), conn(10), state(9), None));
    let again = opens(&hold.opened(&sent[0], ok(1, Opened::Gone), 10));
    assert_eq!(
        again.len(),
        3,
        "all that the old incarnation held, and the new one"
    );
    assert!(again.iter().all(|op| op.holder == *hold.incarnation()));
}

#[test]
fn a_number_that_is_wrong_twice_opens_everything_again() {
    let mut hold = with_sessions(2);
    hold.tick(6000);
    assert!(
        hold.renewed(ok(1, Renewed::Ok { held: 1 }), 6000)
            .is_empty(),
        "once is a race"
    );
    hold.tick(12_000);
    assert_eq!(
        opens(&hold.renewed(ok(1, Renewed::Ok { held: 1 }), 12_000)).len(),
        2
    );
}

#[test]
fn lingering_ones_may_be_held_or_not() {
    let mut hold = with_sessions(3);
    hold.end(&key(0), conn(10), Reason::Disconnect, 600_000);
    for (at, held) in [(6000, 2), (12_000, 3), (18_000, 2)] {
        hold.tick(at);
        assert!(hold.renewed(ok(1, Renewed::Ok { held }), at).is_empty());
    }
}

#[test]
fn closes_wait_while_the_shard_does_not_answer_and_a_while_after() {
    let mut hold = with_sessions(1);
    hold.end(&key(0), conn(10), Reason::Disconnect, 10_400);
    for at in [5000, 10_000] {
        hold.tick(at);
        hold.renewed(down(), at);
    }
    assert!(
        closes(&hold.tick(10_500)).is_empty(),
        "the shard is in doubt"
    );
    hold.tick(15_000);
    hold.renewed(ok(1, Renewed::Ok { held: 1 }), 15_000);
    assert!(
        closes(&hold.tick(24_999)).is_empty(),
        "whoever reconnected elsewhere comes first"
    );
    let sent = closes(&hold.tick(25_000));
    assert_eq!(sent[0].reason, Reason::Disconnect);
}

#[test]
fn a_shard_that_hangs_is_in_doubt_although_nothing_fails() {
    let mut hold = with_sessions(1);
    hold.end(&key(0), conn(10), Reason::Disconnect, 8_000);
    hold.tick(5000);
    assert_eq!(hold.next(), 8_000);
    assert!(
        closes(&hold.tick(8_000)).is_empty(),
        "a renewal has hung for three seconds"
    );
    assert_eq!(hold.next(), u64::MAX, "the answer is waited for");
    hold.renewed(ok(1, Renewed::Ok { held: 1 }), 9_000);
    assert!(
        closes(&hold.tick(18_999)).is_empty(),
        "whoever reconnected elsewhere comes first"
    );
    assert_eq!(closes(&hold.tick(19_000)).len(), 1);
}

#[test]
fn those_whose_time_is_up_are_closed_together() {
    let mut hold = with_sessions(3);
    hold.times.together_ms = 250;
    hold.end(&key(0), conn(10), Reason::Disconnect, 1001);
    hold.end(&key(1), conn(10), Reason::Disconnect, 1250);
    hold.end(&key(2), conn(10), Reason::Timeout, 1251);
    assert!(hold.tick(1249).is_empty());
    assert_eq!(hold.next(), 1250);
    assert_eq!(closes(&hold.tick(1250)).len(), 2);
    assert_eq!(hold.next(), 1500);
    assert_eq!(closes(&hold.tick(1500)).len(), 1);
}

#[test]
fn a_goodbye_does_not_wait() {
    let mut hold = with_sessions(1);
    for at in [5000, 10_000] {
        hold.tick(at);
        hold.renewed(down(), at);
    }
    let sent = closes(&hold.end(&key(0), conn(10), Reason::Leave, 10_001));
    let told = hold.closed(&sent[0], ok(1, Closed::Ok { committed: true }), 10_002);
    assert_eq!(
        told,
        [Action::Tell(key(0), conn(10), Word::Closed(Reason::Leave))]
    );
    assert_eq!(hold.sessions().count(), 0);
}

#[test]
fn a_newer_connection_of_the_device_replaces_the_older_one() {
    let mut hold = with_sessions(1);
    let actions = hold.hello(key(0), conn(11), state(5), None);
    assert_eq!(actions[0], Action::Tell(key(0), conn(10), Word::Replaced));
    assert_eq!(
        opens(&actions)[0].stamp,
        Stamp {
            conn: conn(11),
            rev: 1
        }
    );
    let late = hold.hello(key(0), conn(10), state(5), None);
    assert_eq!(
        late,
        [Action::Tell(key(0), conn(10), Word::Superseded(conn(11)))]
    );
    assert!(
        hold.end(&key(0), conn(10), Reason::Leave, 0).is_empty(),
        "its close is not ours"
    );
}

#[test]
fn superseded_says_whether_it_was_ever_let_in() {
    let mut hold = with_sessions(1);
    let sent = opens(&hold.hello(key(7), conn(3), state(7), None));
    let told = hold.opened(&sent[0], ok(1, Opened::Superseded { conn: conn(9) }), 1);
    assert_eq!(
        told,
        [Action::Tell(key(7), conn(3), Word::Superseded(conn(9)))]
    );
    let Action::Alter(alter) = hold.set(&key(0), conn(10), state(4), None).remove(0) else {
        panic!("no change")
    };
    let told = hold.altered(&alter, ok(1, Altered::Superseded { conn: conn(12) }), 2);
    assert_eq!(told, [Action::Tell(key(0), conn(10), Word::Replaced)]);
}

#[test]
fn a_change_of_an_unknown_session_opens_it_with_its_newest_state() {
    let mut hold = with_sessions(1);
    let Action::Alter(alter) = hold.set(&key(0), conn(10), state(4), None).remove(0) else {
        panic!("no change")
    };
    hold.set(&key(0), conn(10), state(5), None);
    let again = opens(&hold.altered(&alter, ok(1, Altered::Unknown), 1));
    assert_eq!((again[0].stamp.rev, &again[0].state), (3, &state(5)));
}

#[test]
fn one_that_was_silent_and_speaks_is_opened_again_if_the_others_were() {
    let mut hold = with_sessions(2);
    hold.end(&key(0), conn(10), Reason::Timeout, 60_000);
    assert!(hold.spoke(&key(0), conn(10)).is_empty());
    hold.end(&key(0), conn(10), Reason::Timeout, 60_000);
    hold.tick(6000);
    hold.renewed(ok(2, Renewed::Gone), 6000);
    assert_eq!(opens(&hold.spoke(&key(0), conn(10))).len(), 1);
}

#[test]
fn a_drain_is_the_last_renewal() {
    let mut hold = with_sessions(1);
    let last = hold.drain(30_000);
    assert_eq!(
        last,
        [Action::Renew(
            hold.incarnation().clone(),
            Lease::Drain(30_000)
        )]
    );
    assert!(hold.tick(100_000).is_empty());
}

#[test]
fn a_hello_said_again_is_the_same_session() {
    let mut hold = hold();
    let opens = hold.hello(key(1), conn(5), state(1), None);
    let Some(Action::Open(first)) = opens.first().cloned() else {
        panic!("no open: {opens:?}");
    };
    // The answer is lost on the way to the client, its line breaks, and it says hello again.
    hold.opened(&first, ok(1, recorded(&first)), 10);
    hold.end(&key(1), conn(5), Reason::Disconnect, 10_000);
    let again = hold.hello(key(1), conn(5), state(2), None);
    let Some(Action::Open(second)) = again.first().cloned() else {
        panic!("no open: {again:?}");
    };
    assert_eq!((second.stamp.conn, second.stamp.rev), (conn(5), 2));
    assert_eq!(second.state, state(2));
    hold.opened(&second, ok(1, recorded(&second)), 20);
    assert_eq!(hold.connected(), 1);
    let late: Vec<_> = hold.tick(20_000);
    assert!(
        !late.iter().any(|a| matches!(a, Action::Close(_))),
        "{late:?}"
    );
    // One that said goodbye is over, whoever repeats its hello.
    hold.end(&key(1), conn(5), Reason::Leave, 0);
    let over = hold.hello(key(1), conn(5), state(2), None);
    assert!(
        matches!(over[..], [Action::Tell(_, _, Word::Superseded(_))]),
        "{over:?}"
    );
}
