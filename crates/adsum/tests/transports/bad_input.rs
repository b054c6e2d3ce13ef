//! Whatever comes over the wire: each gets its stable code, who sends it is closed at most, and
//! with the documented number; a bystander on the same gateway is served all along.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use adsum_gateway::auth::NewClaims;
use adsum_proto::client::{
    frame::{ClientBody, Hello, Join, ServerBody},
    v1,
};
use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    http::Http,
    raw::{Heard, Raw, hello, watch},
    stage::{Stage, Wire, grpc, room, with_token},
    watcher::LIMIT,
    world::{BOUND_TENANT, HEADER, HELLO, Side, World, claims, now_s, signed, signed_bound},
};

const TEN_MB: usize = 10_000_000;
/// Beats of the bystander.
const EVERY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offenders_are_told_and_bystanders_served() -> Result<()> {
    let world = Arc::new(World::embedded("bad input").await?);
    let stage = Arc::new(Stage::new(world.clone(), "bad", Wire::Json));
    let (stop, task) = bystander(&stage).await?;
    let mut tasks = JoinSet::new();
    // Those that mostly wait.
    tasks.spawn(named("no hello", no_hello(stage.clone())));
    tasks.spawn(named("slow request", slow_request(stage.clone())));
    tasks.spawn(named("frames that stay", bad_frames(stage.clone())));
    tasks.spawn(named("frames that close", closing_frames(stage.clone())));
    tasks.spawn(named("too many", too_many(stage.clone())));
    tasks.spawn(named("tokens", tokens(stage.clone())));
    tasks.spawn(named("http", http(stage.clone())));
    tasks.spawn(named("grpc", over_grpc(stage.clone())));
    tasks.spawn(named("flood", flood(stage.clone())));
    let results = tasks.join_all().await;
    stop.send(true)?;
    let mut acks = task.await?.context("the bystander")?;
    let wrong = results.into_iter().filter_map(Result::err);
    let wrong: Vec<_> = wrong.map(|error| format!("{error:#}")).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.check()?;
    acks.sort_unstable();
    let (count, median) = (acks.len(), acks[acks.len() / 2]);
    let (late, most) = (acks[acks.len() * 99 / 100], acks[acks.len() - 1]);
    println!("the bystander: {count} acks, median {median:?}, p99 {late:?}, at most {most:?}");
    ensure!(count > 20, "it had {count} beats");
    ensure!(late < Duration::from_secs(2), "it waited {late:?}");
    Ok(())
}

async fn named(name: &'static str, case: impl Future<Output = Result<()>>) -> Result<()> {
    case.await.context(name)
}

/// Beats, and measures the answers, until told to stop.
async fn bystander(
    stage: &Stage,
) -> Result<(watch::Sender<bool>, JoinHandle<Result<Vec<Duration>>>)> {
    let wish = hello(&stage.token("bystander")?);
    let mut raw = Raw::welcomed(Wire::Json, stage.address(Side::A), wish).await?;
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move {
        let mut acks = Vec::new();
        while !*stopped.borrow() {
            let began = Instant::now();
            raw.stands().await?;
            acks.push(began.elapsed());
            sleep(EVERY).await;
        }
        Ok(acks)
    });
    Ok((stop, task))
}

async fn welcomed(stage: &Stage, wire: Wire, user: &str) -> Result<Raw> {
    let wish = hello(&stage.token(user)?);
    Raw::welcomed(wire, stage.address(Side::A), wish).await
}

