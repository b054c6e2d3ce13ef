//! The Redis store against one real server: bytes, refusals, errors, and a random run beside
//! the store in memory, which must answer the same.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test says what it expects, and what it measured"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Activity, Conn, DeviceId, Holder, Incarnation, Invalid, Kind, Manual, Membership, Meta, Origin,
    Preference, Prefs, Reason, RoomId, SessionKey, Stamp, State, TenantId, UserId, UserKey,
    Versioned, Visibility, codec,
    store::{
        Alter, Altered, Close, Closed, Fence, Lease, Open, Opened, Preferred, Push, Renewed, Store,
        StoreError, Swept, Touch, Touched,
    },
};
use adsum_local::redis::{Auth, RedisServer, ServerOptions};
use adsum_store::{Hooks, Keys, MemoryStore, Options, RedisConfig, RedisStore};
use anyhow::{Result, ensure};
use futures::StreamExt;
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};
use redis::cmd;

const START: u64 = 1_700_000_000_000;

fn user(name: &str) -> UserKey {
    UserKey::new(TenantId::new("acme").unwrap(), UserId::new(name).unwrap())
}

fn key(name: &str, device: &str) -> SessionKey {
    SessionKey::new(user(name), DeviceId::new(device).unwrap())
}

fn holder(name: &str) -> Incarnation {
    Incarnation::new(name).unwrap()
}

fn stamp(conn: u64, rev: u64) -> Stamp {
    Stamp {
        conn: Conn::new(conn).unwrap(),
        rev,
    }
}

fn state(rooms: &[&str]) -> State {
    let rooms = rooms
        .iter()
        .map(|r| (RoomId::new(*r).unwrap(), Membership::default()));
    State {
        rooms: rooms.collect(),
        ..State::default()
    }
}

fn open(key: SessionKey, by: &str, stamp: Stamp, state: State) -> Open {
    Open {
        key,
        holder: holder(by),
        stamp,
        state,
        opened_at: 0,
        prefs: None,
        origin: None,
    }
}

fn touch(key: SessionKey, stamp: Stamp, state: State) -> Touch {
    Touch {
        key,
        stamp,
        state,
        ttl_ms: 20_000,
        sessions_max: 3_000,
        origin: None,
    }
}

fn close(key: SessionKey, stamp: Stamp) -> Close {
    Close {
        key,
        stamp,
        reason: Reason::Leave,
        origin: None,
    }
}

fn options(shards: u16) -> Options {
    Options {
        shards,
        log_len: 100,
        retention_ms: 200_000,
        ..Options::default()
    }
}

/// A server, a clock that stands still, and a store.
struct Lab {
    server: RedisServer,
    clock: Arc<AtomicU64>,
    store: RedisStore,
}

impl Lab {
    async fn new(options: Options) -> Result<Self> {
        let server = RedisServer::start(ServerOptions::default()).await?;
        let clock = Arc::new(AtomicU64::new(START));
        let mut config = RedisConfig::new(vec![server.url().into()]);
        config.options = options;
        config.hooks = Hooks {
            clock: Some(clock.clone()),
            nonce: Some(0),
        };
        let store = RedisStore::connect(config).await?;
        Ok(Self {
            server,
            clock,
            store,
        })
    }

    fn wait(&self, ms: u64) {
        self.clock.fetch_add(ms, Relaxed);
    }

    fn keys(&self, shard: usize) -> Keys {
        Keys::of_all("adsum", 1, self.store.shards())[shard].clone()
    }

    /// As a failover that loses nothing: the shard was written by another server.
    async fn change_identity(&self) -> Result<()> {
        let meta = self.keys(0).named("meta").to_owned();
        if self.raw(cmd("EXISTS").arg(&meta)).await? {
            self.raw::<()>(cmd("HSET").arg(&meta).arg("replid").arg("other"))
                .await?;
        }
        Ok(())
    }

    async fn raw<T: redis::FromRedisValue>(&self, command: &mut redis::Cmd) -> Result<T> {
        self.server.query(command).await
    }
}

/// Passes the settling of a shard, with its holders alive.
async fn settle(lab: &Lab, holders: &[&str]) -> Result<Fence> {
    for _ in 0..10 {
        lab.wait(5_000);
        for name in holders {
            lab.store.renew(0, &holder(name), Lease::Usual).await?;
        }
        let fence = lab.store.claim(0).await?.value;
        lab.store.sweep(0, fence, 100).await?;
    }
    Ok(lab.store.claim(0).await?.value)
}

