//! Calls: answers, patience, and what outlives a connection.

use super::*;

#[test]
fn a_call_resolves_when_it_is_acked_and_is_kept_from_then_on() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let mut answer = desk.call(join("lobby"));
    let frame = desk.sent_one();
    assert!(answer.try_recv().is_err());
    desk.reply(frame.r#ref, ServerBody::Ack);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
    desk.session.lost(Cause::Silent);
    assert_eq!(desk.connect().rooms.len(), 1);
    assert_eq!(desk.sent(), []);
}

#[test]
fn what_was_not_sent_yet_waits_for_the_welcome() {
    let mut desk = Desk::new(Intent::default());
    let _join = desk.call(join("lobby"));
    let _set = desk.call(away());
    assert_eq!(desk.sent(), []);
    assert_eq!(desk.connect().rooms, []);
    let words: Vec<_> = desk.sent().iter().map(|f| f.body.word()).collect();
    assert_eq!(words, ["join", "set"]);
}

#[test]
fn what_was_sent_and_not_answered_is_in_the_next_hello_and_sent_again() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let _answer = desk.call(join("lobby"));
    let first = desk.sent_one();
    desk.session.lost(Cause::Silent);
    assert_eq!(desk.connect().rooms.len(), 1);
    assert_eq!(desk.sent_one(), first);
}

#[test]
fn a_hello_that_is_refused_for_what_it_hoped_is_said_without_it() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let _answer = desk.call(join("secret"));
    desk.session.lost(Cause::Silent);
    let hello = desk.hello();
    let cause = Cause::Problem(problem(Code::Forbidden));
    let again = desk.session.failed(desk.now, cause.clone());
    assert_eq!(again, Verdict::AT_ONCE);
    assert_eq!(hello.rooms.len(), 1);
    assert_eq!(desk.hello().rooms, []);
    let end = desk.session.failed(desk.now, cause);
    assert!(matches!(end, Verdict::End(EndReason::Refused(_))));
}

#[test]
fn rate_limited_calls_are_sent_again_when_allowed() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let mut answer = desk.call(join("lobby"));
    let first = desk.sent_one();
    let mut limited = problem(Code::RateLimited);
    limited.retry_after_ms = Some(350);
    desk.reply(first.r#ref.clone(), ServerBody::Error(limited));
    desk.pass(Duration::from_millis(349));
    assert_eq!(desk.sent(), []);
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.sent_one(), first);
    desk.reply(first.r#ref, ServerBody::Ack);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
}

#[test]
fn a_retry_never_undoes_a_later_call() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let mut joined = desk.call(join("lobby"));
    let first = desk.sent_one();
    let _parted = desk.call(ClientBody::Part(RoomId::new("lobby").unwrap()));
    desk.sent_one();
    let limited = ServerBody::Error(problem(Code::RateLimited));
    desk.reply(first.r#ref, limited);
    assert_eq!(joined.try_recv().unwrap(), Err(Error::Overtaken));
    desk.pass(Duration::from_secs(2));
    assert_eq!(desk.sent(), []);
}

#[test]
fn a_later_call_takes_the_place_of_one_that_waits() {
    let mut desk = Desk::new(Intent::default());
    let mut joined = desk.call(join("lobby"));
    let mut other = desk.call(join("attic"));
    let _parted = desk.call(ClientBody::Part(RoomId::new("lobby").unwrap()));
    assert_eq!(joined.try_recv().unwrap(), Err(Error::Overtaken));
    assert!(other.try_recv().is_err());
    desk.connect();
    assert_eq!(desk.sent().len(), 2);
}

#[test]
fn no_answer_in_time_ends_the_connection() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let _answer = desk.call(join("lobby"));
    assert_eq!(desk.pass(Duration::from_millis(4999)), None);
    let over = Some(Signal::Over(Cause::Silent));
    assert_eq!(desk.pass(Duration::from_millis(1)), over);
}

#[test]
fn beats_come_in_time_and_any_frame_is_one() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    desk.pass(Duration::from_millis(13_000));
    let _answer = desk.call(join("lobby"));
    let frame = desk.sent_one();
    desk.reply(frame.r#ref, ServerBody::Ack);
    desk.pass(Duration::from_millis(13_000));
    assert_eq!(desk.sent(), []);
    desk.pass(Duration::from_millis(2_000));
    let beat = desk.sent_one();
    assert_eq!(beat.body, ClientBody::Heartbeat);
    desk.reply(beat.r#ref, ServerBody::Ack);
    assert_eq!(desk.pass(Duration::from_secs(6)), None);
}

#[test]
fn leave_ends_when_acked_or_when_nobody_answers() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let mut answer = desk.call(ClientBody::Leave);
    let frame = desk.sent_one();
    let end = Some(Signal::End(EndReason::Left));
    assert_eq!(desk.reply(frame.r#ref, ServerBody::Ack), end);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));

    let mut desk = Desk::new(Intent::default());
    let mut answer = desk.call(ClientBody::Leave);
    assert_eq!(
        desk.session.deadline(),
        Some(desk.now + Duration::from_secs(5))
    );
    assert_eq!(desk.pass(Duration::from_secs(5)), end);
    assert_eq!(answer.try_recv().unwrap(), Err(Error::Unanswered));
}

#[test]
fn who_waits_is_told_the_end() {
    let mut desk = Desk::new(Intent::default());
    let mut answer = desk.call(join("lobby"));
    desk.session.end(&EndReason::Kicked);
    assert_eq!(
        answer.try_recv().unwrap(),
        Err(Error::Ended(EndReason::Kicked))
    );
    assert_eq!(
        desk.session.take_events(),
        [Event::Ended(EndReason::Kicked)]
    );
}

#[test]
fn open_calls_are_bounded() {
    let mut desk = Desk::new(Intent::default());
    let mut answers: Vec<_> = (0..5000).map(|n| desk.call(join(&n.to_string()))).collect();
    let last = answers.last_mut().unwrap().try_recv().unwrap();
    assert_eq!(last, Err(Error::Busy));
}

fn away() -> ClientBody {
    ClientBody::Set(adsum_proto::client::frame::Set {
        activity: Some(Activity::Away),
        ..Default::default()
    })
}
