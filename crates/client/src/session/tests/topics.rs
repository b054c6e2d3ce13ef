//! States, diffs, gaps and resuming.

use super::*;

#[test]
fn a_state_after_a_reconnect_is_told_as_the_difference() {
    let mut desk = Desk::watching();
    let hello = desk.connect();
    assert_eq!(hello.watch[0].digest, None);
    desk.session.take_events();
    let events = desk.state(
        1,
        members(vec![item("ann", 1), item("bob", 2), item("cy", 3)]),
    );
    assert_eq!(short(&events), ["+ann", "+bob", "+cy", "=members true"]);

    desk.session.lost(Cause::Closed(1006));
    let hello = desk.connect();
    assert!(hello.watch[0].digest.is_some());
    desk.session.take_events();
    let mut moved = item("bob", 9);
    moved.meta = item("bob", 2).meta;
    let events = desk.state(1, members(vec![moved, item("cy", 4), item("di", 5)]));
    assert_eq!(short(&events), ["-ann", "~cy", "+di", "=members true"]);
    assert_eq!(desk.roster(), ["bob", "cy", "di"]);
}

#[test]
fn unchanged_keeps_what_is_known() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 7)]));
    desk.session.lost(Cause::Silent);
    desk.connect();
    desk.session.take_events();
    assert_eq!(short(&desk.state(1, None)), ["=resumed"]);
    assert_eq!(short(&desk.diff(2, vec![], vec![left("ann")])), ["-ann"]);
}

#[test]
fn unchanged_that_covers_something_else_is_not_believed() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 7)]));
    // A handover: the old connection goes on telling after the hello was written.
    let hello = desk.hello();
    desk.diff(2, vec![item("bob", 8)], vec![]);
    desk.welcome(&hello);
    desk.session.take_events();
    assert_eq!(desk.state(1, None), []);
    let again = desk.sent_one();
    assert!(matches!(&again.body, ClientBody::Watch(w) if w.digest.is_some()));
    desk.reply(again.r#ref, state(2, members(vec![item("ann", 7)])));
    assert_eq!(
        short(&desk.session.take_events()),
        ["-bob", "=members true"]
    );
}

#[test]
fn a_gap_asks_for_the_state_once_and_believes_nothing_before_it() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 1)]));
    assert_eq!(desk.diff(3, vec![item("bob", 2)], vec![]), []);
    assert_eq!(desk.diff(4, vec![item("cy", 3)], vec![]), []);
    let again = desk.sent_one();
    desk.session.take_events();
    desk.reply(
        again.r#ref,
        state(5, members(vec![item("ann", 1), item("cy", 3)])),
    );
    assert_eq!(short(&desk.session.take_events()), ["+cy", "=members true"]);
    assert_eq!(short(&desk.diff(6, vec![], vec![left("ann")])), ["-ann"]);
}

#[test]
fn of_an_incomplete_state_nobody_is_missed_until_it_is_complete() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 1), item("bob", 2)]));
    let part = Members {
        complete: false,
        members: vec![item("ann", 1)],
        count: None,
    };
    assert_eq!(short(&desk.state(2, Some(part))), ["=members false"]);
    assert_eq!(desk.roster(), ["ann", "bob"]);
    // Who follows is known already, so that is no news.
    assert_eq!(desk.diff(3, vec![item("bob", 2)], vec![]), []);
    desk.pass(Duration::from_secs(2));
    let again = desk.sent_one();
    desk.reply(again.r#ref, state(4, members(vec![item("ann", 1)])));
    assert_eq!(
        short(&desk.session.take_events()),
        ["-bob", "=members true"]
    );
    assert!(desk.pass(Duration::from_secs(4)).is_none());
    assert_eq!(desk.sent(), []);
}

#[test]
fn a_state_that_does_not_come_is_asked_for() {
    let mut desk = Desk::watching();
    desk.connect();
    assert_eq!(desk.sent(), []);
    desk.pass(Duration::from_secs(5));
    assert!(matches!(desk.sent_one().body, ClientBody::Watch(_)));
}

#[test]
fn in_mode_count_only_numbers_are_told() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 1), item("bob", 2)]));
    desk.session.take_events();
    let count = |offset, count, items| {
        ServerBody::PresenceState(PresenceState {
            topic: lobby(),
            offset,
            mode: Mode::Count,
            members: Some(Members {
                complete: true,
                members: items,
                count: Some(count),
            }),
            stale: false,
        })
    };
    desk.news(count(2, 12_000, vec![item("zoe", 5)]));
    let events = desk.session.take_events();
    assert_eq!(short(&events), ["=count true", "#12000"]);
    assert_eq!(desk.roster(), ["zoe"]);
    assert_eq!(desk.diff(3, vec![item("yan", 6)], vec![]), []);
    desk.session.lost(Cause::Silent);
    // There is nothing to resume.
    assert_eq!(desk.hello().watch[0].digest, None);
    let events = desk.state(4, members(vec![item("ann", 1)]));
    assert_eq!(short(&events[1..]), ["+ann", "=members true"]);
}

#[test]
fn a_part_that_cant_be_heard_is_told_once() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 1)]));
    desk.session.take_events();
    let diff = |offset, stale| {
        ServerBody::PresenceDiff(PresenceDiff {
            topic: lobby(),
            offset,
            joins: vec![],
            leaves: vec![],
            updates: vec![],
            count: None,
            stale,
        })
    };
    for (offset, stale, told) in [
        (2, None, vec![]),
        (3, Some(true), vec!["?true"]),
        (4, Some(true), vec![]),
        (5, None, vec![]),
    ] {
        desk.news(diff(offset, stale));
        assert_eq!(short(&desk.session.take_events()), told, "{offset}");
    }
    let view = desk.book.view(&lobby()).unwrap();
    assert!(view.stale && view.members.len() == 1);
    let events = desk.state(6, members(vec![item("ann", 1)]));
    assert_eq!(short(&events), ["=members true", "?false"]);
    assert!(!desk.book.view(&lobby()).unwrap().stale);
}

#[test]
fn an_unwatched_topic_is_silent_and_a_refused_one_is_gone() {
    let mut desk = Desk::watching();
    desk.connect();
    desk.state(1, members(vec![item("ann", 1)]));
    desk.call(ClientBody::Unwatch(vec![lobby()]));
    assert_eq!(desk.diff(2, vec![item("bob", 2)], vec![]), []);
    assert_eq!(desk.book.view(&lobby()), None);
    let frame = desk.sent_one();
    desk.reply(frame.r#ref, ServerBody::Ack);
    let mut answer = desk.call(watch());
    assert!(desk.book.view(&lobby()).is_some());
    let frame = desk.sent_one();
    desk.reply(frame.r#ref, ServerBody::Error(problem(Code::Forbidden)));
    let refused = Error::Refused(problem(Code::Forbidden));
    assert_eq!(answer.try_recv().unwrap(), Err(refused));
    assert_eq!(desk.book.view(&lobby()), None);
    assert_eq!(desk.hello().watch, []);
}
