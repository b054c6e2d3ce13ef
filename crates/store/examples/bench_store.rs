//! What a heartbeat costs in Redis: the usual patterns against ours, in one run against one real
//! Redis. Also opens per second and memory per session. `JSON=1` prints one JSON object.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::{sync::Arc, time::Instant};

use adsum_core::{
    Conn, DeviceId, Incarnation, Membership, RoomId, SessionKey, Stamp, State, TenantId, UserId,
    UserKey,
    store::{Lease, Open, Opened, Renewed, Shard, Store, Touch, Touched},
};
use adsum_local::{RedisServer, ServerOptions};
use adsum_store::{Options, RedisConfig, RedisStore};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use redis::{aio::MultiplexedConnection, cmd};

/// Connections that beat at the same time, each one by one.
const CLIENTS: u64 = 16;
const BEATS: u64 = 100_000;
const BATCH: u64 = 500;
/// Sessions of one holder in one shard.
const HELD: u64 = 10_000;
/// Every 5 s a renewal, every 15 s a heartbeat: so many renewals stand for one round of beats.
const RENEWALS_PER_BEAT: u64 = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let json = std::env::var("JSON").is_ok_and(|v| v == "1");
    let say = |text: &str| {
        if !json {
            eprintln!("… {text}");
        }
    };
    let server = RedisServer::start(ServerOptions::default()).await?;
    say("EXISTS + SETEX, one by one");
    let exists_setex = one_by_one(&server, exists_setex).await?;
    say("ZSCORE + ZADD, one by one");
    let zscore_zadd = one_by_one(&server, zscore_zadd).await?;
    say("ZADD in batches");
    let zadd_batch = zadd_batch(&server).await?;
    server.flush_all().await?;
    say("opening sessions");
    let (store, opens_per_s, bytes_per_session) = opens(&server).await?;
    say("our touch in batches");
    let touch = touches(&server, &store).await?;
    say("our renew");
    let renew = renewals(&server, &store).await?;

    let rows = [
        ("exists_setex", "EXISTS + SETEX, one by one", exists_setex),
        ("zscore_zadd", "ZSCORE + ZADD, one by one", zscore_zadd),
        ("zadd_batch", "ZADD, 500 in a call", zadd_batch),
        ("touch", "touch (HTTP), 500 in a call", touch),
        ("renew", "renew, 10,000 sessions per holder", renew),
    ];
    if json {
        let costs: Vec<_> = rows
            .iter()
            .map(|(key, _, s)| format!("\"{key}\": {s:.6}"))
            .collect();
        println!(
            "{{\"redis_cpu_s_per_million\": {{{}}}, \"opens_per_s\": {opens_per_s:.0}, \
             \"bytes_per_session\": {bytes_per_session:.0}}}",
            costs.join(", ")
        );
    } else {
        println!("\nRedis CPU seconds per million heartbeats");
        for (_, name, seconds) in rows {
            println!("  {name:<36} {seconds:>10.4}   {:>9.1} ×", seconds / renew);
        }
        println!("\nopens per second (one Redis)   {opens_per_s:>10.0}");
        println!("Redis bytes per session        {bytes_per_session:>10.0}");
    }
    let ratio = exists_setex.min(zscore_zadd) / renew;
    ensure!(
        ratio >= 100.0,
        "renew is only {ratio:.0} times cheaper than one by one"
    );
    Ok(())
}

/// Redis CPU seconds per million, of work that stands for `beats` heartbeats.
async fn cost<F>(server: &RedisServer, beats: u64, work: impl FnOnce() -> F) -> Result<f64>
where
    F: Future<Output = Result<()>>,
{
    let before = server.cpu_seconds().await?;
    work().await?;
    let used = server.cpu_seconds().await? - before;
    Ok(used * 1e6 / beats as f64)
}

