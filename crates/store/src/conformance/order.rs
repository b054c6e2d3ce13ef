//! Which operation wins: connections, revisions, tombstones, kicks.

use std::sync::Arc;

use adsum_core::{
    Event, Holder, Manual, Origin, Preference, Reason, RoomId,
    store::{Alter, Altered, Close, Closed, Due, Opened, Preferred, Swept, Touched},
};

use super::{Labs, kit::*};

/// A `close`, `change`, `open` or `touch` with an older `conn` is superseded, whoever sends it.
pub async fn an_older_conn_is_superseded_from_another_holder_and_from_the_same(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let (before, seq) = (kit.read("ann").await, kit.seq().await);
    for by in ["a~1", "b~1"] {
        assert_eq!(kit.open("ann/web", by, (4, 9), &["r"]).await, superseded(5));
    }
    let older = Altered::Superseded { conn: conn(5) };
    assert_eq!(kit.alter("ann/web", (4, 9), &["r"]).await, older);
    assert_eq!(
        kit.close("ann/web", (4, 9)).await,
        Closed::Superseded { conn: conn(5) }
    );
    let touched = kit.touch("ann/web", (4, 9), 1000).await;
    assert_eq!(touched, Touched::Superseded { conn: conn(5) });
    assert_eq!(kit.read("ann").await, before);
    assert_eq!(kit.seq().await, seq);
    assert!(kit.held("b~1").await.is_empty());
    assert_eq!(
        kit.deadline(&Due::Holder(holder("b~1"))).await,
        None,
        "it holds nothing"
    );
    assert_eq!(
        kit.deadline(&Due::Tomb(key("ann/web"))).await,
        None,
        "a refused close is none"
    );
}

/// Whoever commits a change is told it with the answer, if it is all there is to say of its owner.
pub async fn a_change_of_the_only_session_is_answered_whole(labs: &dyn Labs) {
    let kit = Kit::new(labs).await;
    let store = kit.lab.caller().await;
    let alter = |path: &str, rev, rooms: &[&str]| {
        let op = Alter {
            key: key(path),
            stamp: stamp(5, rev),
            state: state(rooms),
            origin: None,
        };
        store.alter(op)
    };
    let close = |path: &str| {
        let op = Close {
            key: key(path),
            stamp: stamp(5, 9),
            reason: Reason::Leave,
            origin: None,
        };
        store.close(op)
    };
    let opened = store.open(open("bob/web", "a~1", (5, 1), &["r"])).await;
    assert_eq!(opened.unwrap().whole, None, "others may come back");
    kit.settle().await;

    let opened = store.open(open("ann/web", "b~1", (5, 1), &["r"])).await;
    let whole = opened.unwrap().whole;
    assert_eq!(whole.as_deref(), kit.log().await.last());
    let altered = alter("ann/web", 2, &["r", "s"]).await.unwrap();
    assert_eq!(altered.whole.as_deref(), kit.log().await.last());
    let altered = alter("ann/web", 3, &["r", "s"]).await.unwrap();
    assert_eq!(altered.whole, None, "nothing was committed");
    let opened = store.open(open("ann/app", "b~1", (5, 1), &[])).await;
    assert_eq!(opened.unwrap().whole, None, "there is another session");
    assert_eq!(alter("ann/web", 4, &[]).await.unwrap().whole, None);
    assert_eq!(close("ann/web").await.unwrap().whole, None);
    let closed = close("ann/app").await.unwrap();
    assert_eq!(closed.whole.as_deref(), kit.log().await.last());
    assert_eq!(close("ann/app").await.unwrap().whole, None, "it is closed");

    kit.lab.fail_over(0).await;
    let opened = store.open(open("cem/web", "c~1", (5, 1), &["r"])).await;
    assert_eq!(opened.unwrap().whole, None, "it settles again");
}

/// The same conn with a rev that is not higher is answered like the first and has no effect.
pub async fn a_late_duplicate_changes_nothing(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.alter("ann/web", (5, 3), &["r"]).await;
    let (before, seq) = (kit.read("ann").await, kit.seq().await);
    let recorded = before.person.clone().unwrap().sessions[&device("web")].clone();
    kit.lab.advance(7);
    for rev in [1, 2, 3] {
        let Opened::Ok {
            session, committed, ..
        } = kit.open("ann/web", "b~1", (5, rev), &["x"]).await
        else {
            panic!("a duplicate is answered like the first");
        };
        assert_eq!((*session, committed), (recorded.clone(), false));
        let same = Altered::Ok {
            session: Box::new(recorded.clone()),
            committed: false,
        };
        assert_eq!(kit.alter("ann/web", (5, rev), &["x"]).await, same);
        assert_eq!(
            kit.close("ann/web", (5, rev)).await,
            Closed::Ok { committed: false }
        );
        let touched = kit.touch("ann/web", (5, rev), 10).await;
        assert_eq!(touched, Touched::Ok { committed: false });
    }
    assert_eq!((kit.read("ann").await, kit.seq().await), (before, seq));
    assert_eq!(kit.held("a~1").await, ["ann/web"]);
    assert_eq!(kit.deadlines().await.len(), 1, "only the holder's");
}

