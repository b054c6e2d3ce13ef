//! Errors that say what helps, credentials, a restart.

use std::time::Duration;

use adsum_core::{
    Invalid, Membership, RoomId,
    store::{Lease, Push, Store, StoreError},
};
use adsum_local::redis::{Auth, RedisServer, ServerOptions};
use adsum_store::{RedisConfig, RedisStore};
use anyhow::{Result, ensure};
use futures::StreamExt;
use redis::cmd;

use crate::lab::{Lab, holder, key, open, options, stamp, state, user};

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
