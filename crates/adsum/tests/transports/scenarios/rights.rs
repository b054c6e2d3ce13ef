//! Tokens: what they allow, how long, and how often.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_client::{EndReason, Event, Mode, Reason};
use adsum_gateway::auth::NewClaims;
use adsum_proto::client::{
    frame::{ClientBody, Hello, Join, ServerBody},
    v1,
};
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    raw::{Raw, hello, watch},
    stage::{Plan, Stage, Wire, grpc, room, soon, with_token},
    world::{Side, now_s, signed},
};

/// A token that ends so many whole seconds from now.
fn short(stage: &Stage, user: &str, seconds: u64) -> Result<String> {
    signed(&NewClaims {
        exp: now_s() + seconds,
        ..stage.claims(user)
    })
}

pub(super) async fn token_is_refreshed(stage: &Stage) -> Result<()> {
    let mut watcher = stage.watch("wanda", &["room:lobby"]).await?;
    let asked = Arc::new(AtomicU64::new(0));
    let claims = stage.claims("ann");
    let counter = asked.clone();
    let provider = move || {
        counter.fetch_add(1, Relaxed);
        let exp = now_s() + 5;
        let token = signed(&NewClaims {
            exp,
            ..claims.clone()
        });
        std::future::ready(token.map_err(Into::into))
    };
    let builder = stage.client(&Plan::of("ann").room("lobby"))?;
    let (client, events) = builder.token_provider(provider).connect().await?;
    let began = Instant::now();
    let mut own = crate::watcher::Watcher::of_client("ann", client.clone(), events);
    watcher.joined("room:lobby", "ann").await?;
    // Two tokens have ended by then; the connection is still the first one.
    sleep_until(began + Duration::from_secs(9)).await;
    ensure!(asked.load(Relaxed) >= 3, "{} tokens", asked.load(Relaxed));
    client.set_meta(Some(crate::stage::meta("1")?)).await?;
    watcher.updated("room:lobby", "ann").await?;
    client.leave().await?;
    watcher.left("room:lobby", "ann", Reason::Leave).await?;
    let events = own.ended().await?;
    let connected = |e: &&Event| matches!(e, Event::Connected { .. });
    let connections = events.iter().filter(connected).count();
    ensure!(connections == 1, "{connections} connections: {events:?}");
    let told = events.iter().any(|e| matches!(e, Event::Expiring { .. }));
    ensure!(told, "it was not told ahead: {events:?}");
    Ok(())
}

pub(super) async fn token_ends(stage: &Stage) -> Result<()> {
    match stage.wire {
        Wire::Sse | Wire::Watch => watching_ends(stage).await,
        _ => connection_ends(stage).await,
    }
}

async fn connection_ends(stage: &Stage) -> Result<()> {
    let mut watcher = stage.watch("wanda", &["room:lobby"]).await?;
    let began = Instant::now();
    let plan = Plan::of("ann").room("lobby");
    let builder = stage.client(&plan)?.token(short(stage, "ann", 5)?);
    let (client, events) = builder.connect().await?;
    let mut own = crate::watcher::Watcher::of_client("ann", client.clone(), events);
    watcher.joined("room:lobby", "ann").await?;
    let reason = soon("the token ends", client.ended()).await?;
    let took = began.elapsed();
    ensure!(reason == EndReason::TokenExpired, "{reason:?}");
    // Its end is in whole seconds, so up to one second early.
    ensure!(took >= Duration::from_millis(3900), "too early: {took:?}");
    ensure!(took < Duration::from_secs(8), "too late: {took:?}");
    let events = own.ended().await?;
    let told = events.iter().any(|e| matches!(e, Event::Expiring { .. }));
    ensure!(told, "it was not told ahead: {events:?}");
    watcher
        .left("room:lobby", "ann", Reason::Disconnect)
        .await?;
    // By hand: the number, and a token that has ended is not let in again.
    let ended = short(stage, "ann", 0)?;
    let mut raw = Raw::open(stage.wire, stage.address(Side::A)).await?;
    raw.send("hello", ClientBody::Hello(Box::new(hello(&ended))))
        .await?;
    let problem = raw.refusal().await?;
    ensure!(problem.code == "token_expired", "{problem:?}");
    let number = raw.closed().await?;
    ensure!(number == 4412, "closed with {number}");
    Ok(())
}