/// A closed connection can't be opened again while its tombstone stands, by no operation.
pub async fn an_open_after_its_close_is_stopped_by_the_tombstone(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    assert_eq!(
        kit.close("ann/web", (5, 2)).await,
        Closed::Ok { committed: true }
    );
    let until = kit.now() + kit.lab.options().tomb_ms;
    assert_eq!(kit.deadline(&Due::Tomb(key("ann/web"))).await, Some(until));
    for number in [(5, 1), (5, 3), (4, 1)] {
        assert_eq!(kit.open("ann/web", "a~1", number, &[]).await, superseded(5));
        let touched = kit.touch("ann/web", number, 10).await;
        assert_eq!(touched, Touched::Superseded { conn: conn(5) });
    }
    kit.lab
        .advance(i64::try_from(kit.lab.options().tomb_ms).unwrap() - 1);
    assert_eq!(
        kit.open("ann/web", "b~1", (5, 3), &[]).await,
        superseded(5),
        "the last instant"
    );
    assert!(
        kit.opened("ann/web", "b~1", (6, 1)).await,
        "a newer one may come"
    );
    kit.close("ann/web", (6, 2)).await;
    kit.lab
        .advance(i64::try_from(kit.lab.options().tomb_ms).unwrap());
    assert!(
        kit.opened("ann/web", "c~1", (5, 3)).await,
        "nobody remembers any more"
    );
}

/// A later close of an older connection does not open the way for the newer one.
pub async fn a_tombstone_is_never_lowered(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    assert_eq!(
        kit.close("ann/web", (9, 1)).await,
        Closed::Ok { committed: false }
    );
    kit.lab.advance(100);
    assert_eq!(
        kit.close("ann/web", (3, 1)).await,
        Closed::Ok { committed: false }
    );
    assert_eq!(kit.open("ann/web", "a~1", (9, 2), &[]).await, superseded(9));
    let until = kit.now() + kit.lab.options().tomb_ms;
    assert_eq!(
        kit.deadline(&Due::Tomb(key("ann/web"))).await,
        Some(until),
        "but it is renewed"
    );
}

/// A reconnect or a deploy makes no diff: only the holder and the stamp change.
pub async fn a_move_without_visible_change_commits_nothing(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.open("ann/web", "a~1", (5, 1), &["r"]).await;
    let (before, seq) = (kit.read("ann").await.person.unwrap(), kit.seq().await);
    kit.lab.advance(1000);
    for (by, number) in [("b~1", (5, 2)), ("c~1", (6, 1))] {
        assert!(!committed(&kit.open("ann/web", by, number, &["r"]).await));
        assert_eq!(kit.held(by).await, ["ann/web"]);
    }
    assert!(kit.held("a~1").await.is_empty() && kit.held("b~1").await.is_empty());
    let after = kit.read("ann").await.person.unwrap();
    let session = &after.sessions[&device("web")];
    assert_eq!(session.holder, Holder::Gateway(holder("c~1")));
    assert_eq!(session.stamp, stamp(6, 1));
    assert!(session.looks_like(&before.sessions[&device("web")]));
    assert_eq!((after.version, kit.seq().await), (before.version, seq));
    assert!(
        committed(&kit.open("ann/web", "c~1", (6, 2), &["r", "s"]).await),
        "this is visible"
    );
}

/// A change opens nothing: its gateway must open with the whole state.
pub async fn a_change_of_an_unknown_session_is_unknown(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let seq = kit.seq().await;
    assert_eq!(kit.alter("ann/web", (5, 1), &[]).await, Altered::Unknown);
    assert_eq!(kit.seq().await, seq);
    kit.opened("ann/web", "a~1", (5, 1)).await;
    assert_eq!(
        kit.alter("ann/web", (6, 1), &[]).await,
        Altered::Unknown,
        "a newer connection"
    );
    kit.close("ann/web", (5, 2)).await;
    assert_eq!(
        kit.alter("ann/web", (5, 3), &[]).await,
        Altered::Unknown,
        "closed"
    );
}