/// Refused by its code, and nothing else happens.
async fn bad_frames(stage: Arc<Stage>) -> Result<()> {
    let long = "x".repeat(200);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let cases = [
        (
            r#"{"type":"join","ref":"r""#.to_owned(),
            "malformed_frame",
            true,
        ),
        ("not json".to_owned(), "malformed_frame", false),
        ("[1,2]".to_owned(), "malformed_frame", false),
        (String::new(), "malformed_frame", false),
        (
            r#"{"type":"join","ref":"r","room":5}"#.to_owned(),
            "malformed_frame",
            true,
        ),
        (
            r#"{"type":"join","ref":"r","room":"a","room":"b"}"#.to_owned(),
            "malformed_frame",
            true,
        ),
        (
            format!(r#"{{"type":"join","ref":"r","room":"a","x":{deep}}}"#),
            "malformed_frame",
            false,
        ),
        (
            r#"{"type":"shout","ref":"r"}"#.to_owned(),
            "unknown_frame",
            true,
        ),
        (r#"{"ref":"r"}"#.to_owned(), "missing_field", true),
        (
            r#"{"type":"join","ref":"r"}"#.to_owned(),
            "missing_field",
            true,
        ),
        (
            r#"{"type":"join","ref":"r","room":""}"#.to_owned(),
            "invalid_id",
            true,
        ),
        (
            format!(r#"{{"type":"join","ref":"r","room":"{long}"}}"#),
            "invalid_id",
            true,
        ),
        (
            r#"{"type":"join","ref":"r","room":"a\u0000b"}"#.to_owned(),
            "invalid_id",
            true,
        ),
        (
            r#"{"type":"watch","ref":"r","topic":"planet:mars"}"#.to_owned(),
            "invalid_topic",
            true,
        ),
        (
            r#"{"type":"watch","ref":"r","topic":"tenant","mode":"all"}"#.to_owned(),
            "invalid_mode",
            true,
        ),
        (
            r#"{"type":"watch","ref":"r","topic":"tenant","digest":"zz"}"#.to_owned(),
            "invalid_digest",
            true,
        ),
        (
            r#"{"type":"set","ref":"r","status":"online"}"#.to_owned(),
            "invalid_status",
            true,
        ),
        (
            format!(
                r#"{{"type":"set","ref":"r","meta":"{}"}}"#,
                "m".repeat(3000)
            ),
            "meta_too_large",
            true,
        ),
        (
            r#"{"type":"set","ref":"r","meta":{"a":1,"a":2}}"#.to_owned(),
            "invalid_meta",
            true,
        ),
        (
            format!(r#"{{"type":"heartbeat","ref":"{}"}}"#, "r".repeat(65)),
            "invalid_ref",
            false,
        ),
        (
            r#"{"type":"hello","ref":"r"}"#.to_owned(),
            "hello_repeated",
            true,
        ),
    ];
    let mut raw = welcomed(&stage, Wire::Json, "bad-json").await?;
    for (text, code, echoed) in cases {
        raw.say(Message::text(text.clone())).await?;
        let Heard::Frame(frame) = raw.hear().await? else {
            bail!("closed by {text}");
        };
        let ServerBody::Error(problem) = &frame.body else {
            bail!("{frame:?} to {text}");
        };
        ensure!(problem.code == code, "{problem:?} to {text}");
        ensure!(frame.r#ref.is_some() == echoed, "{frame:?} to {text}");
        // A good one in between: it is not all bad.
        raw.stands().await?;
    }
    let mut raw = welcomed(&stage, Wire::Proto, "bad-proto").await?;
    for garbage in [
        &b"\xff\xff\xff\xff"[..],
        b"\x1a\x05abc",
        b"not protobuf at all",
    ] {
        raw.say(Message::binary(Bytes::copy_from_slice(garbage)))
            .await?;
        let problem = raw.refusal().await?;
        ensure!(
            problem.code == "malformed_frame",
            "{problem:?} to {garbage:?}"
        );
        raw.stands().await?;
    }
    // A frame without a body, and one of a kind that is not known.
    for empty in [&b""[..], b"\xfa\x01\x00"] {
        raw.say(Message::binary(Bytes::copy_from_slice(empty)))
            .await?;
        let problem = raw.refusal().await?;
        let known = ["unknown_frame", "missing_field"];
        ensure!(known.contains(&&*problem.code), "{problem:?} to {empty:?}");
        raw.stands().await?;
    }
    Ok(())
}

/// What ends a connection, and with which number.
async fn closing_frames(stage: Arc<Stage>) -> Result<()> {
    let address = stage.address(Side::A);
    let mut raw = welcomed(&stage, Wire::Json, "wrong-type").await?;
    raw.say(Message::binary(&b"\x22\x00"[..])).await?;
    ensure!(raw.closed().await? == 1003, "binary on a JSON connection");
    let mut raw = welcomed(&stage, Wire::Proto, "wrong-type").await?;
    raw.say(Message::text(r#"{"type":"heartbeat"}"#)).await?;
    ensure!(raw.closed().await? == 1003, "text on a protobuf connection");
    for wire in [Wire::Json, Wire::Proto, Wire::Grpc] {
        let mut raw = Raw::open(wire, address).await?;
        raw.send("early", ClientBody::Heartbeat).await?;
        let problem = raw.refusal().await?;
        ensure!(problem.code == "hello_expected", "{problem:?}");
        let number = raw.closed().await?;
        ensure!(number == 4400, "{wire:?}: {number} before hello");
    }
    for (size, user) in [(70_000, "large"), (TEN_MB, "huge")] {
        for wire in [Wire::Json, Wire::Proto] {
            let mut raw = welcomed(&stage, wire, user).await?;
            let id = "x".repeat(size);
            let message = match wire {
                Wire::Json => Message::text(format!(r#"{{"type":"join","room":"{id}"}}"#)),
                _ => Message::binary(id),
            };
            // It may be cut off before all of it was sent.
            let _ = timeout(LIMIT, raw.say(message)).await;
            let problem = raw.refusal().await;
            let code = problem.as_ref().map(|p| &*p.code);
            ensure!(
                matches!(code, Ok("frame_too_large")),
                "{wire:?} {size}: {problem:?}"
            );
            let number = raw.closed().await?;
            ensure!(number == 1009, "{wire:?} {size}: {number}");
        }
    }
    let mut raw = welcomed(&stage, Wire::Json, "stubborn").await?;
    for _ in 0..20 {
        raw.say(Message::text("rubbish")).await?;
    }
    ensure!(raw.closed().await? == 4400, "nothing but bad frames");
    // Nothing but pings, far more than messages may come.
    let mut raw = welcomed(&stage, Wire::Json, "pinger").await?;
    for _ in 0..1000 {
        // It may be cut off before all of them were sent.
        if raw.say(Message::Ping(Bytes::new())).await.is_err() {
            break;
        }
    }
    ensure!(raw.closed().await? == 4429, "nothing but pings");
    // Not even a WebSocket, or not in UTF-8: without a mask, of an unknown sort, bad text.
    for (bytes, number) in [
        (&b"\x81\x02hi"[..], 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),
    ] {
        let closed = closed_by(address, bytes).await?;
        ensure!(closed == number, "{closed} to {bytes:?}");
    }
    // A handshake for a protocol that is not spoken here.
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /v1/ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: chat\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let answer = first_line(&mut stream).await?;
    ensure!(answer.contains("400"), "{answer}");
    Ok(())
}

/// The number with which a WebSocket is closed on which this came.
async fn closed_by(address: SocketAddr, bytes: &[u8]) -> Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /v1/ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: adsum.v1.json\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let answer = first_line(&mut stream).await?;
    ensure!(answer.contains("101"), "{answer}");
    stream.write_all(bytes).await?;
    let mut frame = [0; 4];
    timeout(LIMIT, stream.read_exact(&mut frame)).await??;
    ensure!(frame[0] == 0x88, "no goodbye: {frame:?}");
    Ok(u16::from_be_bytes([frame[2], frame[3]]))
}

async fn first_line(stream: &mut TcpStream) -> Result<String> {
    let mut buffer = [0; 1024];
    let read = timeout(LIMIT, stream.read(&mut buffer)).await??;
    let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
    Ok(text.lines().next().unwrap_or("").to_owned())
}

/// A thousand of anything.
async fn too_many(stage: Arc<Stage>) -> Result<()> {
    let join = |n: usize| {
        anyhow::Ok(Join {
            room: room(&format!("room-{n}"))?,
            meta: None,
        })
    };
    let rooms = (0..1000).map(join).collect::<Result<Vec<_>>>()?;
    let topics = (0..1000).map(|n| watch(&format!("room:room-{n}")));
    let topics = topics.collect::<Result<Vec<_>>>()?;
    for wire in [Wire::Json, Wire::Proto, Wire::Grpc] {
        let token = stage.token("greedy")?;
        for (wish, code) in [
            (
                Hello {
                    rooms: rooms.clone(),
                    ..hello(&token)
                },
                "too_many_rooms",
            ),
            (
                Hello {
                    watch: topics.clone(),
                    ..hello(&token)
                },
                "too_many_topics",
            ),
        ] {
            let mut raw = Raw::open(wire, stage.address(Side::A)).await?;
            raw.send("hello", ClientBody::Hello(Box::new(wish))).await?;
            let ServerBody::Error(problem) = raw.answer("hello").await? else {
                bail!("{wire:?}: {code} was let in");
            };
            ensure!(problem.code == code, "{wire:?}: {problem:?}");
            // It may come again with less.
            raw.send("less", ClientBody::Hello(Box::new(hello(&token))))
                .await?;
            let answer = raw.answer("less").await?;
            ensure!(
                matches!(answer, ServerBody::Welcome(_)),
                "{wire:?}: {answer:?}"
            );
        }
    }
    // One by one: the hundred and first is refused.
    let mut raw = welcomed(&stage, Wire::Proto, "patient").await?;
    let mut refused = None;
    for (n, join) in rooms.into_iter().take(101).enumerate() {
        raw.send(&format!("{n}"), ClientBody::Join(join)).await?;
        if let ServerBody::Error(problem) = raw.answer(&format!("{n}")).await? {
            refused = Some((n, problem.code));
        }
    }
    ensure!(
        refused == Some((100, "too_many_rooms".into())),
        "{refused:?}"
    );
    raw.stands().await
}

/// A token as anybody can make one.
fn unsigned(claims: &NewClaims) -> Result<String> {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims)?);
    Ok(format!("{header}.{claims}."))
}

async fn tokens(stage: Arc<Stage>) -> Result<()> {
    let good = stage.claims("tess");
    let forged = {
        let token = signed(&good)?;
        let (head, _) = token.rsplit_once('.').context("no signature")?;
        let other = signed(&stage.claims("other"))?;
        let (_, signature) = other.rsplit_once('.').context("no signature")?;
        format!("{head}.{signature}")
    };
    let (unauthorized, expired) = (("unauthorized", 4401_u16), ("token_expired", 4412));
    let cases = [
        ("none", None, unauthorized),
        ("empty", Some(String::new()), unauthorized),
        ("garbage", Some("garbage".to_owned()), unauthorized),
        ("of 20 KB", Some("x".repeat(20_000)), unauthorized),
        ("alg none", Some(unsigned(&good)?), unauthorized),
        ("forged", Some(forged), unauthorized),
        (
            "for another tenant",
            Some(signed_bound(&good)?),
            unauthorized,
        ),
        ("unsigned", Some("dev:bad:tess".to_owned()), unauthorized),
        (
            "for another audience",
            Some(signed(&NewClaims {
                aud: Some("others".to_owned()),
                ..good.clone()
            })?),
            unauthorized,
        ),
        (
            "for nobody",
            Some(signed(&NewClaims {
                aud: None,
                ..good.clone()
            })?),
            unauthorized,
        ),
        (
            "expired",
            Some(signed(&NewClaims {
                exp: now_s() - 1,
                ..good.clone()
            })?),
            expired,
        ),
    ];
    for (name, token, (code, number)) in cases {
        for wire in [Wire::Json, Wire::Proto, Wire::Grpc] {
            let mut raw = Raw::open(wire, stage.address(Side::A)).await?;
            let wish = match &token {
                Some(token) => hello(token),
                None => Hello::default(),
            };
            raw.send("hello", ClientBody::Hello(Box::new(wish))).await?;
            let problem = raw.refusal().await?;
            ensure!(problem.code == code, "{name} over {wire:?}: {problem:?}");
            let closed = raw.closed().await?;
            ensure!(
                closed == number,
                "{name} over {wire:?}: closed with {closed}"
            );
        }
        let caller = Http {
            address: stage.address(Side::A),
            token: token.clone(),
        };
        let reply = caller.get("/v1/users/bob").await?;
        ensure!(
            reply.status == 401,
            "{name}: {} {}",
            reply.status,
            reply.text()
        );
        ensure!(reply.code() == code, "{name}: {}", reply.text());
        let refused = caller.events("topic=tenant").await.err();
        let refused = refused.map(|e| e.to_string()).unwrap_or_default();
        ensure!(refused == format!("401: {code}"), "{name}: {refused}");
        let mut client = grpc(&caller).await?;
        let user = "bob".to_owned();
        let request = match &token {
            Some(token) => with_token(v1::GetRequest { user }, token)?,
            None => tonic::Request::new(v1::GetRequest { user }),
        };
        let status = client.get(request).await.err().context("it was let in")?;
        ensure!(
            status.code() == tonic::Code::Unauthenticated,
            "{name}: {status:?}"
        );
        let said = status.metadata().get("adsum-code");
        ensure!(said.is_some_and(|said| said == code), "{name}: {status:?}");
    }
    // The key that is bound to a tenant is good there.
    let bound = signed_bound(&claims(BOUND_TENANT, "tess"))?;
    Raw::welcomed(Wire::Json, stage.address(Side::A), hello(&bound)).await?;
    // A refresh to another user, or to no token at all, is refused; the connection ends with 4401.
    let mut raw = welcomed(&stage, Wire::Json, "tess").await?;
    let other = adsum_proto::client::Token::new(stage.token("ursula")?);
    raw.send("refresh", ClientBody::Refresh(other)).await?;
    let problem = raw.refusal().await?;
    ensure!(problem.code == "unauthorized", "{problem:?}");
    Ok(())
}

async fn http(stage: Arc<Stage>) -> Result<()> {
    let good = stage.http(Side::A, stage.token("henry")?);
    let json = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let long = "x".repeat(300);
    let users = json!({"users": (0..1001).map(|n| n.to_string()).collect::<Vec<_>>()});
    let users = users.to_string();
    let rooms: Vec<_> = (0..1000).map(|n| format!("room-{n}")).collect();
    let rooms = json!({"device": "d", "conn": 1, "rooms": rooms}).to_string();
    let path = format!("/v1/users/{long}");
    let cases = [
        ("GET", "/v1/nothing", None, 404, "unknown_frame"),
        ("POST", "/v1/users/bob", None, 405, "unknown_frame"),
        ("POST", "/v1/ws", None, 405, "unknown_frame"),
        ("GET", "/v1/ws", None, 400, "malformed_frame"),
        (
            "GET",
            "/v1/ws?token=a&token=b",
            None,
            400,
            "malformed_frame",
        ),
        ("DELETE", "/v1/events", None, 405, "unknown_frame"),
        ("GET", path.as_str(), None, 400, "invalid_id"),
        ("GET", "/v1/users/a%00b", None, 400, "invalid_id"),
        ("GET", "/v1/users/%ff", None, 400, "malformed_frame"),
        (
            "GET",
            "/v1/rooms/r?page_size=many",
            None,
            400,
            "malformed_frame",
        ),
        (
            "GET",
            "/v1/rooms/r?page_token=zz",
            None,
            400,
            "invalid_page",
        ),
        ("GET", "/v1/events", None, 400, "missing_field"),
        (
            "GET",
            "/v1/events?topic=planet:mars",
            None,
            400,
            "invalid_topic",
        ),
        ("POST", "/v1/users:batch", None, 415, "malformed_frame"),
        ("POST", "/v1/users:batch", json("{"), 400, "malformed_frame"),
        (
            "POST",
            "/v1/users:batch",
            json("[]"),
            400,
            "malformed_frame",
        ),
        ("POST", "/v1/users:batch", json("{}"), 400, "missing_field"),
        (
            "POST",
            "/v1/users:batch",
            json(r#"{"users":[5]}"#),
            400,
            "malformed_frame",
        ),
        (
            "POST",
            "/v1/users:batch",
            json(&users),
            400,
            "too_many_users",
        ),
        ("POST", "/v1/heartbeat", json("{}"), 400, "missing_field"),
        (
            "POST",
            "/v1/heartbeat",
            json(r#"{"device":"d","conn":0}"#),
            400,
            "invalid_conn",
        ),
        (
            "POST",
            "/v1/heartbeat",
            json(r#"{"device":"d","conn":-1}"#),
            400,
            "malformed_frame",
        ),
        ("POST", "/v1/heartbeat", json(&rooms), 400, "too_many_rooms"),
        (
            "PUT",
            "/v1/me/status",
            json(r#"{"status":"online"}"#),
            400,
            "invalid_status",
        ),
        (
            "PUT",
            "/v1/me/visibility",
            json(r#"{"visibility":"x"}"#),
            400,
            "invalid_visibility",
        ),
        ("DELETE", "/v1/users/bob/sessions", None, 403, "forbidden"),
    ];
    for (method, path, body, status, code) in cases {
        let reply = good.raw(method, path, body).await?;
        let short: String = path.chars().take(40).collect();
        let at = format!("{method} {short}: {} {}", reply.status, reply.text());
        ensure!(
            reply.status == status && reply.code() == code,
            "not {status} {code}: {at}"
        );
    }
    // An id of ten megabytes, in a body and in a path.
    let huge = Bytes::from(format!(r#"{{"users":["{}"]}}"#, "x".repeat(TEN_MB)));
    let reply = good.raw("POST", "/v1/users:batch", Some(huge)).await;
    // Whoever sends on may miss the answer: the connection is closed on them.
    if let Ok(reply) = reply {
        ensure!(
            reply.status == 413 && reply.code() == "frame_too_large",
            "{}",
            reply.text()
        );
    }
    let mut stream = TcpStream::connect(good.address).await?;
    let head = format!("GET /v1/users/{} HTTP/1.1\r\n\r\n", "x".repeat(TEN_MB));
    let _ = timeout(LIMIT, stream.write_all(head.as_bytes())).await;
    if let Ok(line) = first_line(&mut stream).await {
        ensure!(
            line.is_empty() || line.contains("414") || line.contains("431"),
            "{line}"
        );
    }
    // No HTTP at all.
    let mut stream = TcpStream::connect(good.address).await?;
    stream
        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        .await?;
    let line = first_line(&mut stream).await.unwrap_or_default();
    ensure!(line.is_empty() || line.contains("400"), "{line}");
    good.get("/v1/users/bob").await?.ok()?;
    Ok(())
}

async fn over_grpc(stage: Arc<Stage>) -> Result<()> {
    let token = stage.token("grace")?;
    let mut client = grpc(&stage.http(Side::A, token.clone())).await?;
    let of = |status: &tonic::Status| -> String {
        let code = status.metadata().get("adsum-code");
        code.and_then(|code| code.to_str().ok())
            .unwrap_or("")
            .to_owned()
    };
    for (user, code) in [("", "missing_field"), ("a\u{1}b", "invalid_id")] {
        let user = user.to_owned();
        let request = with_token(v1::GetRequest { user }, &token)?;
        let status = client.get(request).await.err().context("it was taken")?;
        ensure!(status.code() == tonic::Code::InvalidArgument, "{status:?}");
        ensure!(of(&status) == code, "not {code}: {status:?}");
    }
    let request = with_token(v1::MembersRequest::default(), &token)?;
    let status = client
        .members(request)
        .await
        .err()
        .context("it was taken")?;
    ensure!(of(&status) == "missing_field", "{status:?}");
    let request = with_token(v1::SetStatusRequest::default(), &token)?;
    let status = client
        .set_status(request)
        .await
        .err()
        .context("it was taken")?;
    ensure!(of(&status) == "missing_field", "{status:?}");
    let request = with_token(v1::WatchRequest::default(), &token)?;
    let status = client.watch(request).await.err().context("it was taken")?;
    ensure!(of(&status) == "missing_field", "{status:?}");
    // A beat without a device is refused by itself.
    let beats = vec![v1::Beat::default()];
    let request = with_token(v1::HeartbeatRequest { beats }, &token)?;
    let answer = client.heartbeat(request).await?.into_inner();
    let code = answer.results[0].error.as_ref().map(|e| e.code.as_str());
    ensure!(code == Some("missing_field"), "{code:?}");
    let user = "x".repeat(TEN_MB);
    let request = with_token(v1::GetRequest { user }, &token)?;
    let status = client.get(request).await.err().context("it was taken")?;
    ensure!(status.code() == tonic::Code::OutOfRange, "{status:?}");
    // On a stream.
    let mut raw = welcomed(&stage, Wire::Grpc, "grace").await?;
    raw.say_proto(v1::ClientFrame::default()).await?;
    let problem = raw.refusal().await?;
    ensure!(
        ["unknown_frame", "missing_field"].contains(&&*problem.code),
        "{problem:?}"
    );
    let join = |room: String| v1::ClientFrame {
        r#ref: Some("r".to_owned()),
        traceparent: None,
        frame: Some(v1::client_frame::Frame::Join(v1::Join { room, meta: None })),
    };
    raw.say_proto(join(String::new())).await?;
    let problem = raw.refusal().await?;
    ensure!(problem.code == "missing_field", "{problem:?}");
    raw.stands().await?;
    for size in [70_000, TEN_MB] {
        let mut raw = welcomed(&stage, Wire::Grpc, "grace").await?;
        raw.say_proto(join("x".repeat(size))).await?;
        let problem = raw
            .refusal()
            .await
            .with_context(|| format!("{size} bytes"))?;
        ensure!(problem.code == "frame_too_large", "{size}: {problem:?}");
        let number = raw.closed().await?;
        ensure!(number == 1009, "{size}: {number}");
    }
    Ok(())
}

async fn no_hello(stage: Arc<Stage>) -> Result<()> {
    for wire in [Wire::Json, Wire::Proto, Wire::Grpc] {
        let mut raw = Raw::open(wire, stage.address(Side::A)).await?;
        let began = Instant::now();
        let problem = raw.refusal().await?;
        ensure!(problem.code == "timeout", "{problem:?}");
        let number = raw.closed().await?;
        let took = began.elapsed();
        ensure!(number == 4408, "{wire:?}: {number}");
        ensure!(took >= HELLO * 9 / 10, "{wire:?}: too early: {took:?}");
        ensure!(took < HELLO * 3, "{wire:?}: too late: {took:?}");
    }
    Ok(())
}

/// Begins a request and never ends it.
async fn slow_request(stage: Arc<Stage>) -> Result<()> {
    let slow = |address: SocketAddr, first: &'static [u8]| async move {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(first).await?;
        let mut rest = Vec::new();
        // One byte now and then does not help.
        loop {
            let mut buffer = [0; 256];
            match timeout(Duration::from_millis(300), stream.read(&mut buffer)).await {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(read)) => rest.extend_from_slice(&buffer[..read]),
                Err(_) => drop(stream.write_all(b"x").await),
            }
            ensure!(
                began.elapsed() < HEADER * 4,
                "still open after {:?}",
                began.elapsed()
            );
        }
        Ok(())
    };
    let address = stage.address(Side::A);
    let many = (0..20).map(|n| match n % 2 {
        0 => slow(address, b"GET /v1/ws HT"),
        _ => slow(address, b""),
    });
    futures::future::try_join_all(many).await?;
    Ok(())
}

/// More than any client says.
async fn flood(stage: Arc<Stage>) -> Result<()> {
    for wire in [Wire::Json, Wire::Proto, Wire::Grpc] {
        let mut raw = welcomed(&stage, wire, "flood").await?;
        let (mut limited, mut number) = (false, None);
        for n in 0..5000 {
            let sent = raw.send(&n.to_string(), ClientBody::Heartbeat).await;
            if sent.is_err() {
                // Cut off while it went on: whoever writes into that may not read the number.
                number = Some(CUT_OFF);
            } else if n % 50 == 49 {
                break_off(&mut raw, &mut limited, &mut number).await?;
            }
            if number.is_some() {
                break;
            }
        }
        while number.is_none() {
            match raw.hear().await? {
                Heard::Closed(closed) => number = Some(closed),
                Heard::Frame(frame) => limited |= is_limit(&frame.body),
            }
        }
        ensure!(limited, "{wire:?}: it was never told");
        let right = [Some(4429), Some(CUT_OFF)].contains(&number);
        ensure!(right, "{wire:?}: closed with {number:?}");
    }
    Ok(())
}

/// A line that broke.
const CUT_OFF: u16 = 1006;

/// Reads what has come so far.
async fn break_off(raw: &mut Raw, limited: &mut bool, number: &mut Option<u16>) -> Result<()> {
    while let Ok(heard) = timeout(Duration::from_millis(1), raw.hear()).await {
        match heard? {
            Heard::Closed(closed) => {
                *number = Some(closed);
                return Ok(());
            }
            Heard::Frame(frame) => *limited |= is_limit(&frame.body),
        }
    }
    Ok(())
}

fn is_limit(body: &ServerBody) -> bool {
    matches!(body, ServerBody::Error(problem)
        if problem.code == "rate_limited" && problem.retry_after_ms.is_some())
}
