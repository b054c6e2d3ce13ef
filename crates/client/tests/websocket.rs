//! The client against a scripted WebSocket server: what it says, when, and what it gives up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use adsum_client::{Client, Code, Conn, EndReason, Error, Event, Mode, RoomId, State};
use adsum_proto::client::frame::{ClientBody, PresenceDiff, ServerBody};
use support::{ALL, Server, event, fast, item, lobby, problem, soon, state, synced};

#[tokio::test]
async fn says_hello_joins_watches_and_leaves_in_both_encodings() {
    for transport in ALL {
        let server = Server::start().await;
        let builder = server.client().transport(transport);
        let (client, mut events) = builder.watch(lobby(), Mode::Members).spawn().unwrap();
        let (mut peer, hello) = server.welcome().await;
        assert_eq!(hello.token.unwrap().expose(), "dev:acme:ann");
        assert_eq!((hello.device, hello.conn), (None, None));
        peer.news(state(1, Some(vec![item("bob", 1)]))).await;
        assert!(!synced(&mut events).await);
        assert_eq!(client.roster(&lobby())[0].user.as_str(), "bob");
        assert_eq!(client.count(&lobby()), Some(1));

        let room = RoomId::new("attic").unwrap();
        let join = tokio::spawn({
            let client = client.clone();
            async move { client.join(room, None).await }
        });
        let frame = peer.said().await;
        assert!(matches!(frame.body, ClientBody::Join(_)));
        peer.reply(frame.r#ref, ServerBody::Ack).await;
        assert_eq!(join.await.unwrap(), Ok(()));

        let leave = tokio::spawn(async move { client.leave().await });
        let frame = peer.said().await;
        assert_eq!(frame.body, ClientBody::Leave);
        peer.reply(frame.r#ref, ServerBody::Ack).await;
        assert_eq!(leave.await.unwrap(), Ok(()));
        let end = event(&mut events, ended).await;
        assert_eq!(end, EndReason::Left);
        assert_eq!(events.next().await, None);
    }
}

fn ended(event: &Event) -> Option<EndReason> {
    match event {
        Event::Ended(reason) => Some(reason.clone()),
        _ => None,
    }
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_severed_client_comes_back_as_the_same_device_and_resumes() {
    let server = Server::start().await;
    let builder = server.client().watch(lobby(), Mode::Members);
    let (client, mut events) = builder.spawn().unwrap();
    let (mut peer, _) = server.welcome().await;
    peer.news(state(1, Some(vec![item("ann", 7)]))).await;
    synced(&mut events).await;
    client.sever().await;
    assert_eq!(peer.gone().await, []);
    let (mut peer, hello) = server.welcome().await;
    assert_eq!(hello.device.unwrap().as_str(), "made-up");
    assert!(hello.conn > Conn::new(5).ok());
    assert!(hello.watch[0].digest.is_some());
    peer.news(state(1, None)).await;
    let resumed = event(&mut events, |event| match event {
        Event::Joined { .. } | Event::Left { .. } => panic!("{event:?}"),
        Event::Synced { resumed, .. } => Some(*resumed),
        _ => None,
    });
    assert!(resumed.await);
    assert_eq!(client.roster(&lobby()).len(), 1);
}

#[tokio::test]
async fn beats_as_asked_and_goes_elsewhere_when_nobody_answers() {
    let (one, two) = (Server::start().await, Server::start().await);
    let builder = Client::builder().endpoints([one.url(), two.url()]);
    let (client, _events) = builder.timing(fast()).spawn().unwrap();
    let (mut peer, first) = tokio::select! {
        peer = one.accept() => (peer, 1),
        peer = two.accept() => (peer, 2),
    };
    peer.welcome(50).await;
    for _ in 0..3 {
        let beat = peer.next().await;
        assert_eq!(beat.body, ClientBody::Heartbeat);
        peer.reply(beat.r#ref, ServerBody::Ack).await;
    }
    // From here on nothing is answered.
    let other = if first == 1 { &two } else { &one };
    let (_peer, hello) = other.welcome().await;
    assert!(hello.device.is_some());
    soon(client.online()).await.unwrap();
}

#[tokio::test]
async fn a_drain_opens_the_next_connection_before_it_drops_the_last() {
    let (one, two) = (Server::start().await, Server::start().await);
    let builder = Client::builder().endpoints([one.url(), two.url()]);
    let (client, mut events) = builder.timing(fast()).spawn().unwrap();
    let (mut old, at_one) = tokio::select! {
        peer = one.accept() => (peer, true),
        peer = two.accept() => (peer, false),
    };
    old.welcome(60_000).await;
    let told = Instant::now();
    old.news(ServerBody::Reconnect { after_ms: 300 }).await;
    let other = if at_one { &two } else { &one };
    let mut new = other.accept().await;
    assert!(told.elapsed() >= Duration::from_millis(300));
    let (r#ref, hello) = new.hello().await;
    assert!(hello.conn > Conn::new(5).ok());
    // Still there, and told what its own successor did; that is nothing to end for.
    assert!(matches!(*client.state().borrow(), State::Online { .. }));
    old.refuse(None, problem(Code::Replaced)).await;
    let welcome = adsum_proto::client::frame::Welcome {
        user: adsum_client::UserId::new("ann").unwrap(),
        device: hello.device.unwrap(),
        conn: hello.conn.unwrap(),
        heartbeat_ms: 60_000,
        ttl_ms: 60_000,
        server_time: 0,
    };
    new.reply(r#ref, ServerBody::Welcome(welcome)).await;
    assert_eq!(old.gone().await, [], "no goodbye");
    for _ in 0..2 {
        let connected = |e: &Event| matches!(e, Event::Connected { .. }).then_some(());
        event(&mut events, connected).await;
    }
}

#[tokio::test]
async fn ends_with_the_reason_where_coming_back_would_be_wrong() {
    for (code, reason) in [
        (Code::Kicked, EndReason::Kicked),
        (Code::Replaced, EndReason::Replaced),
        (Code::TokenExpired, EndReason::TokenExpired),
        (
            Code::Unauthorized,
            EndReason::Unauthorized(Some(problem(Code::Unauthorized))),
        ),
    ] {
        let server = Server::start().await;
        let (client, _events) = server.client().spawn().unwrap();
        let (mut peer, _) = server.welcome().await;
        soon(client.online()).await.unwrap();
        peer.refuse(None, problem(code)).await;
        assert_eq!(soon(client.ended()).await, reason);
        let room = RoomId::new("lobby").unwrap();
        let late = client.join(room, None).await;
        assert_eq!(late, Err(Error::Ended(reason)));
        assert!(server.quiet(Duration::from_millis(300)).await);
    }
}

#[tokio::test]
async fn a_close_without_a_word_is_judged_by_its_number() {
    let server = Server::start().await;
    let (client, _events) = server.client().spawn().unwrap();
    for number in [1012, 4408, 1011] {
        server.welcome().await.0.close(number).await;
    }
    server.welcome().await.0.close(4410).await;
    assert_eq!(soon(client.ended()).await, EndReason::Kicked);
}

#[tokio::test]
async fn superseded_goes_above_once_and_then_gives_up() {
    let server = Server::start().await;
    let device = adsum_client::DeviceId::new("laptop").unwrap();
    let (client, _events) = server.client().device(device).spawn().unwrap();
    let mut superseded = problem(Code::Superseded);
    superseded.conn = Conn::new(Conn::MAX - 10).ok();
    for conn in [None, Conn::new(Conn::MAX - 9).ok()] {
        let mut peer = server.accept().await;
        let (r#ref, hello) = peer.hello().await;
        assert!(conn.is_none() || hello.conn == conn);
        peer.refuse(r#ref, superseded.clone()).await;
    }
    assert_eq!(soon(client.ended()).await, EndReason::Superseded);
}

#[tokio::test]
async fn a_full_server_is_left_alone_for_as_long_as_it_says() {
    let server = Server::start().await;
    let (client, _events) = server.client().spawn().unwrap();
    let mut peer = server.accept().await;
    let (r#ref, _) = peer.hello().await;
    let mut full = problem(Code::TooManyConnections);
    full.retry_after_ms = Some(400);
    peer.refuse(r#ref, full).await;
    assert!(server.quiet(Duration::from_millis(350)).await);
    let (_peer, _) = server.welcome().await;
    soon(client.online()).await.unwrap();
}

#[tokio::test]
async fn a_hello_that_has_to_wait_is_repeated_on_the_same_connection() {
    let server = Server::start().await;
    let device = adsum_client::DeviceId::new("laptop").unwrap();
    let (client, _events) = server.client().device(device).spawn().unwrap();
    let mut peer = server.accept().await;
    let (r#ref, first) = peer.hello().await;
    let mut later = problem(Code::Unavailable);
    later.retry_after_ms = Some(50);
    peer.refuse(r#ref, later).await;
    assert_eq!(peer.welcome(60_000).await, first);
    soon(client.online()).await.unwrap();
}

#[tokio::test]
async fn a_provider_gives_each_connection_and_each_refresh_a_token() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start().await;
    let provider = || async {
        let n = CALLS.fetch_add(1, Ordering::Relaxed);
        match n {
            1 => Err("try again".into()),
            n => Ok(format!("token-{n}")),
        }
    };
    let (_client, _events) = server.client().token_provider(provider).spawn().unwrap();
    let (mut peer, hello) = server.welcome().await;
    assert_eq!(hello.token.unwrap().expose(), "token-0");
    peer.news(ServerBody::Expiring { in_ms: 30_000 }).await;
    let frame = peer.said().await;
    let ClientBody::Refresh(token) = frame.body else {
        panic!("{frame:?}");
    };
    assert_eq!(token.expose(), "token-2");
    peer.refuse(frame.r#ref, problem(Code::TokenExpired)).await;
    let (_peer, hello) = server.welcome().await;
    assert_eq!(hello.token.unwrap().expose(), "token-3");
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_frozen_client_is_silent_and_a_thawed_one_heals() {
    let server = Server::start().await;
    let builder = server.client().watch(lobby(), Mode::Members);
    let (client, mut events) = builder.spawn().unwrap();
    let mut peer = server.accept().await;
    peer.welcome(50).await;
    peer.news(state(1, Some(vec![]))).await;
    synced(&mut events).await;
    client.freeze(adsum_client::Freeze::ALL).await;
    let diff = ServerBody::PresenceDiff(PresenceDiff {
        topic: lobby(),
        offset: 2,
        joins: vec![item("bob", 1)],
        leaves: vec![],
        updates: vec![],
        count: None,
        stale: None,
    });
    peer.news(diff).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(events.try_next(), None);
    assert!(client.roster(&lobby()).is_empty());
    client.thaw().await;
    let joined = |e: &Event| matches!(e, Event::Joined { .. }).then_some(());
    event(&mut events, joined).await;
}

#[tokio::test]
async fn closing_or_dropping_is_no_goodbye() {
    let server = Server::start().await;
    let (client, _events) = server.client().spawn().unwrap();
    let (mut peer, _) = server.welcome().await;
    soon(client.online()).await.unwrap();
    client.close().await;
    assert_eq!(soon(client.ended()).await, EndReason::ClosedByApp);
    assert_eq!(peer.gone().await, []);

    let (client, mut events) = server.client().spawn().unwrap();
    let (mut peer, _) = server.welcome().await;
    drop(client);
    assert_eq!(peer.gone().await, []);
    assert_eq!(event(&mut events, ended).await, EndReason::ClosedByApp);
}

#[tokio::test]
async fn rubbish_from_a_server_harms_nobody() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let builder = Client::builder().endpoint(url).timing(fast());
    let (client, _events) = builder.spawn().unwrap();
    for rubbish in [&b"\xff\xfe\x00"[..], b"HTTP/1.1 500 No\r\n\r\n", b""] {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 64]).await;
        stream.write_all(rubbish).await.unwrap();
    }
    assert!(listener.accept().await.is_ok());
    assert!(!matches!(*client.state().borrow(), State::Ended(_)));
}