#[tokio::test]
async fn sessions_open_change_and_close() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    let phone = key("ann", "phone");
    let op = open(phone.clone(), "a", stamp(5, 1), state(&["x"]));

    let first = store.open(op.clone()).await?;
    let Opened::Ok {
        session,
        committed: true,
        ..
    } = &first.value
    else {
        panic!("{first:?}");
    };
    assert_eq!(
        (session.opened_at, first.at, first.epoch),
        (START, START, START + 1)
    );
    let again = store.open(op.clone()).await?;
    assert!(matches!(
        again.value,
        Opened::Ok {
            committed: false,
            ..
        }
    ));

    lab.wait(10);
    let moved = store
        .open(open(phone.clone(), "b", stamp(6, 1), state(&["x"])))
        .await?;
    let Opened::Ok {
        session,
        committed: false,
        ..
    } = moved.value
    else {
        panic!("a silent reconnect makes no change");
    };
    assert_eq!(session.holder, Holder::Gateway(holder("b")));
    assert_eq!(session.state.rooms[&RoomId::new("x")?].since, START);
    assert_eq!(store.held(0, &holder("a"), None, 9).await?, []);
    assert_eq!(
        store.held(0, &holder("b"), None, 9).await?,
        std::slice::from_ref(&phone)
    );
    let old = store.open(op).await?.value;
    assert_eq!(
        old,
        Opened::Superseded {
            conn: Conn::new(6)?
        }
    );

    let alter = |conn, rev, rooms: &[&str]| Alter {
        key: phone.clone(),
        stamp: stamp(conn, rev),
        state: state(rooms),
        origin: None,
    };
    let newer = store.alter(alter(7, 1, &[])).await?.value;
    assert_eq!(newer, Altered::Unknown);
    let older = store.alter(alter(5, 9, &[])).await?.value;
    assert_eq!(
        older,
        Altered::Superseded {
            conn: Conn::new(6)?
        }
    );
    let late = store.alter(alter(6, 1, &["y"])).await?.value;
    assert!(matches!(
        late,
        Altered::Ok {
            committed: false,
            ..
        }
    ));
    let same = store.alter(alter(6, 2, &["x"])).await?.value;
    assert!(matches!(
        same,
        Altered::Ok {
            committed: false,
            ..
        }
    ));
    let other = store.alter(alter(6, 3, &[])).await?.value;
    assert!(matches!(
        other,
        Altered::Ok {
            committed: true,
            ..
        }
    ));

    let older = store.close(close(phone.clone(), stamp(5, 9))).await?.value;
    assert_eq!(
        older,
        Closed::Superseded {
            conn: Conn::new(6)?
        }
    );
    let late = store.close(close(phone.clone(), stamp(6, 3))).await?.value;
    assert_eq!(late, Closed::Ok { committed: false });
    let closed = store.close(close(phone.clone(), stamp(6, 4))).await?.value;
    assert_eq!(closed, Closed::Ok { committed: true });
    let back = store
        .open(open(phone.clone(), "b", stamp(6, 5), state(&[])))
        .await?
        .value;
    assert_eq!(
        back,
        Opened::Superseded {
            conn: Conn::new(6)?
        }
    );
    let read = store.read(&[user("ann"), user("bob")]).await?;
    assert_eq!(
        (read[0].last_seen, &read[0].person),
        (Some(START + 10), &None)
    );
    assert_eq!((read[1].last_seen, read[1].settling), (None, true));
    Ok(())
}