/// A goodbye of a newer connection is one for the device.
pub async fn a_newer_connection_closes_the_device(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 7)).await;
    assert_eq!(
        kit.close("ann/web", (6, 1)).await,
        Closed::Ok { committed: true }
    );
    assert_eq!(kit.read("ann").await.person, None);
    assert!(kit.held("a~1").await.is_empty());
    assert_eq!(kit.open("ann/web", "a~1", (6, 2), &[]).await, superseded(6));
}

/// The close may overtake its open.
pub async fn a_close_of_an_unknown_session_leaves_a_tombstone(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let seq = kit.seq().await;
    assert_eq!(
        kit.close("ann/web", (5, 2)).await,
        Closed::Ok { committed: false }
    );
    assert_eq!(kit.open("ann/web", "a~1", (5, 1), &[]).await, superseded(5));
    assert_eq!(kit.seq().await, seq);
    assert_eq!(kit.read("ann").await.last_seen, None);
}

/// Neither a move nor a change nor a newer connection alters when a session or a stay began.
pub async fn a_known_session_keeps_its_times(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let began = kit.now();
    kit.open("ann/web", "a~1", (5, 1), &["r"]).await;
    kit.lab.advance(100);
    let joined = kit.now();
    kit.alter("ann/web", (5, 2), &["r", "s"]).await;
    kit.lab.advance(100);
    let mut moved = open("ann/web", "b~1", (6, 1), &["r", "s"]);
    moved.opened_at = 5;
    moved
        .state
        .rooms
        .iter_mut()
        .for_each(|(_, stay)| stay.since = 5);
    assert!(!committed(&kit.store.open(moved).await.unwrap().value));
    kit.touch("ann/phone", (1, 1), 1000).await;
    let person = kit.read("ann").await.person.unwrap();
    let session = &person.sessions[&device("web")];
    assert_eq!(session.opened_at, began);
    let since: Vec<_> = session
        .state
        .rooms
        .values()
        .map(|stay| stay.since)
        .collect();
    assert_eq!(since, [began, joined]);
    kit.alter("ann/web", (6, 2), &["s"]).await;
    let Altered::Ok { session, .. } = kit.alter("ann/web", (6, 3), &["r", "s"]).await else {
        panic!("it is open");
    };
    let since: Vec<_> = session
        .state
        .rooms
        .values()
        .map(|stay| stay.since)
        .collect();
    assert_eq!(since, [kit.now(), joined], "who left a room joins it anew");
}

/// Times that a gateway carried through a loss count, unless they lie ahead.
pub async fn a_given_time_counts_only_where_none_is_known(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let now = kit.now();
    for (path, given, kept) in [
        ("ann/web", now - 9, now - 9),
        ("bob/web", now + 9, now),
        ("cid/web", now, now),
    ] {
        let mut op = open(path, "a~1", (5, 1), &["r"]);
        op.opened_at = given;
        op.state
            .rooms
            .iter_mut()
            .for_each(|(_, stay)| stay.since = given);
        let Opened::Ok { session, .. } = kit.store.open(op).await.unwrap().value else {
            panic!("it opens");
        };
        let since = session.state.rooms[&RoomId::new("r").unwrap()].since;
        assert_eq!((session.opened_at, since), (kept, kept), "{path}");
    }
}

/// A kick leaves tombstones, so the gateway that re-opens is superseded.
pub async fn a_kick_is_not_undone_by_a_reopen(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    for path in ["ann/web", "ann/phone", "bob/web"] {
        kit.opened(path, "a~1", (5, 1)).await;
    }
    kit.touch("ann/tv", (7, 1), 1000).await;
    let seq = kit.seq().await;
    let kicked = kit.store.kick(&user("ann"), None).await.unwrap().value;
    assert_eq!(kicked, [device("phone"), device("tv"), device("web")]);
    let told = kit.told_after(seq).await;
    assert_eq!(
        told,
        ["ann/phone kicked", "ann/tv kicked", "ann/web kicked"]
    );
    let read = kit.read("ann").await;
    assert_eq!((read.person, read.last_seen), (None, Some(kit.now())));
    assert_eq!(kit.held("a~1").await, ["bob/web"]);
    assert_eq!(kit.open("ann/web", "b~1", (5, 9), &[]).await, superseded(5));
    let touched = kit.touch("ann/tv", (7, 2), 10).await;
    assert_eq!(touched, Touched::Superseded { conn: conn(7) });
    assert!(
        kit.opened("ann/web", "b~1", (6, 1)).await,
        "a new hello may come back"
    );
    assert!(
        kit.store
            .kick(&user("nil"), None)
            .await
            .unwrap()
            .value
            .is_empty()
    );
}