async fn watching_ends(stage: &Stage) -> Result<()> {
    let began = Instant::now();
    let token = short(stage, "wanda", 4)?;
    let topics = ["room:lobby"];
    let mut watcher = match stage.wire {
        Wire::Sse => {
            stage
                .sse(Side::B, "wanda", token, &topics, Mode::Members)
                .await?
        }
        _ => {
            let mode = Mode::Members;
            stage
                .grpc_watch(Side::B, "wanda", &token, &topics, mode)
                .await?
        }
    };
    watcher.synced("room:lobby").await?;
    let events = watcher.ended().await?;
    let took = began.elapsed();
    ensure!(took >= Duration::from_millis(2900), "too early: {took:?}");
    ensure!(took < Duration::from_secs(8), "too late: {took:?}");
    let told = |event: &Event| matches!(event, Event::Error(p) if p.code == "token_expired");
    ensure!(events.iter().any(told), "it was not told why: {events:?}");
    Ok(())
}

/// At most 5 messages a second in these tenants, and 5 at once.
pub(super) async fn rate_limit(stage: &Stage) -> Result<()> {
    match stage.wire {
        Wire::Sse => return http_rate(stage).await,
        Wire::Watch => return grpc_rate(stage).await,
        _ => {}
    }
    let wish = hello(&stage.token("ann")?);
    let mut raw = Raw::welcomed(stage.wire, stage.address(Side::A), wish).await?;
    for n in 0..12 {
        raw.send(&format!("beat-{n}"), ClientBody::Heartbeat)
            .await?;
    }
    let mut refused = 0;
    for n in 0..12 {
        refused += usize::from(limited(raw.answer(&format!("beat-{n}")).await?)?.is_some());
    }
    ensure!(refused > 0, "nothing was refused");
    // Who waits as told gets through, on the same connection.
    for n in 0..TRIES {
        let name = format!("again-{n}");
        raw.send(&name, ClientBody::Heartbeat).await?;
        match limited(raw.answer(&name).await?)? {
            None => return Ok(()),
            Some(wait) => sleep(wait).await,
        }
    }
    bail!("it waited as told, and was refused again")
}

/// A busy machine may sleep shorter than the server counts.
const TRIES: usize = 3;

/// How long to wait, if it was refused for being too fast.
fn limited(body: ServerBody) -> Result<Option<Duration>> {
    match body {
        ServerBody::Ack => Ok(None),
        ServerBody::Error(problem) => {
            ensure!(problem.code == "rate_limited", "{problem:?}");
            wait(problem.retry_after_ms).map(Some)
        }
        other => bail!("{other:?}"),
    }
}

fn wait(ms: Option<u64>) -> Result<Duration> {
    let ms = ms.context("it does not say when to try again")?;
    ensure!((1..=5000).contains(&ms), "{ms} ms");
    Ok(Duration::from_millis(ms))
}

/// Asks as often at once that it is refused, and then as told until it gets through.
async fn ask_too_often<F: Future<Output = Result<Option<Duration>>>>(
    ask: impl Fn() -> F,
) -> Result<()> {
    let all = futures::future::try_join_all((0..12).map(|_| ask())).await?;
    ensure!(all.iter().any(Option::is_some), "nothing was refused");
    for _ in 0..TRIES {
        match ask().await? {
            None => return Ok(()),
            Some(wait) => sleep(wait).await,
        }
    }
    bail!("it waited as told, and was refused again")
}

async fn http_rate(stage: &Stage) -> Result<()> {
    let http = stage.http(Side::A, stage.token("ann")?);
    ask_too_often(|| async {
        let reply = http.get("/v1/users/bob").await?;
        if reply.status == 200 {
            return Ok(None);
        }
        ensure!(reply.status == 429, "{}", reply.text());
        ensure!(reply.code() == "rate_limited", "{}", reply.text());
        wait(reply.json()?["error"]["retry_after_ms"].as_u64()).map(Some)
    })
    .await
}

async fn grpc_rate(stage: &Stage) -> Result<()> {
    let token = stage.token("ann")?;
    let client = grpc(&stage.http(Side::A, token.clone())).await?;
    ask_too_often(|| async {
        let user = "bob".to_owned();
        let request = with_token(v1::GetRequest { user }, &token)?;
        let Err(status) = client.clone().get(request).await else {
            return Ok(None);
        };
        ensure!(
            status.code() == tonic::Code::ResourceExhausted,
            "{status:?}"
        );
        let after = status.metadata().get("retry-after-ms");
        wait(after.and_then(|ms| ms.to_str().ok()?.parse().ok())).map(Some)
    })
    .await
}

