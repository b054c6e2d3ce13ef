//! How a topic is put together from its shards.

use std::time::Duration;

use adsum_core::{
    Change, Conn, DeviceId, Event, Holder, Membership, Prefs, RoomId, Stamp, State, Topic, UserKey,
    Version, ring::ShardRing,
};
use adsum_gateway::feed::TopicEvent;
use adsum_proto::feed::{self, frame::Body, gateway_frame};

use crate::support::*;

/// One dispatcher that has been asked for all shards, and marks them at 10.
async fn one(shards: u16) -> (World, Session) {
    let mut world = World::new(shards, &["a"]);
    let mut a = world.session("a").await;
    for shard in 0..u32::from(shards) {
        let take = a.take().await;
        assert_eq!(
            (take.shard, take.cursor, take.topics.len()),
            (shard, None, 0)
        );
        a.mark(shard, 10);
    }
    (world, a)
}

#[tokio::test(start_paused = true)]
async fn parts_and_states_assemble() {
    let (world, mut a) = one(2).await;
    let watch = world.watch("r");
    assert_eq!(a.add().await, [room_ref("r")]);
    a.send([part(0, 11, "r", &[("ann", 3)])]);
    let ready = tokio::spawn(Client::new(watch));
    settle_down().await;
    assert!(!ready.is_finished(), "a part is missing");
    a.send([part(1, 10, "r", &[("bob", 4), ("cem", 9)])]);
    let (client, took) = timed(ready).await;
    let mut client = client.unwrap();
    assert!(took < Duration::from_millis(10) && client.complete && !client.stale);
    assert_eq!(client.names(), ["ann", "bob", "cem"]);

    a.send([here(0, 12, "r", "dan")]);
    let TopicEvent::Diff(told) = client.next().await else {
        panic!("no diff");
    };
    let causes: Vec<_> = told.causes.iter().collect();
    let [cause] = causes[..] else {
        panic!("one state, one cause");
    };
    assert_eq!(
        (cause.origin.at_us, cause.committed_us, cause.routed_us),
        (12, 13, 14)
    );
    // A batch is one diff: what comes and goes in it is not told, nor what changes nothing.
    a.send([
        busy(1, 13, "r", "bob"),
        here(0, 13, "r", "eve"),
        gone(0, 14, "r", "eve"),
        gone(0, 15, "r", "ann"),
        here(1, 14, "other", "bob"),
    ]);
    let TopicEvent::Diff(told) = client.next().await else {
        panic!("no diff");
    };
    let diff = &told.diff;
    assert_eq!(
        (diff.joins.len(), diff.leaves.len(), diff.updates.len()),
        (0, 1, 1)
    );
    assert_eq!(told.causes.iter().count(), 3, "bob, eve, ann");
    assert_eq!(client.names(), ["bob", "cem", "dan"]);
    assert!(client.drain().await.is_empty());
    assert_eq!(*world.epochs.lock().unwrap(), [(0, EPOCH), (1, EPOCH)]);
    let metrics = world.feed.metrics();
    assert_eq!(
        (
            metrics.parts.get(),
            metrics.states.get(),
            metrics.moves.get()
        ),
        (2, 6, 0)
    );
}