async fn one_by_one<F>(
    server: &RedisServer,
    beat: fn(MultiplexedConnection, u64) -> F,
) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    cost(server, BEATS, || async {
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let connection = server.conn().await?;
            clients.spawn(async move {
                for n in 0..BEATS / CLIENTS {
                    beat(connection.clone(), client * 10_000 + n % 1000).await?;
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        while let Some(client) = clients.join_next().await {
            client??;
        }
        Ok(())
    })
    .await
}

async fn exists_setex(mut redis: MultiplexedConnection, user: u64) -> Result<()> {
    let key = format!("presence:user-{user}");
    let _: bool = cmd("EXISTS").arg(&key).query_async(&mut redis).await?;
    let _: () = cmd("SETEX")
        .arg(&key)
        .arg(45)
        .arg(1)
        .query_async(&mut redis)
        .await?;
    Ok(())
}

async fn zscore_zadd(mut redis: MultiplexedConnection, user: u64) -> Result<()> {
    let member = format!("user-{user}");
    let score = 1_731_724_800_000_u64 + user;
    let _: Option<f64> = cmd("ZSCORE")
        .arg("online")
        .arg(&member)
        .query_async(&mut redis)
        .await?;
    let _: u64 = cmd("ZADD")
        .arg("online")
        .arg(score)
        .arg(&member)
        .query_async(&mut redis)
        .await?;
    Ok(())
}

async fn zadd_batch(server: &RedisServer) -> Result<f64> {
    let mut redis = server.conn().await?;
    let beats = BEATS * 5;
    cost(server, beats, || async {
        for batch in 0..beats / BATCH {
            let mut zadd = cmd("ZADD");
            zadd.arg("batched");
            for n in 0..BATCH {
                zadd.arg(1_731_724_800_000_u64 + batch)
                    .arg(format!("user-{}", batch % 40 * BATCH + n));
            }
            let _: u64 = zadd.query_async(&mut redis).await?;
        }
        Ok(())
    })
    .await
}

fn key(n: u64) -> Result<SessionKey> {
    let owner = UserKey::new(TenantId::new("acme")?, UserId::new(format!("user-{n}"))?);
    Ok(SessionKey::new(owner, DeviceId::new("web")?))
}

fn state(n: u64) -> Result<State> {
    let room = RoomId::new(format!("room-{}", n % 100))?;
    Ok(State {
        rooms: [(room, Membership::default())].into_iter().collect(),
        ..State::default()
    })
}

fn stamp(rev: u64) -> Result<Stamp> {
    Ok(Stamp {
        conn: Conn::new(1_731_724_800_000)?,
        rev,
    })
}

async fn open(store: &RedisStore, holder: &Incarnation, n: u64) -> Result<()> {
    let op = Open {
        key: key(n)?,
        holder: holder.clone(),
        stamp: stamp(1)?,
        state: state(n)?,
        opened_at: 0,
        prefs: None,
        origin: None,
    };
    let answer = store.open(op).await?;
    ensure!(matches!(answer.value, Opened::Ok { .. }), "{answer:?}");
    Ok(())
}

async fn open_all(
    store: &RedisStore,
    holder: &Incarnation,
    numbers: std::ops::Range<u64>,
) -> Result<()> {
    stream::iter(numbers)
        .map(Ok)
        .try_for_each_concurrent(256, |n| open(store, holder, n))
        .await
}

/// A store with sessions, how fast they were opened and what they take. Logs are full before the
/// measurement begins: they are bounded and do not grow with sessions.
async fn opens(server: &RedisServer) -> Result<(RedisStore, f64, f64)> {
    let options = Options {
        shards: 16,
        log_len: 1000,
        ..Options::default()
    };
    let config = RedisConfig {
        options,
        ..RedisConfig::new(vec![server.url().to_owned()])
    };
    let store = RedisStore::connect(config).await?;
    store.check().await?;
    let holder = Incarnation::new("gateway-0~1")?;
    open_all(&store, &holder, 0..40_000).await?;
    let (memory, start, count) = (server.used_memory().await?, Instant::now(), 60_000);
    open_all(&store, &holder, 40_000..40_000 + count).await?;
    let per_second = count as f64 / start.elapsed().as_secs_f64();
    let bytes = (server.used_memory().await? - memory) as f64 / count as f64;
    Ok((store, per_second, bytes))
}

async fn touches(server: &RedisServer, store: &RedisStore) -> Result<f64> {
    // Half a batch of each shard would be unfair to a service that batches: fill one shard's.
    let in_first: Vec<u64> = (200_000..)
        .filter(|n| key(*n).is_ok_and(|k| store.shard_of(&k.owner) == 0))
        .take(2000)
        .collect();
    let beat = |n: u64, rev: u64| -> Result<Touch> {
        let ttl_ms = 45_000;
        Ok(Touch {
            key: key(n)?,
            stamp: stamp(rev)?,
            state: state(n)?,
            ttl_ms,
            sessions_max: 100,
            origin: None,
        })
    };
    let round = async |rev: u64| -> Result<()> {
        for chunk in in_first.chunks(usize::try_from(BATCH)?) {
            let beats = chunk
                .iter()
                .map(|n| beat(*n, rev))
                .collect::<Result<Vec<_>>>()?;
            for answer in store.touch(beats).await? {
                ensure!(matches!(answer.value, Touched::Ok { .. }), "{answer:?}");
            }
        }
        Ok(())
    };
    round(1).await?;
    let rounds = 50;
    cost(server, rounds * in_first.len() as u64, || async {
        for rev in 0..rounds {
            round(2 + rev).await?;
        }
        Ok(())
    })
    .await
}

async fn renewals(server: &RedisServer, store: &RedisStore) -> Result<f64> {
    let holder = Incarnation::new("gateway-0~2")?;
    let shard: Shard = 0;
    let here = |n: &u64| key(*n).is_ok_and(|k| store.shard_of(&k.owner) == shard);
    let numbers: Vec<u64> = (1_000_000..)
        .filter(here)
        .take(usize::try_from(HELD)?)
        .collect();
    stream::iter(numbers)
        .map(Ok)
        .try_for_each_concurrent(256, |n| open(store, &holder, n))
        .await?;
    let answer = store.renew(shard, &holder, Lease::Usual).await?;
    ensure!(answer.value == Renewed::Ok { held: HELD }, "{answer:?}");
    let (store, holder) = (Arc::new(store.handle()), Arc::new(holder));
    let calls = 20_000;
    let beats = calls * HELD / RENEWALS_PER_BEAT;
    cost(server, beats, || async {
        stream::iter(0..calls)
            .map(Ok)
            .try_for_each_concurrent(16, |_| {
                let (store, holder) = (store.clone(), holder.clone());
                async move {
                    store
                        .renew(shard, &holder, Lease::Usual)
                        .await
                        .context("renew")?;
                    Ok(())
                }
            })
            .await
    })
    .await
}
