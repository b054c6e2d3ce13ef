//! Hellos, handovers and ends.

use adsum_core::Manual;
use adsum_proto::client::frame::Patch;

use super::*;

#[test]
fn an_unanswered_hello_is_repeated_under_a_higher_number() {
    let mut desk = Desk::new(Intent::default());
    let first = desk.hello();
    desk.session.failed(desk.now, Cause::Silent);
    let second = desk.hello();
    assert!(second.conn > first.conn);
    let conn = first.conn;
    assert_eq!(
        Hello {
            conn,
            ..second.clone()
        },
        first
    );
    desk.welcome(&second);
    desk.session.lost(Cause::Closed(1006));
    assert!(desk.hello().conn > second.conn);
}

#[test]
fn replaced_by_an_own_hello_whose_answer_was_lost_comes_back() {
    let mut desk = Desk::new(Intent::default());
    let first = desk.hello();
    desk.welcome(&first);
    // Sent away, it says hello elsewhere, in vain as it seems.
    desk.hello();
    desk.session.failed(desk.now, Cause::Silent);
    let replaced = || Cause::Problem(problem(Code::Replaced));
    assert_eq!(desk.session.lost(replaced()), Verdict::LATER);
    let third = desk.hello();
    desk.welcome(&third);
    assert_eq!(
        desk.session.lost(replaced()),
        Verdict::End(EndReason::Replaced)
    );
}

#[test]
fn superseded_goes_above_the_recorded_number_once() {
    let mut desk = Desk::new(Intent::default());
    let superseded = || {
        let mut problem = problem(Code::Superseded);
        problem.conn = Some(Conn::new(5000).unwrap());
        Cause::Problem(problem)
    };
    desk.hello();
    let verdict = desk.session.failed(desk.now, superseded());
    assert_eq!(verdict, Verdict::AT_ONCE);
    assert_eq!(desk.hello().conn, Conn::new(5001).ok());
    let verdict = desk.session.failed(desk.now, superseded());
    assert_eq!(verdict, Verdict::End(EndReason::Superseded));
}

#[test]
fn a_status_is_said_until_it_is_confirmed_and_then_left_alone() {
    let mut desk = Desk::new(Intent {
        status: Patch::Set(Manual::Dnd),
        ..Intent::default()
    });
    assert_eq!(desk.hello().status, Patch::Set(Manual::Dnd));
    desk.session.failed(desk.now, Cause::Silent);
    assert_eq!(desk.connect().status, Patch::Set(Manual::Dnd));
    desk.session.lost(Cause::Silent);
    assert_eq!(desk.connect().status, Patch::Keep);
}

#[test]
fn in_a_handover_calls_wait_and_beats_do_not() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let drain = desk.news(ServerBody::Reconnect { after_ms: 5200 });
    assert_eq!(drain, Some(Signal::Drain(Duration::from_millis(5200))));
    let hello = desk.hello();
    let _answer = desk.call(join("lobby"));
    assert_eq!(desk.sent(), []);
    desk.pass(Duration::from_secs(15));
    assert_eq!(desk.sent_one().body, ClientBody::Heartbeat);
    desk.session.take_events();
    desk.welcome(&hello);
    assert_eq!(desk.sent_one().body, join("lobby"));
    // No word of a disconnect: there was none.
    let events = desk.session.take_events();
    assert!(matches!(events[..], [Event::Connected { .. }]));
}