/// A change of somebody who has no other session: in these rooms now, in `r` before.
fn change(epoch: u64, seq: u64, name: &str, rooms: &[&str]) -> Change {
    let rooms = rooms.iter().map(|r| RoomId::new(*r).unwrap());
    let session = adsum_core::Session {
        holder: Holder::Own,
        stamp: Stamp {
            conn: Conn::new(1).unwrap(),
            rev: 1,
        },
        opened_at: 1,
        state: State {
            rooms: rooms.map(|r| (r, Membership::default())).collect(),
            ..State::default()
        },
    };
    Change {
        version: Version::new(epoch, seq),
        at: 1,
        event: Event::Session {
            owner: UserKey::new(tenant(), user(name)),
            device: DeviceId::new("web").unwrap(),
            rooms_before: vec![RoomId::new("r").unwrap()],
            after: Some(session),
            prefs: Prefs::default(),
            reason: None,
        },
        origin: None,
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_committed_here_is_told_ahead_of_the_feed_and_once() {
    let (world, mut a) = one(1).await;
    let watch = world.watch("r");
    a.add().await;
    let foresee = |change: Change| world.feed.foresee(0, &change);
    foresee(change(EPOCH, 11, "dan", &["r"]));
    a.send([part(0, 12, "r", &[("ann", 3)])]);
    let mut client = Client::new(watch).await;
    assert_eq!(
        client.names(),
        ["ann"],
        "there was nothing to compare it with"
    );

    foresee(change(EPOCH, 13, "dan", &["r"]));
    client.next().await;
    assert_eq!(client.names(), ["ann", "dan"]);
    a.send([here(0, 13, "r", "dan")]);
    assert!(client.drain().await.is_empty(), "it is known");
    foresee(change(EPOCH, 15, "dan", &[]));
    client.next().await;
    a.send([busy(0, 14, "r", "dan"), gone(0, 15, "r", "dan")]);
    assert!(client.drain().await.is_empty(), "older, and known");
    assert_eq!(client.names(), ["ann"]);

    foresee(change(EPOCH + 1, 16, "dan", &["r"]));
    assert!(client.drain().await.is_empty(), "of an epoch not seen yet");
    a.send([settling(part(0, 16, "r", &[("ann", 3)]))]);
    client.drain().await;
    foresee(change(EPOCH, 17, "ann", &[]));
    assert!(client.drain().await.is_empty(), "others may be missing");
    assert_eq!(client.names(), ["ann"]);
}

#[tokio::test(start_paused = true)]
async fn older_and_repeated_states_change_nothing() {
    let (world, mut a) = one(1).await;
    let watch = world.watch("r");
    a.add().await;
    a.send([part(0, 20, "r", &[("ann", 15)])]);
    let mut client = Client::new(watch).await;
    a.send([
        gone(0, 12, "r", "ann"),
        here(0, 14, "r", "bob"),
        here(0, 15, "r", "ann"),
    ]);
    a.send([part(0, 18, "r", &[("bob", 14)])]);
    assert!(client.drain().await.is_empty());
    a.send([
        gone(0, 21, "r", "ann"),
        gone(0, 21, "r", "ann"),
        here(0, 15, "r", "ann"),
    ]);
    assert_eq!(client.drain().await.len(), 1);
    assert!(client.members.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_late_part_follows_as_joins() {
    let (world, mut a) = one(2).await;
    let watch = world.watch("r");
    a.add().await;
    a.send([part(1, 10, "r", &[("ann", 3)])]);
    let (mut client, took) = timed(Client::new(watch)).await;
    assert_eq!(took, Duration::from_secs(1));
    assert!(!client.complete);
    assert_eq!(client.names(), ["ann"]);
    let (_, took) = timed(Client::new(world.watch("r"))).await;
    assert_eq!(took, Duration::ZERO, "others wait no longer");

    a.send([part(0, 11, "r", &[("bob", 4)])]);
    assert!(matches!(client.next().await, TopicEvent::Diff(_)));
    assert_eq!(client.next().await, TopicEvent::Complete);
    assert_eq!(client.names(), ["ann", "bob"]);
}

#[tokio::test(start_paused = true)]
async fn a_user_topic_needs_one_shard() {
    let (world, mut a) = one(4).await;
    let owner = UserKey::new(tenant(), user("ann"));
    let shard = u32::from(ShardRing::new(4).shard_of(&owner));
    let watch = world.feed.watch(tenant(), Topic::User(user("ann")));
    assert_eq!(a.add().await, [user_ref("ann")]);
    a.send([
        part_of((shard + 1) % 4, 10, user_ref("ann"), &[]),
        part_of(shard, 10, user_ref("ann"), &[("ann", 3)]),
    ]);
    let (client, took) = timed(Client::new(watch)).await;
    assert!(client.complete && took < Duration::from_millis(10));
    assert_eq!(client.names(), ["ann"]);
}

#[tokio::test(start_paused = true)]
async fn parts_that_settle_only_add() {
    let mut world = World::new(1, &["a", "b"]);
    let order = world.order(0, &["a", "b"]);
    let mut a = world.session(order[0]).await;
    a.take().await;
    a.mark(0, 10);
    let watch = world.watch("r");
    a.add().await;
    a.send([part(0, 10, "r", &[("ann", 3)])]);
    let mut client = Client::new(watch).await;

    // A new epoch: who is not named is not gone.
    let mut bob = part(0, 11, "r", &[("bob", 4)]);
    bob.epoch = EPOCH + 1;
    a.send([settling(bob)]);
    client.drain().await;
    assert_eq!(client.names(), ["ann", "bob"]);
    assert!(client.watch.snapshot().settling);
    // Such a part is nothing to go on from.
    a.break_off();
    let mut b = world.session(order[1]).await;
    let take = b.take().await;
    assert_eq!(
        (take.cursor, &take.topics[..], take.fresh.len()),
        (None, &[room_ref("r")][..], 0)
    );
    let mut mark = mark(0, 12);
    mark.epoch = EPOCH + 1;
    b.keep_marking(settling(mark.clone()));
    assert!(client.drain().await.is_empty());

    // Settled: all parts come again, and tell who is gone.
    mark.seq = 13;
    b.keep_marking(mark.clone());
    let mut settled = part(0, 13, "r", &[("bob", 4)]);
    settled.epoch = EPOCH + 1;
    b.send([settled]);
    client.drain().await;
    assert_eq!(client.names(), ["bob"]);
    assert!(!client.watch.snapshot().settling);
    assert_eq!(*world.epochs.lock().unwrap(), [(0, EPOCH), (0, EPOCH + 1)]);
    // From here there is a cursor again.
    b.break_off();
    let take = world.session(order[0]).await.take().await;
    assert_eq!(
        take.cursor,
        Some(feed::Cursor {
            epoch: EPOCH + 1,
            seq: 13
        })
    );
    assert_eq!((take.topics, take.fresh), (vec![room_ref("r")], vec![]));
}

#[tokio::test(start_paused = true)]
async fn sending_all_again_tells_only_the_difference() {
    let (world, mut a) = one(2).await;
    let watch = world.watch("r");
    a.add().await;
    a.send([
        part(0, 10, "r", &[("ann", 3), ("bob", 4)]),
        part(1, 10, "r", &[("cem", 5)]),
    ]);
    let mut client = Client::new(watch).await;
    // The dispatcher dropped its queue: somebody left, somebody came, unseen.
    a.send([
        part(0, 15, "r", &[("ann", 3), ("dan", 14)]),
        part(1, 10, "r", &[("cem", 5)]),
    ]);
    let TopicEvent::Diff(told) = client.next().await else {
        panic!("no diff");
    };
    assert_eq!((told.diff.joins.len(), told.diff.leaves.len()), (1, 1));
    assert_eq!(client.names(), ["ann", "cem", "dan"]);
    assert!(client.drain().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lists_of_contacts_are_kept_by_version_and_told() {
    let (world, mut a) = one(1).await;
    let (watch, other) = (world.watch("r"), world.watch("empty"));
    a.add().await;
    a.send([part(0, 10, "r", &[("ann", 3)]), part(0, 10, "empty", &[])]);
    let (mut client, mut other) = (Client::new(watch).await, Client::new(other).await);
    let asked = |version| world.feed.contacts(&tenant(), &user("ann"), version);
    assert!(asked(5).is_none(), "not known: nobody");
    let list = feed::Contacts {
        tenant: "acme".into(),
        user: "ann".into(),
        version: 5,
        users: vec!["bob".into()],
    };
    a.send([frame(0, 10, Body::Contacts(list.clone()))]);
    assert_eq!(client.next().await, TopicEvent::Contacts(user("ann")));
    assert!(asked(5).unwrap().contains("bob"));
    assert!(asked(4).is_none() && asked(6).is_none());
    a.send([frame(0, 10, Body::Contacts(list))]);
    assert!(client.drain().await.is_empty(), "known already");
    assert!(other.drain().await.is_empty(), "ann is not there");
}

#[tokio::test(start_paused = true)]
async fn frames_that_make_no_sense_close_the_stream() {
    let bad: Vec<feed::Frame> = vec![
        mark(9, 11),
        feed::Frame {
            body: None,
            ..mark(0, 11)
        },
        part(0, 11, "", &[]),
        part(0, 11, "r", &[("a\u{1f}b", 3)]),
        part_of(0, 11, user_ref("ann"), &[("bob", 3)]),
        frame(
            0,
            11,
            Body::Part(feed::Part {
                topic: None,
                members: vec![],
            }),
        ),
        frame(
            0,
            11,
            Body::States(feed::States {
                states: vec![feed::State::default()],
            }),
        ),
        frame(0, 11, Body::Contacts(feed::Contacts::default())),
    ];
    let mut world = World::new(1, &["a"]);
    let mut client = None;
    for (n, frame) in bad.into_iter().enumerate() {
        let mut a = world.session("a").await;
        a.take().await;
        a.send([part(0, 10, "r", &[("ann", 3)])]);
        a.mark(0, 10);
        if client.is_none() {
            client = Some(Client::new(world.watch("r")).await);
        }
        a.orders();
        // Nothing of such a batch is used.
        a.send([here(0, 11, "r", "bob"), frame]);
        a.ended().await;
        assert_eq!(world.feed.metrics().malformed.get(), n as u64 + 1);
    }
    let mut client = client.unwrap();
    client.drain().await;
    assert!(!client.members.contains_key("bob"));
}

#[tokio::test(start_paused = true)]
async fn topics_of_all_kinds_are_named_rightly() {
    let (world, mut a) = one(1).await;
    let _all = world.feed.watch(tenant(), Topic::Tenant);
    let _user = world.feed.watch(tenant(), Topic::User(user("ann")));
    let mut added = a.add().await;
    added.sort_by_key(|t| format!("{t:?}"));
    let all = feed::TopicRef {
        tenant: "acme".into(),
        topic: Some(feed::topic_ref::Topic::All(true)),
    };
    assert_eq!(added, [all, user_ref("ann")]);
    assert!(
        a.orders()
            .iter()
            .all(|o| !matches!(o, gateway_frame::Frame::Take(_)))
    );
}