#[tokio::test]
async fn touch_takes_many_and_judges_each() -> Result<()> {
    let lab = Lab::new(options(4)).await?;
    let mut ops: Vec<_> = (0..2100)
        .map(|n| touch(key(&format!("u{n}"), "web"), stamp(1, 1), state(&["lobby"])))
        .collect();
    ops.push(touch(key("u7", "web"), stamp(1, 1), state(&[])));
    ops.push(touch(key("u7", "web"), stamp(1, 2), state(&[])));
    ops.push(touch(key("u7", "app"), stamp(1, 1), state(&[])));
    let answers = lab.store.touch(ops).await?;
    let committed = answers
        .iter()
        .map(|a| a.value == Touched::Ok { committed: true });
    assert_eq!(committed.filter(|c| *c).count(), 2102);
    assert_eq!(answers[2100].value, Touched::Ok { committed: false });
    let all: Vec<_> = (0..2100).map(|n| user(&format!("u{n}"))).collect();
    let read = lab.store.read(&all).await?;
    assert!(read.iter().all(|u| u.person.is_some()));
    assert_eq!(read[7].person.as_ref().unwrap().sessions.len(), 2);
    lab.store
        .close(close(key("u7", "web"), stamp(3, 1)))
        .await?;
    let late = lab
        .store
        .touch(vec![touch(key("u7", "web"), stamp(2, 1), state(&[]))])
        .await?;
    assert_eq!(
        late[0].value,
        Touched::Superseded {
            conn: Conn::new(3)?
        }
    );
    assert_eq!(lab.store.touch(vec![]).await?, []);
    Ok(())
}

#[tokio::test]
async fn holders_renew_drain_and_expire() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    let unknown = store.renew(0, &holder("a"), Lease::Usual).await?.value;
    assert_eq!(unknown, Renewed::Gone);
    for n in 0..5 {
        let op = open(key(&format!("u{n}"), "d"), "a", stamp(1, 1), state(&[]));
        store.open(op).await?;
    }
    store
        .open(open(key("x", "d"), "ab", stamp(1, 1), state(&[])))
        .await?;
    let held = store.renew(0, &holder("a"), Lease::Usual).await?.value;
    assert_eq!(held, Renewed::Ok { held: 5 });

    let fence = settle(&lab, &["a", "ab"]).await?;
    let old = Fence {
        number: fence.number - 1,
        ..fence
    };
    assert_eq!(store.sweep(0, old, 9).await?.value, Swept::Refused);
    store.renew(0, &holder("a"), Lease::Drain(1_000)).await?;
    lab.wait(1_001);
    let part = store.sweep(0, fence, 2).await?.value;
    assert_eq!(
        part,
        Swept::Ok {
            closed: 2,
            next_ms: Some(0)
        }
    );
    let gone = store
        .open(open(key("y", "d"), "a", stamp(1, 1), state(&[])))
        .await?
        .value;
    assert_eq!(gone, Opened::Gone);
    assert_eq!(
        store.renew(0, &holder("a"), Lease::Usual).await?.value,
        Renewed::Gone
    );
    // The clock goes back: the condemned stay due.
    lab.clock.fetch_sub(5_000, Relaxed);
    let rest = store.sweep(0, fence, 100).await?.value;
    ensure!(
        matches!(
            rest,
            Swept::Ok {
                closed: 3,
                next_ms: Some(_)
            }
        ),
        "{rest:?}"
    );
    let page = store.log(0, 0, 1000).await?;
    let reasons = page
        .entries
        .iter()
        .filter_map(|change| match &change.event {
            adsum_core::Event::Session { reason, .. } => *reason,
            _ => None,
        });
    assert_eq!(reasons.collect::<Vec<_>>(), [Reason::Disconnect; 5]);
    Ok(())
}

#[tokio::test]
async fn preferences_go_by_version() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    let ann = user("ann");
    let set = |p, v| store.prefer(&ann, p, v);
    assert_eq!(store.contacts(&ann).await?, None);
    let hidden = Preference::Status(Some(Manual::Invisible));
    let Preferred::Ok(prefs) = set(hidden.clone(), 5).await?.value else {
        panic!()
    };
    assert_eq!((prefs.status.version, prefs.frozen_at), (5, 0));
    assert!(matches!(
        set(hidden.clone(), 5).await?.value,
        Preferred::Ok(_)
    ));
    assert!(matches!(
        set(Preference::Status(None), 5).await?.value,
        Preferred::Stale(_)
    ));
    assert!(matches!(set(hidden, 4).await?.value, Preferred::Stale(_)));
    let list = vec![UserId::new("bob")?, UserId::new("al")?];
    set(Preference::Contacts(list.clone()), 3).await?;
    assert_eq!(store.contacts(&ann).await?, Some((3, list)));
    set(Preference::Contacts(vec![]), 4).await?;
    assert_eq!(store.contacts(&ann).await?, Some((4, vec![])));
    for version in [0, Conn::MAX + 1] {
        let refused = set(Preference::Visibility(Visibility::Nobody), version).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))));
    }
    let many = vec![UserId::new("x")?; 5001];
    let invalid = set(Preference::Contacts(many), 9).await;
    assert!(matches!(
        invalid,
        Err(StoreError::Invalid(Invalid::TooManyContacts { .. }))
    ));
    store.purge(&ann).await?;
    assert_eq!(store.contacts(&ann).await?, None);
    assert_eq!(store.read(&[ann]).await?[0].prefs, Prefs::default());
    Ok(())
}

