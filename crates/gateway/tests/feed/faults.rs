//! What happens when dispatchers fail, fall silent, go and come back.

use std::time::Duration;

use adsum_gateway::feed::TopicEvent;
use adsum_proto::feed::gateway_frame::Frame as Order;

use crate::support::*;

const AB: [&str; 2] = ["a", "b"];

/// Two dispatchers and one shard, served by the preferred one and marked at 10; its name first.
async fn two() -> (World, Session, [&'static str; 2]) {
    let mut world = World::new(1, &AB);
    let order = world.order(0, &AB);
    let mut first = world.session(order[0]).await;
    first.take().await;
    first.mark(0, 10);
    (world, first, [order[0], order[1]])
}

/// A client of a room with one member, `ann`.
async fn client_of(world: &World, source: &mut Session, room: &str) -> Client {
    let watch = world.watch(room);
    source.add().await;
    source.send([part(0, 10, room, &[("ann", 3)])]);
    Client::new(watch).await
}

#[tokio::test(start_paused = true)]
async fn the_next_one_goes_on_from_the_last_mark() {
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    a.send([here(0, 11, "r", "bob")]);
    a.mark(0, 12);
    a.send([here(0, 13, "r", "cem")]);
    client.drain().await;
    // Its part has not come when the stream breaks.
    let new = world.watch("new");
    assert_eq!(a.add().await, [room_ref("new")]);
    a.break_off();
    let (mut b, took) = timed(world.session(names[1])).await;
    assert!(took < Duration::from_millis(50), "{took:?}");
    let take = b.take().await;
    assert_eq!((take.shard, take.cursor), (0, Some(cursor(12))));
    assert_eq!(take.fresh, [room_ref("new")]);
    let mut topics = take.topics;
    topics.sort_by_key(|t| format!("{t:?}"));
    assert_eq!(topics, [room_ref("new"), room_ref("r")]);
    // What was touched since, some of it known.
    b.send([
        here(0, 13, "r", "cem"),
        gone(0, 14, "r", "ann"),
        part(0, 14, "new", &[("eve", 9)]),
    ]);
    b.mark(0, 14);
    assert_eq!(client.drain().await.len(), 1);
    assert_eq!(client.names(), ["bob", "cem"]);
    let new = Client::new(new).await;
    assert!(new.complete && !client.stale && !new.stale);
    assert_eq!(new.names(), ["eve"]);
    assert!(
        !client
            .events
            .iter()
            .any(|e| matches!(e, TopicEvent::Stale(_)))
    );
    assert_eq!(world.feed.metrics().moves.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn sending_all_that_breaks_off_is_asked_for_again() {
    let (mut world, mut a, names) = two().await;
    let _r = client_of(&world, &mut a, "r").await;
    let _s = client_of(&world, &mut a, "s").await;
    let _t = client_of(&world, &mut a, "t").await;
    // Nobody asked for this part: the dispatcher has begun to send all again.
    a.send([part(0, 12, "s", &[("ann", 3)])]);
    a.mark(0, 12);
    a.send([part(0, 12, "t", &[("ann", 3)])]);
    settle_down().await;
    a.break_off();
    let take = world.session(names[1]).await.take().await;
    assert_eq!(
        (take.cursor, take.fresh),
        (Some(cursor(12)), vec![room_ref("r")])
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_one_is_left() {
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    a.mark(0, 11);
    a.hush();
    // States alone are no sign of being up to date.
    a.send([here(0, 12, "r", "bob")]);
    let (mut b, took) = timed(world.session(names[1])).await;
    assert!(
        took >= Duration::from_millis(1900) && took <= Duration::from_millis(2150),
        "{took:?}"
    );
    assert_eq!(b.take().await.cursor, Some(cursor(11)));
    assert!(matches!(a.order().await, Order::Release(r) if r.shard == 0));
    b.mark(0, 12);
    // What the silent one says later does no harm, and is no reason to trust it.
    a.send([gone(0, 11, "r", "bob"), gone(0, 13, "r", "bob")]);
    a.mark(0, 99);
    client.drain().await;
    assert_eq!(client.names(), ["ann"]);
    assert!(!client.stale);
    // With nobody else left it is asked again at once: stale, but not without a source.
    let ((), took) = timed(async {
        b.break_off();
        assert_eq!(a.take().await.cursor, Some(cursor(12)), "not 99");
    })
    .await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert_eq!(client.drain().await, [TopicEvent::Stale(true)]);
}

#[tokio::test(start_paused = true)]
async fn one_that_sends_all_is_not_silent() {
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    // No marks until all is sent, and that takes long.
    a.hush();
    for seq in 11..31 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        a.send([part(0, seq, "r", &[("ann", 3)])]);
    }
    assert!(a.orders().is_empty() && client.drain().await.is_empty());
    let (_, took) = timed(world.session(names[1])).await;
    assert!(took <= Duration::from_millis(2150), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_never_comes_is_asked_for_again() {
    let (world, mut a, _) = two().await;
    let watch = world.watch("r");
    a.add().await;
    let mut client = Client::new(watch).await;
    assert!(!client.complete);
    let (take, took) = timed(a.take()).await;
    assert!(took <= Duration::from_millis(5200), "{took:?}");
    assert_eq!(
        (take.cursor, take.fresh),
        (Some(cursor(10)), vec![room_ref("r")])
    );
    a.send([part(0, 10, "r", &[("ann", 3)])]);
    client.drain().await;
    assert!(client.complete);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(a.orders().is_empty(), "nothing is owed any more");
    assert_eq!(world.feed.metrics().asked_again.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_lags_is_left() {
    let (mut world, mut a, names) = two().await;
    let _client = client_of(&world, &mut a, "r").await;
    a.mark(0, 50);
    settle_down().await;
    a.break_off();
    world.set_down(names[0], true);
    let mut b = world.session(names[1]).await;
    assert_eq!(b.take().await.cursor, Some(cursor(50)));
    b.mark(0, 40);
    world.set_down(names[0], false);
    let (mut a, took) = timed(world.session(names[0])).await;
    assert!(took <= Duration::from_millis(2150), "{took:?}");
    assert_eq!(a.take().await.cursor, Some(cursor(50)));
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_the_connection_and_says_nothing_is_left() {
    let (mut world, a, names) = two().await;
    world.set_deaf(names[1]);
    a.break_off();
    let (_, took) = timed(world.session(names[0])).await;
    assert!(
        took >= Duration::from_secs(1) && took <= Duration::from_millis(1200),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn all_gone_is_stale_and_heals() {
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    names.iter().for_each(|n| world.set_down(n, true));
    a.break_off();
    let (event, took) = timed(client.next()).await;
    assert_eq!(event, TopicEvent::Stale(true));
    assert!(took < Duration::from_millis(50), "{took:?}");
    assert_eq!(client.names(), ["ann"], "members stay");
    let other = Client::new(world.watch("other")).await;
    assert!(other.stale && !other.complete);
    assert_eq!(world.feed.metrics().stale_shards.get(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(client.drain().await.is_empty());

    world.set_down(names[1], false);
    let (mut b, took) = timed(world.session(names[1])).await;
    assert!(took <= Duration::from_millis(5200), "{took:?}");
    let take = b.take().await;
    assert_eq!(
        (take.cursor, take.fresh),
        (Some(cursor(10)), vec![room_ref("other")])
    );
    b.send([here(0, 15, "r", "bob")]);
    b.mark(0, 15);
    client.drain().await;
    assert_eq!(client.names(), ["ann", "bob"]);
    assert!(!client.stale);
    assert_eq!(world.feed.metrics().stale_shards.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_nobody_can_read_is_stale_until_somebody_can() {
    // The shard's Redis is away: the dispatchers are there, and none has a mark.
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    a.hush();
    let mut b = world.session(names[1]).await;
    b.take().await;
    let (event, took) = timed(client.next()).await;
    assert_eq!(event, TopicEvent::Stale(true));
    assert!(took <= Duration::from_millis(2200), "{took:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (to_a, to_b) = (a.orders(), b.orders());
    let takes = to_a
        .iter()
        .chain(&to_b)
        .filter(|o| matches!(o, Order::Take(_)))
        .count();
    assert!(
        (3..=15).contains(&takes),
        "keeps trying, not madly: {takes}"
    );
    a.mark(0, 10);
    b.mark(0, 10);
    assert_eq!(client.drain().await, [TopicEvent::Stale(false)]);
}

#[tokio::test(start_paused = true)]
async fn back_to_the_preferred_one_without_a_gap() {
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    a.break_off();
    let mut b = world.session(names[1]).await;
    b.take().await;
    b.mark(0, 20);
    // It is tried again after a while, with the other still serving.
    let (mut a, took) = timed(world.session(names[0])).await;
    assert!(
        took >= Duration::from_secs(5) && took <= Duration::from_millis(10_200),
        "{took:?}"
    );
    let take = a.take().await;
    assert_eq!((take.cursor, take.fresh.len()), (Some(cursor(20)), 0));
    b.mark(0, 25);
    b.send([here(0, 25, "r", "bob")]);
    a.mark(0, 22);
    client.drain().await;
    assert_eq!(client.names(), ["ann", "bob"]);
    assert!(b.orders().is_empty(), "not as far yet: both serve");
    // Topics that come meanwhile are asked of both.
    let new = world.watch("new");
    assert_eq!(
        (a.add().await, b.add().await),
        (vec![room_ref("new")], vec![room_ref("new")])
    );
    b.send([part(0, 25, "new", &[("dan", 5)])]);
    a.send([here(0, 25, "r", "bob"), here(0, 26, "r", "cem")]);
    a.mark(0, 26);
    client.drain().await;
    assert!(matches!(b.order().await, Order::Release(r) if r.shard == 0));
    assert_eq!(client.names(), ["ann", "bob", "cem"]);
    let new = Client::new(new).await;
    assert_eq!(new.names(), ["dan"]);
    assert!(
        !client
            .events
            .iter()
            .any(|e| matches!(e, TopicEvent::Stale(_)))
    );
    // The part of `new` came from the other one: this one still owes it.
    a.break_off();
    let take = b.take().await;
    assert_eq!(
        (take.cursor, take.fresh),
        (Some(cursor(26)), vec![room_ref("new")])
    );
    assert!(take.topics.is_empty(), "known on this stream");
}

#[tokio::test(start_paused = true)]
async fn a_return_that_fails_changes_nothing() {
    let (mut world, mut a, names) = two().await;
    let mut client = client_of(&world, &mut a, "r").await;
    a.break_off();
    let mut b = world.session(names[1]).await;
    b.take().await;
    b.mark(0, 20);
    let mut a = world.session(names[0]).await;
    a.take().await;
    // No mark for as long as a cold one may take.
    let (order, took) = timed(a.order()).await;
    assert!(matches!(order, Order::Release(_)));
    assert!(
        took >= Duration::from_secs(10) && took <= Duration::from_millis(10_200),
        "{took:?}"
    );
    assert!(b.orders().is_empty() && client.drain().await.is_empty());
    // If the other one breaks during the next try, the one asked goes on as it is.
    let mut a = world.session(names[0]).await;
    a.take().await;
    b.break_off();
    settle_down().await;
    assert!(a.orders().is_empty());
    a.mark(0, 20);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(client.drain().await.is_empty());
    assert_eq!(world.feed.metrics().moves.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn members_that_come_and_go_take_over_without_a_gap() {
    // Of enough names, one is preferred to `a`.
    let mut world = World::new(1, &["a"]);
    let better = (0..50)
        .map(|n| format!("n{n}"))
        .find(|n| world.order(0, &["a", n])[0] != "a");
    let better: &str = &better.unwrap();
    let mut a = world.session("a").await;
    a.take().await;
    a.mark(0, 10);
    let mut client = client_of(&world, &mut a, "r").await;
    world.build(better);
    world.announce(&["a", better]);
    let (mut b, took) = timed(world.session(better)).await;
    assert!(took <= Duration::from_millis(1200), "{took:?}");
    assert_eq!(b.take().await.cursor, Some(cursor(10)));
    b.mark(0, 10);
    assert!(matches!(a.order().await, Order::Release(_)));
    // It leaves the members, and serves until the other one has taken over.
    world.announce(&["a"]);
    assert_eq!(a.take().await.cursor, Some(cursor(10)));
    b.send([here(0, 11, "r", "bob")]);
    b.mark(0, 11);
    a.send([here(0, 11, "r", "bob")]);
    a.mark(0, 11);
    b.ended().await;
    client.drain().await;
    assert_eq!(client.names(), ["ann", "bob"]);
    assert!(!client.stale && client.events.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn no_dispatchers_at_all_is_stale() {
    let mut world = World::new(2, &[]);
    let mut client = Client::new(world.watch("r")).await;
    assert!(client.stale && !client.complete);
    world.build("a");
    world.announce(&["a"]);
    let mut a = world.session("a").await;
    for shard in [0, 1] {
        assert_eq!(a.take().await.shard, shard);
        a.send([part(shard, 5, "r", &[])]);
        a.mark(shard, 5);
    }
    client.drain().await;
    assert!(!client.stale && client.complete);
}