/// A token for one room.
pub(super) async fn forbidden(stage: &Stage) -> Result<()> {
    let narrow = NewClaims {
        rooms: Some(vec!["open".to_owned()]),
        join: None,
        watch: None,
        ..stage.claims("ann")
    };
    let token = signed(&narrow)?;
    match stage.wire {
        Wire::Sse => return http_forbidden(stage, token).await,
        Wire::Watch => return grpc_forbidden(stage, &token).await,
        _ => {}
    }
    let address = stage.address(Side::A);
    let secret = Join {
        room: room("secret")?,
        meta: None,
    };
    let mut raw = Raw::welcomed(stage.wire, address, hello(&token)).await?;
    let wishes = [
        ClientBody::Join(secret.clone()),
        ClientBody::Watch(watch("room:secret")?),
        ClientBody::Watch(watch("tenant")?),
    ];
    for wish in wishes {
        raw.send("wish", wish).await?;
        match raw.answer("wish").await? {
            ServerBody::Error(problem) => ensure!(problem.code == "forbidden", "{problem:?}"),
            other => bail!("{other:?}"),
        }
    }
    let open = Join {
        room: room("open")?,
        meta: None,
    };
    raw.send("open", ClientBody::Join(open)).await?;
    ensure!(
        raw.answer("open").await? == ServerBody::Ack,
        "the open room"
    );
    raw.send("look", ClientBody::Watch(watch("room:open")?))
        .await?;
    let state = raw.answer("look").await?;
    ensure!(matches!(state, ServerBody::PresenceState(_)), "{state:?}");
    // In a hello it is the hello that is refused.
    let wish = Hello {
        rooms: vec![secret],
        ..hello(&token)
    };
    let mut raw = Raw::open(stage.wire, address).await?;
    raw.send("hello", ClientBody::Hello(Box::new(wish))).await?;
    match raw.answer("hello").await? {
        ServerBody::Error(problem) => ensure!(problem.code == "forbidden", "{problem:?}"),
        other => bail!("{other:?}"),
    }
    Ok(())
}

async fn http_forbidden(stage: &Stage, token: String) -> Result<()> {
    let http = stage.http(Side::A, token);
    for path in [
        "/v1/rooms/secret",
        "/v1/rooms/secret/count",
        "/v1/tenant/members",
    ] {
        let reply = http.get(path).await?;
        ensure!(
            reply.status == 403 && reply.code() == "forbidden",
            "{}",
            reply.text()
        );
    }
    let beat = json!({"device": "d", "conn": 1, "rooms": ["secret"]});
    let reply = http.post("/v1/heartbeat", &beat).await?;
    ensure!(
        reply.status == 403 && reply.code() == "forbidden",
        "{}",
        reply.text()
    );
    let beat = json!({"device": "d", "conn": 1, "user": "bob"});
    let reply = http.post("/v1/heartbeat", &beat).await?;
    ensure!(
        reply.status == 403 && reply.code() == "forbidden",
        "{}",
        reply.text()
    );
    let reply = http.delete("/v1/users/bob/sessions").await?;
    ensure!(
        reply.status == 403 && reply.code() == "forbidden",
        "{}",
        reply.text()
    );
    let refused = http.events("topic=room:secret").await.err();
    let refused = refused.map(|e| e.to_string());
    ensure!(refused.as_deref() == Some("403: forbidden"), "{refused:?}");
    http.get("/v1/rooms/open").await?.ok()?;
    Ok(())
}

async fn grpc_forbidden(stage: &Stage, token: &str) -> Result<()> {
    let mode = Mode::Members;
    let watched = stage
        .grpc_watch(Side::A, "ann", token, &["room:secret"], mode)
        .await;
    let refused = watched
        .err()
        .and_then(|e| e.downcast::<tonic::Status>().ok());
    let refused = refused.context("it was let in")?;
    ensure!(
        refused.code() == tonic::Code::PermissionDenied,
        "{refused:?}"
    );
    let code = refused.metadata().get("adsum-code");
    ensure!(code.is_some_and(|code| code == "forbidden"), "{refused:?}");
    let mut client = grpc(&stage.http(Side::A, token.to_owned())).await?;
    let request = v1::DisconnectRequest {
        user: Some("bob".to_owned()),
        device: None,
    };
    let refused = client.disconnect(with_token(request, token)?).await.err();
    let refused = refused.context("it was let in")?;
    ensure!(
        refused.code() == tonic::Code::PermissionDenied,
        "{refused:?}"
    );
    Ok(())
}