#[tokio::test]
async fn records_are_what_the_codec_writes() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let keys = lab.keys(0);
    let meta = Meta::new(r#"{"a":"ü"}"#, 100)?;
    let mut rich = state(&["a", "b", "c", "d", "e", "f"]);
    rich.kind = Kind::new("web")?;
    rich.meta = Some(Meta::new(format!("\"{}\"", "x".repeat(300)), 1000)?);
    rich.rooms.get_mut(&RoomId::new("b")?).unwrap().meta = Some(meta);
    for (device, state) in [("z", rich.clone()), ("Ä", state(&[])), ("a", rich)] {
        let mut op = open(
            key("ann", device),
            "gw~1",
            stamp(Conn::MAX, Conn::MAX),
            state,
        );
        op.origin = Some(Origin {
            at_us: 1,
            traceparent: Some("00-1".into()),
        });
        op.prefs = Some(Prefs {
            status: Versioned {
                value: Some(Manual::Dnd),
                version: 1 << 40,
            },
            ..Prefs::default()
        });
        lab.store.open(op).await?;
    }
    lab.store
        .prefer(&user("ann"), Preference::Visibility(Visibility::Nobody), 1)
        .await?;
    lab.store
        .kick(&user("ann"), Some(&DeviceId::new("Ä")?))
        .await?;
    lab.store
        .touch(vec![touch(key("bob", "w"), stamp(1, 1), state(&[]))])
        .await?;

    let raw: Vec<u8> = lab
        .raw(
            cmd("HGET")
                .arg(keys.named("people"))
                .arg(user("ann").encode()),
        )
        .await?;
    let person = codec::decode_person(&raw)?;
    assert_eq!(person.sessions.len(), 2);
    assert_eq!(codec::encode_person(&person), raw);
    let prefs: Vec<u8> = lab
        .raw(
            cmd("HGET")
                .arg(keys.named("prefs"))
                .arg(user("ann").encode()),
        )
        .await?;
    assert_eq!(codec::encode_prefs(&codec::decode_prefs(&prefs)?), prefs);
    assert_log_bytes(&lab).await
}

async fn assert_log_bytes(lab: &Lab) -> Result<()> {
    let keys = lab.keys(0);
    type Entry = (String, (String, Vec<u8>));
    let log: Vec<Entry> = lab
        .raw(cmd("XRANGE").arg(keys.named("log")).arg("-").arg("+"))
        .await?;
    let mut bytes = 0;
    for (id, (field, raw)) in &log {
        let change = codec::decode_change(raw)?;
        assert_eq!(codec::encode_change(&change), *raw, "{change:?}");
        assert_eq!(
            (id, field.as_str()),
            (&format!("{}-0", change.version.seq), "e")
        );
        bytes += raw.len();
    }
    let head: Vec<u8> = lab
        .raw(cmd("HGET").arg(keys.named("meta")).arg("head"))
        .await?;
    let mut head = &head[..];
    // shards epoch seq unsettled log_bytes log_first
    let numbers = (0..6).map(|_| rmp::decode::read_int::<u64, _>(&mut head));
    let numbers: Vec<_> = numbers.collect::<Result<_, _>>()?;
    let (counted, first) = (numbers[4], numbers[5]);
    assert_eq!(counted, bytes as u64);
    assert_eq!(
        log.first().map(|(id, _)| id.clone()),
        Some(format!("{first}-0"))
    );
    Ok(())
}

