//! Presence as most articles describe it, done honestly: one sorted set of everybody with the time
//! of their last heartbeat, which is read and written with each; one channel for all news, heard by
//! every server; JSON encoded for each receiver; and a look at the set every few seconds for those
//! who are silent. It speaks as much of the client protocol as `adsum bench` needs.
//!
//! Usage: `articles --redis redis://127.0.0.1:6379 --listen 127.0.0.1:8081`

#![allow(clippy::print_stdout, reason = "says where it listens")]

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use clap::Parser;
use futures::{SinkExt, StreamExt};
use redis::{AsyncCommands, AsyncConnectionConfig, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::{
    Message,
    handshake::server::{ErrorResponse, Request, Response},
    http::HeaderValue,
};

const EVERYBODY: &str = "articles:presence";
const NEWS: &str = "articles:news";
/// Silent for so long is gone.
const TTL: Duration = Duration::from_secs(30);
/// How often the silent are looked for.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Parser)]
struct Args {
    #[arg(long)]
    redis: String,
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// What everybody is told.
#[derive(Serialize, Deserialize)]
struct News {
    room: String,
    user: String,
    joined: bool,
}

type Outlet = mpsc::UnboundedSender<Message>;

/// Who listens to which room here.
#[derive(Default)]
struct Rooms {
    by_name: Mutex<HashMap<String, HashMap<u64, Outlet>>>,
    next: AtomicU64,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<u64, Outlet>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: &News) {
        let rooms = self.lock();
        let Some(listeners) = rooms.get(&news.room) else {
            return;
        };
        for outlet in listeners.values() {
            // For each receiver, as the articles do.
            let person = json!({ "user": news.user, "status": "online" });
            let (joins, leaves) = match news.joined {
                true => (vec![person], Vec::new()),
                false => (Vec::new(), vec![person]),
            };
            let diff = json!({
                "type": "presence_diff", "topic": format!("room:{}", news.room),
                "joins": joins, "leaves": leaves,
            });
            let _ = outlet.send(Message::text(diff.to_string()));
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let client = redis::Client::open(args.redis)?;
    // However long Redis takes: a client must not be lost because its server is measured.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let redis = client
        .get_multiplexed_async_connection_with_config(&patient)
        .await?;
    let rooms = Arc::new(Rooms::default());
    let mut news = client.get_async_pubsub().await?;
    news.subscribe(NEWS).await?;
    let told = rooms.clone();
    tokio::spawn(async move {
        let mut news = news.into_on_message();
        while let Some(message) = news.next().await {
            if let Ok(news) = serde_json::from_slice(message.get_payload_bytes()) {
                told.tell(&news);
            }
        }
    });
    tokio::spawn(look_for_the_silent(redis.clone()));
    let listener = TcpListener::bind(args.listen).await?;
    println!("{}", listener.local_addr()?);
    while let Ok((stream, _)) = listener.accept().await {
        let (redis, rooms) = (redis.clone(), rooms.clone());
        tokio::spawn(async move {
            // Whoever does not speak as expected is gone.
            let _ = serve(stream, redis, rooms).await;
        });
    }
    Ok(())
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

fn entry(room: &str, user: &str) -> String {
    format!("{room}\n{user}")
}

/// A heartbeat: is it known, and now is its time.
async fn beat(redis: &mut MultiplexedConnection, room: &str, user: &str) -> Result<()> {
    let entry = entry(room, user);
    let known: Option<f64> = redis.zscore(EVERYBODY, &entry).await?;
    let _: () = redis.zadd(EVERYBODY, &entry, now()).await?;
    if known.is_none() {
        publish(redis, room, user, true).await?;
    }
    Ok(())
}

async fn gone(redis: &mut MultiplexedConnection, room: &str, user: &str) -> Result<()> {
    let removed: u64 = redis.zrem(EVERYBODY, entry(room, user)).await?;
    if removed > 0 {
        publish(redis, room, user, false).await?;
    }
    Ok(())
}

async fn publish(
    redis: &mut MultiplexedConnection,
    room: &str,
    user: &str,
    joined: bool,
) -> Result<()> {
    let (room, user) = (room.to_owned(), user.to_owned());
    let news = serde_json::to_vec(&News { room, user, joined })?;
    let _: () = redis.publish(NEWS, news).await?;
    Ok(())
}

async fn look_for_the_silent(mut redis: MultiplexedConnection) {
    loop {
        tokio::time::sleep(LOOK).await;
        let late = now() - TTL.as_secs_f64();
        let silent: Vec<String> = redis
            .zrangebyscore(EVERYBODY, "-inf", late)
            .await
            .unwrap_or_default();
        for entry in silent {
            if let Some((room, user)) = entry.split_once('\n') {
                let _ = gone(&mut redis, room, user).await;
            }
        }
    }
}

#[allow(clippy::result_large_err, reason = "the library's own type")]
fn accept(_: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let json = HeaderValue::from_static("adsum.v1.json");
    response
        .headers_mut()
        .insert("sec-websocket-protocol", json);
    Ok(response)
}

async fn serve(
    stream: TcpStream,
    mut redis: MultiplexedConnection,
    rooms: Arc<Rooms>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let socket = tokio_tungstenite::accept_hdr_async(stream, accept).await?;
    let (mut sink, mut source) = socket.split();
    let (outlet, mut waiting) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = waiting.recv().await {
            if sink.send(message).await.is_err() {
                return;
            }
        }
    });
    let number = rooms.next.fetch_add(1, Relaxed);
    let mut user = String::new();
    let mut present: Vec<String> = Vec::new();
    let mut listens: Vec<String> = Vec::new();
    while let Some(Ok(message)) = source.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        let frame: Value = serde_json::from_str(&text)?;
        let word = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
        match frame["type"].as_str().unwrap_or_default() {
            "hello" => {
                let token = word("token");
                user = token.rsplit(':').next().context("no user")?.to_owned();
                outlet.send(self::text(
                    &json!({ "type": "welcome", "heartbeat_ms": 15_000 }),
                ))?;
                for room in frame["rooms"].as_array().into_iter().flatten() {
                    let room = room.as_str().unwrap_or_default().to_owned();
                    beat(&mut redis, &room, &user).await?;
                    present.push(room);
                }
                for watch in frame["watch"].as_array().into_iter().flatten() {
                    let topic = watch["topic"].as_str().unwrap_or_default();
                    let room = topic.strip_prefix("room:").unwrap_or(topic).to_owned();
                    rooms
                        .lock()
                        .entry(room.clone())
                        .or_default()
                        .insert(number, outlet.clone());
                    listens.push(room);
                    let state = json!({
                        "type": "presence_state", "topic": topic, "complete": true, "members": [],
                    });
                    outlet.send(self::text(&state))?;
                }
                continue;
            }
            "join" => {
                let room = word("room");
                beat(&mut redis, &room, &user).await?;
                present.push(room);
            }
            "part" => {
                let room = word("room");
                gone(&mut redis, &room, &user).await?;
                present.retain(|other| *other != room);
            }
            "heartbeat" => {
                for room in &present {
                    beat(&mut redis, room, &user).await?;
                }
            }
            _ => {}
        }
        outlet.send(self::text(&json!({ "type": "ack" })))?;
    }
    for room in listens {
        if let Some(listeners) = rooms.lock().get_mut(&room) {
            listeners.remove(&number);
        }
    }
    for room in present {
        gone(&mut redis, &room, &user).await?;
    }
    Ok(())
}

fn text(frame: &Value) -> Message {
    Message::text(frame.to_string())
}