/// A hello that was given up and is heard late has a higher number than the connection that
/// stands: it would undo what is said there.
#[test]
fn a_hello_that_may_be_heard_late_undoes_nothing() {
    for cause in [
        Cause::Silent,
        Cause::Broken("reset".into()),
        Cause::Closed(1001),
    ] {
        let mut desk = Desk::new(Intent::default());
        desk.connect();
        let late = desk.hello();
        let mut answer = desk.call(join("lobby"));
        desk.session.failed(desk.now, cause);
        assert_eq!(desk.sent(), [], "what the late hello does not know of");
        // The connection is kept alive meanwhile.
        desk.pass(Duration::from_secs(15));
        let beat = desk.sent_one();
        assert_eq!(beat.body, ClientBody::Heartbeat);
        desk.reply(beat.r#ref, ServerBody::Ack);
        // The next hello is above it, whenever it is heard.
        let next = desk.connect();
        assert!(next.conn > late.conn);
        let frame = desk.sent_one();
        assert_eq!(frame.body, join("lobby"));
        desk.reply(frame.r#ref, ServerBody::Ack);
        assert_eq!(answer.try_recv().unwrap(), Ok(()));
    }
}

#[test]
fn a_handover_that_surely_failed_lets_calls_go() {
    let mut full = problem(Code::TooManyConnections);
    full.retry_after_ms = Some(700);
    for cause in [
        Cause::Unsaid("connection refused".into()),
        Cause::Problem(full),
    ] {
        let mut desk = Desk::new(Intent::default());
        desk.connect();
        desk.hello();
        let _answer = desk.call(join("lobby"));
        desk.session.failed(desk.now, cause);
        assert_eq!(desk.sent_one().body, join("lobby"));
    }
}

/// One that surely failed says nothing of those before it.
#[test]
fn a_doubt_lasts_until_a_hello_is_answered() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    desk.hello();
    desk.session.failed(desk.now, Cause::Silent);
    let _answer = desk.call(join("lobby"));
    desk.hello();
    desk.session
        .failed(desk.now, Cause::Unsaid("refused".into()));
    assert_eq!(desk.sent(), []);
    desk.connect();
    assert_eq!(desk.sent_one().body, join("lobby"));
}

#[test]
fn what_was_refused_after_the_hello_was_written_is_taken_back() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    let _answer = desk.call(join("secret"));
    let frame = desk.sent_one();
    let hello = desk.hello();
    assert_eq!(hello.rooms.len(), 1);
    desk.reply(frame.r#ref, ServerBody::Error(problem(Code::Forbidden)));
    desk.welcome(&hello);
    let part = ClientBody::Part(RoomId::new("secret").unwrap());
    assert_eq!(desk.sent_one().body, part);
}

#[test]
fn errors_that_close_end_the_connection_and_others_are_told() {
    let mut desk = Desk::new(Intent::default());
    desk.connect();
    desk.session.take_events();
    let complaint = problem(Code::Forbidden);
    assert_eq!(desk.news(ServerBody::Error(complaint.clone())), None);
    assert_eq!(desk.session.take_events(), [Event::Error(complaint)]);
    let kicked = problem(Code::Kicked);
    let over = Signal::Over(Cause::Problem(kicked.clone()));
    assert_eq!(desk.news(ServerBody::Error(kicked.clone())), Some(over));
    let end = desk.session.lost(Cause::Problem(kicked));
    assert_eq!(end, Verdict::End(EndReason::Kicked));
}

#[test]
fn times_from_a_server_are_bounded() {
    let mut desk = Desk::watching();
    let hello = desk.hello();
    let mut welcome = Welcome {
        user: UserId::new("ann").unwrap(),
        device: hello.device.unwrap(),
        conn: hello.conn.unwrap(),
        heartbeat_ms: u64::MAX,
        ttl_ms: 0,
        server_time: u64::MAX,
    };
    desk.session.opened(desk.now, "".into(), &welcome);
    for after_ms in [0, u64::MAX] {
        assert!(desk.news(ServerBody::Reconnect { after_ms }).is_some());
        assert!(
            desk.news(ServerBody::Expiring { in_ms: after_ms })
                .is_some()
        );
    }
    welcome.heartbeat_ms = 0;
    desk.session.opened(desk.now, "".into(), &welcome);
    assert!(desk.session.deadline() > Some(desk.now));
    desk.state(u64::MAX, members(vec![]));
    desk.diff(0, vec![], vec![]);
    assert!(matches!(desk.sent_one().body, ClientBody::Watch(_)));
}