#[tokio::test]
async fn errors_say_what_helps() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    store.check().await?;
    let op = open(key("ann", "d"), "a", stamp(1, 1), state(&[]));
    store.open(op.clone()).await?;

    let other = store.handle_with(options(2));
    let wrong = StoreError::WrongShards {
        stored: 1,
        configured: 2,
    };
    assert_eq!(other.claim(0).await, Err(wrong.clone()));
    assert_eq!(other.log(0, 0, 0).await, Err(wrong.clone()));
    assert_eq!(other.check().await, Err(wrong.clone()));
    // A node of its own has other tags, and finds out too.
    let mut config = RedisConfig::new(vec![lab.server.url().into()]);
    config.options = options(2);
    assert_eq!(RedisStore::connect(config).await?.check().await, Err(wrong));
    let none = store.renew(7, &holder("a"), Lease::Usual).await;
    assert!(matches!(none, Err(StoreError::Refused(_))));

    let mut big = op.clone();
    big.state = state(&[]);
    big.state.rooms = (0..101)
        .map(|n| (RoomId::new(n.to_string()).unwrap(), Membership::default()))
        .collect();
    let invalid = store.open(big).await;
    assert!(matches!(
        invalid,
        Err(StoreError::Invalid(Invalid::TooManyRooms { .. }))
    ));

    lab.raw::<()>(&mut cmd("FUNCTION").arg("FLUSH").to_owned())
        .await?;
    assert!(
        store.open(op.clone()).await.is_ok(),
        "functions are loaded again"
    );

    lab.raw::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg(1))
        .await?;
    let mut short = RedisConfig::new(vec![lab.server.url().into()]);
    (short.options, short.deadline) = (options(1), Duration::from_millis(300));
    let full = RedisStore::connect(short.clone()).await?;
    let refused = full.claim(0).await;
    ensure!(matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("OOM")));
    assert!(full.log(0, 0, 10).await.is_ok(), "reads go on");
    lab.raw::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg(0))
        .await?;
    lab.raw::<()>(
        cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory-policy")
            .arg("allkeys-lru"),
    )
    .await?;
    assert!(matches!(store.check().await, Err(StoreError::Refused(_))));

    // A shard as it was before the first release is not taken for an unborn one.
    let meta = lab.keys(0).named("meta").to_owned();
    let head: Vec<u8> = lab.raw(cmd("HGET").arg(&meta).arg("head")).await?;
    lab.raw::<()>(cmd("HDEL").arg(&meta).arg("head")).await?;
    lab.raw::<()>(cmd("HSET").arg(&meta).arg("epoch").arg(7))
        .await?;
    let old = store.claim(0).await;
    assert!(matches!(old, Err(StoreError::Corrupt(_))), "{old:?}");
    lab.raw::<()>(cmd("HDEL").arg(&meta).arg("epoch")).await?;
    lab.raw::<()>(cmd("HSET").arg(&meta).arg("head").arg(head))
        .await?;

    // Records of a later release, then something that is none, then a key of another type.
    let people = lab.keys(0).named("people").to_owned();
    let hset = |raw: &'static [u8]| {
        cmd("HSET")
            .arg(&people)
            .arg(user("ann").encode())
            .arg(raw)
            .to_owned()
    };
    for raw in [&b"\x94\x02\x01\x01\x96\0\0\0\0\0\0"[..], b"\xc1"] {
        lab.raw::<()>(&mut hset(raw)).await?;
        let newer = open(key("ann", "d"), "a", stamp(2, 1), state(&[]));
        let corrupt = store.open(newer).await;
        assert!(
            matches!(corrupt, Err(StoreError::Corrupt(_))),
            "{corrupt:?}"
        );
        let corrupt = store.read(&[user("ann")]).await;
        assert!(
            matches!(corrupt, Err(StoreError::Corrupt(_))),
            "{corrupt:?}"
        );
    }
    lab.raw::<()>(cmd("SET").arg(&people).arg("x")).await?;
    assert!(matches!(store.open(op).await, Err(StoreError::Corrupt(_))));
    assert!(matches!(
        store.scan(0, 0).await,
        Err(StoreError::Corrupt(_))
    ));
    Ok(())
}

