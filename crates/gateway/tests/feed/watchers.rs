//! Many local watchers of one topic.

use std::time::Duration;

use adsum_gateway::feed::TopicEvent;
use adsum_proto::feed::gateway_frame::Frame as Order;
use futures::StreamExt;

use crate::support::*;

async fn one(tune: impl FnOnce(&mut adsum_gateway::feed::FeedConfig)) -> (World, Session) {
    let mut world = World::with(1, &["a"], tune);
    let mut a = world.session("a").await;
    a.take().await;
    a.mark(0, 10);
    (world, a)
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_watchers_are_one_subscription() {
    let (world, mut a) = one(|_| {}).await;
    let mut watches: Vec<_> = (0..10_000).map(|_| world.watch("r")).collect();
    assert_eq!(a.add().await, [room_ref("r")]);
    a.send([part(0, 10, "r", &[("ann", 3)])]);
    let first = watches[0].ready().await;
    for watch in &mut watches {
        let picture = watch.ready().await;
        assert!(
            std::sync::Arc::ptr_eq(&picture, &first),
            "one picture for all"
        );
    }
    a.send([here(0, 11, "r", "bob")]);
    for watch in &mut watches {
        assert!(matches!(watch.next().await, Some(TopicEvent::Diff(_))));
    }
    assert_eq!(world.feed.metrics().diffs.get(), 2);

    // The subscription stays while one is there, and a linger longer.
    let last = watches.pop();
    drop(watches);
    tokio::time::sleep(Duration::from_secs(10)).await;
    drop(last);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let back = world.watch("r");
    assert_eq!(back.snapshot().items.len(), 2, "still fed");
    drop(back);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(a.orders().is_empty());
    let (order, took) = timed(a.order()).await;
    assert!(matches!(order, Order::Drop(d) if d.topics == [room_ref("r")]));
    assert!(took <= Duration::from_millis(1200), "{took:?}");
    assert_eq!(world.feed.metrics().topics.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_asked_for_again_at_once_is_in_doubt() {
    let (mut world, mut a) = one(|c| c.linger = Duration::ZERO).await;
    let first = world.watch("r");
    a.add().await;
    a.send([part(0, 10, "r", &[("ann", 3)])]);
    drop(first);
    assert!(matches!(a.order().await, Order::Drop(_)));
    let again = world.watch("r");
    a.add().await;
    // This may be the answer to the first time, sent before what was missed in between.
    a.send([part(0, 10, "r", &[("ann", 3)])]);
    let client = Client::new(again).await;
    assert!(client.complete);
    a.break_off();
    let take = world.session("a").await.take().await;
    assert_eq!(
        (take.cursor, take.fresh),
        (Some(cursor(10)), vec![room_ref("r")])
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_takes_a_new_snapshot() {
    let (world, mut a) = one(|c| c.queue_len = 16).await;
    let (slow, quick) = (world.watch("r"), world.watch("r"));
    a.add().await;
    a.send([part(0, 10, "r", &[("ann", 3)])]);
    let (mut slow, mut quick) = (Client::new(slow).await, Client::new(quick).await);
    for seq in 11..111 {
        a.send([here(0, seq, "r", &format!("u{seq}"))]);
        quick.drain().await;
    }
    a.send([gone(0, 111, "r", "ann")]);
    quick.drain().await;
    assert_eq!(quick.events.len(), 101, "others don't notice");
    assert_eq!(world.feed.metrics().resyncs.get(), 1);
    assert_eq!(slow.drain().await, [TopicEvent::Resync]);
    assert_eq!(slow.members, quick.members);
    assert_eq!(slow.members.len(), 100);
    // From the snapshot on it is told again.
    a.send([gone(0, 112, "r", "u11")]);
    assert_eq!(slow.drain().await.len(), 1);
    assert_eq!(slow.members.len(), 99);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_stops_ends_its_watchers() {
    let (world, mut a) = one(|_| {}).await;
    let mut watch = world.watch("r");
    a.add().await;
    world.feed.stop().await;
    within("the end", async { while watch.next().await.is_some() {} }).await;
    a.ended().await;
    assert_eq!(world.watch("r").next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_and_diffs_fit_while_things_happen() {
    const USERS: u64 = 100;
    const STATES: u64 = 4_000;
    let (world, mut a) = one(|_| {}).await;
    let _keep = world.watch("r");
    a.add().await;
    a.send([part(0, 10, "r", &[])]);
    // Every user comes and goes again and again; at the end half of them are there.
    let told = tokio::spawn(async move {
        for n in 0..STATES {
            let (seq, user) = (11 + n, format!("u{}", n % USERS));
            let round = n / USERS;
            let coming =
                round.is_multiple_of(2) || (round == STATES / USERS - 1 && n.is_multiple_of(2));
            a.send([if coming {
                here(0, seq, "r", &user)
            } else {
                gone(0, seq, "r", &user)
            }]);
            if n.is_multiple_of(50) {
                tokio::task::yield_now().await;
            }
        }
        a.send([here(0, 11 + STATES, "r", "end")]);
        a
    });
    let mut clients = Vec::new();
    for _ in 0..100 {
        let watch = world.watch("r");
        // The client itself minds joins of those who are there, and leaves of those who are not.
        clients.push(tokio::spawn(async move {
            let mut client = Client::new(watch).await;
            while !client.members.contains_key("end") {
                client.next().await;
            }
            client.members
        }));
        tokio::task::yield_now().await;
    }
    let _a = told.await.unwrap();
    for client in clients {
        let members = within("a client", client).await.unwrap();
        assert_eq!(members.len() as u64, USERS / 2 + 1);
    }
}