/// Only that device; one that is not there gets no tombstone.
pub async fn a_kick_of_one_device_leaves_the_others(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.opened("ann/phone", "a~1", (5, 1)).await;
    let kicked = kit
        .store
        .kick(&user("ann"), Some(&device("web")))
        .await
        .unwrap()
        .value;
    assert_eq!(kicked, [device("web")]);
    let read = kit.read("ann").await;
    assert_eq!(read.last_seen, None, "one device is left");
    let person = read.person.unwrap();
    assert_eq!(
        person.sessions.keys().collect::<Vec<_>>(),
        [&device("phone")]
    );
    assert_eq!(
        person.version.seq,
        kit.seq().await,
        "the person changed with it"
    );
    assert!(
        kit.store
            .kick(&user("ann"), Some(&device("tv")))
            .await
            .unwrap()
            .value
            .is_empty()
    );
    assert_eq!(kit.deadline(&Due::Tomb(key("ann/tv"))).await, None);
}

/// A log entry is an after-image with the rooms before, its reason, and where it came from.
pub async fn changes_name_the_rooms_before_and_carry_their_origin(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let seq = kit.seq().await;
    let parent: Arc<str> = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into();
    let origin = Some(Origin {
        at_us: 1,
        traceparent: Some(parent),
    });
    let mut op = open("ann/web", "a~1", (5, 1), &["r", "s"]);
    op.origin.clone_from(&origin);
    kit.store.open(op).await.unwrap();
    let (stamp_2, rooms) = (stamp(5, 2), state(&["s", "t"]));
    let alter = Alter {
        key: key("ann/web"),
        stamp: stamp_2,
        state: rooms,
        origin: None,
    };
    kit.store.alter(alter).await.unwrap();
    let bye = Some(Origin {
        at_us: 3,
        traceparent: None,
    });
    let reason = Reason::Replaced;
    let close = Close {
        key: key("ann/web"),
        stamp: stamp(5, 3),
        reason,
        origin: bye.clone(),
    };
    kit.store.close(close).await.unwrap();
    let log: Vec<_> = kit
        .log()
        .await
        .into_iter()
        .filter(|c| c.version.seq > seq)
        .collect();
    let origins: Vec<_> = log.iter().map(|c| c.origin.clone()).collect();
    assert_eq!(origins, [origin, None, bye]);
    let parts = log.iter().map(|c| match &c.event {
        Event::Session {
            rooms_before,
            after,
            reason,
            ..
        } => {
            let before = rooms_before.iter().map(RoomId::as_str).collect::<String>();
            let after = after
                .iter()
                .flat_map(|s| s.state.rooms.keys())
                .map(RoomId::as_str);
            (before, after.collect::<String>(), *reason)
        }
        other => panic!("{other:?}"),
    });
    let text = |before: &str, after: &str, reason| (before.to_owned(), after.to_owned(), reason);
    let wanted = [
        text("", "rs", None),
        text("rs", "st", None),
        text("st", "", Some(reason)),
    ];
    assert_eq!(parts.collect::<Vec<_>>(), wanted);
}

/// What a sweep closes, and a preference, can say where they came from as well.
pub async fn sweeps_and_preferences_carry_their_origin(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.touch("ann/tv", (5, 1), 1_000).await;
    kit.pass(2_000).await;
    let seq = kit.seq().await;
    let parent: Arc<str> = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into();
    let origin = |at_us| Origin {
        at_us,
        traceparent: Some(parent.clone()),
    };
    let fence = kit.claim().await;
    let swept = kit
        .store
        .sweep_from(S, fence, 10, Some(origin(1)))
        .await
        .unwrap();
    assert!(matches!(swept.value, Swept::Ok { closed: 1, .. }));
    let busy = Preference::Status(Some(Manual::Busy));
    let ann = user("ann");
    let prefer = kit.store.prefer_from(&ann, busy, 7, Some(origin(2)));
    assert!(matches!(prefer.await.unwrap().value, Preferred::Ok(_)));
    let log = kit.log().await.into_iter();
    let origins: Vec<_> = log
        .filter(|c| c.version.seq > seq)
        .map(|c| c.origin)
        .collect();
    assert_eq!(origins, [Some(origin(1)), Some(origin(2))]);
}