#[tokio::test]
async fn credentials_are_needed_and_never_shown() -> Result<()> {
    let auth = Auth::User {
        name: "adsum".into(),
        password: "hunter2".into(),
    };
    let server = RedisServer::start(ServerOptions {
        auth,
        ..ServerOptions::default()
    })
    .await?;
    let mut config = RedisConfig::new(vec![server.url().into()]);
    config.options.shards = 2;
    assert!(!format!("{config:?}").contains("hunter2"));
    let store = RedisStore::connect(config.clone()).await?;
    store.check().await?;
    assert!(!format!("{store:?}").contains("hunter2"));
    for url in [
        server.url().replace("hunter2", "x"),
        format!("redis://127.0.0.1:{}", server.port()),
    ] {
        config.urls = vec![url];
        let refused = RedisStore::connect(config.clone()).await;
        assert!(
            matches!(&refused, Err(StoreError::Refused(_))),
            "{refused:?}"
        );
        assert!(!format!("{refused:?}").contains("hunter2"));
    }
    config.urls = vec!["redis://127.0.0.1:1".into()];
    config.deadline = Duration::from_millis(200);
    let nobody = RedisStore::connect(config.clone()).await;
    assert!(
        matches!(nobody, Err(StoreError::Unavailable(_))),
        "{nobody:?}"
    );
    config.urls = vec!["http://:hunter2@x".into()];
    let bad = RedisStore::connect(config).await;
    assert!(matches!(&bad, Err(StoreError::Refused(_))));
    assert!(!format!("{bad:?}").contains("hunter2"));
    Ok(())
}

#[tokio::test]
async fn one_server_may_restart() -> Result<()> {
    let lab = Lab::new(options(2)).await?;
    let mut pushes = lab.store.subscribe(0).await?;
    let first = lab.store.claim(0).await?;
    assert!(matches!(pushes.next().await, Some(Push::Change(_))));
    lab.server.process().restart().await?;
    lab.server.wait_ready().await?;
    let second = lab.store.claim(0).await?;
    assert!(
        second.epoch > first.epoch,
        "everything is gone, and the epoch is higher"
    );
    assert_eq!(pushes.next().await, Some(Push::Lost));
    // Lost may come twice: when the connection broke, and when it stands again.
    let heard = async {
        loop {
            lab.store.observe(0, u64::from(u32::MAX) << 20);
            lab.store.claim(0).await?;
            lab.change_identity().await?;
            if let Some(Push::Change(change)) = pushes.next().await {
                return anyhow::Ok(change);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), heard).await??;
    drop(lab.store);
    while pushes.next().await.is_some() {}
    Ok(())
}

/// One random operation on both stores; their answers must be equal.
async fn step(n: u64, rng: &mut SmallRng, lab: &Lab, memory: &MemoryStore) -> Result<()> {
    let name = ["ann", "bob", "cy"][rng.random_range(0..3)];
    let device = ["phone", "web", "Tab"][rng.random_range(0..3)];
    let key = key(name, device);
    let by = ["a", "ab", "b~1"][rng.random_range(0..3)];
    let stamp = stamp(n / 40 + rng.random_range(1..5), rng.random_range(1..6));
    let mut state = state(&["x", "y"][..rng.random_range(0..3)]);
    if rng.random_bool(0.3) {
        state.activity = Activity::Away;
    }
    if let Some(stay) = state.rooms.iter_mut().map(|(_, stay)| stay).next() {
        stay.since = [0, START - 7, START + 900_000_000][rng.random_range(0..3)];
    }
    let redis = &lab.store;
    match rng.random_range(0..24) {
        0..=5 => {
            let mut op = open(key, by, stamp, state);
            op.opened_at = [0, START - 5][rng.random_range(0..2)];
            if rng.random_bool(0.3) {
                let version = n / 100 + rng.random_range(0..9);
                let value = [None, Some(Manual::Invisible), Some(Manual::Busy)];
                op.prefs = Some(Prefs {
                    status: Versioned {
                        value: value[rng.random_range(0..3)],
                        version,
                    },
                    visibility: Versioned {
                        value: Visibility::Nobody,
                        version: 3,
                    },
                    contacts: 5,
                    frozen_at: 17,
                });
            }
            assert_eq!(redis.open(op.clone()).await, memory.open(op).await);
        }
        6 | 7 => {
            let op = Alter {
                key,
                stamp,
                state,
                origin: None,
            };
            assert_eq!(redis.alter(op.clone()).await, memory.alter(op).await);
        }
        8 => {
            let op = close(key, stamp);
            assert_eq!(redis.close(op.clone()).await, memory.close(op).await);
        }
        9..=11 => {
            let one = touch(key, stamp, state.clone());
            let mut two = one.clone();
            two.stamp.rev += 1;
            two.ttl_ms = 7_000;
            let ops = vec![one, two];
            assert_eq!(redis.touch(ops.clone()).await, memory.touch(ops).await);
        }
        12 => {
            let only = rng.random_bool(0.5).then_some(&key.device);
            let answer = memory.kick(&key.owner, only).await;
            assert_eq!(redis.kick(&key.owner, only).await, answer);
        }
        13 if rng.random_bool(0.3) => {
            assert_eq!(
                redis.purge(&key.owner).await,
                memory.purge(&key.owner).await
            );
        }
        13 | 14 => {
            let lease = if rng.random_bool(0.3) {
                Lease::Drain(9_000)
            } else {
                Lease::Usual
            };
            let answer = memory.renew(0, &holder(by), lease).await;
            assert_eq!(redis.renew(0, &holder(by), lease).await, answer);
        }
        15..=17 => {
            let mut fence = memory.claim(0).await?;
            assert_eq!(redis.claim(0).await?, fence);
            if rng.random_bool(0.1) {
                fence.value.number -= 1;
            }
            let limit = rng.random_range(0..4);
            let answer = memory.sweep(0, fence.value, limit).await;
            assert_eq!(redis.sweep(0, fence.value, limit).await, answer);
        }
        18 | 19 => {
            let preference = match rng.random_range(0..4) {
                0 => Preference::Status(Some(Manual::Invisible)),
                1 => Preference::Status(None),
                2 => Preference::Visibility(Visibility::Contacts),
                _ => Preference::Contacts(vec![UserId::new(name)?]),
            };
            let version = n / 100 + rng.random_range(1..12);
            let answer = memory.prefer(&key.owner, preference.clone(), version).await;
            assert_eq!(redis.prefer(&key.owner, preference, version).await, answer);
        }
        20 if rng.random_bool(0.2) => {
            memory.fail_over(0);
            lab.change_identity().await?;
        }
        20 if rng.random_bool(0.02) => {
            memory.flush(0);
            lab.server.flush_all().await?;
        }
        _ => {
            let by = [1, 700, 5_000, 9_000, 30_000, 46_000][rng.random_range(0..6)];
            if rng.random_bool(0.1) {
                lab.clock.fetch_sub(by, Relaxed);
            } else {
                lab.wait(by);
            }
        }
    }
    Ok(())
}

async fn assert_same(lab: &Lab, memory: &MemoryStore) -> Result<()> {
    let redis = &lab.store;
    let users = ["ann", "bob", "cy", "nobody"].map(user);
    assert_eq!(redis.read(&users).await?, memory.read(&users).await?);
    for after in [0, 3, 40] {
        let page = memory.log(0, after, 1000).await?;
        assert_eq!(redis.log(0, after, 1000).await?, page);
    }
    assert_eq!(
        redis.deadlines(0, 99).await?,
        memory.deadlines(0, 99).await?
    );
    for name in ["a", "ab", "b~1"] {
        let held = memory.held(0, &holder(name), None, 99).await?;
        assert_eq!(redis.held(0, &holder(name), None, 99).await?, held);
        let after = held.first();
        let rest = memory.held(0, &holder(name), after, 1).await?;
        assert_eq!(redis.held(0, &holder(name), after, 1).await?, rest);
    }
    for user in &users {
        assert_eq!(redis.contacts(user).await?, memory.contacts(user).await?);
    }
    assert_eq!(
        adsum_core::load(redis, 0).await?,
        adsum_core::load(memory, 0).await?
    );
    Ok(())
}

#[tokio::test]
async fn a_random_run_is_the_same_in_memory() -> Result<()> {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    let steps = std::env::var("STEPS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1500);
    let rng = &mut SmallRng::seed_from_u64(seed);
    let options = Options {
        log_max_bytes: 6_000,
        max_deadline_ms: 40_000,
        ..options(1)
    };
    let lab = Lab::new(options.clone()).await?;
    let hooks = Hooks {
        clock: Some(lab.clock.clone()),
        nonce: Some(0),
    };
    let memory = MemoryStore::new(options, hooks);
    assert_eq!(lab.store.log(0, 0, 9).await?, memory.log(0, 0, 9).await?);
    let mut log_seen = 0;
    for n in 0..steps {
        step(n, rng, &lab, &memory).await?;
        assert_same(&lab, &memory).await?;
        let page = lab.store.log(0, 0, 0).await?;
        if page.position.is_some_and(|p| p.seq != log_seen) {
            log_seen = page.position.map_or(0, |p| p.seq);
            assert_log_bytes(&lab).await?;
        }
    }
    println!(
        "seed {seed}: {steps} steps, log at {log_seen}, {}",
        rng.next_u32()
    );
    Ok(())
}
