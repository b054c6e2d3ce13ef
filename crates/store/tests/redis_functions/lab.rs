//! One server, one store, and the operations of these tests.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use adsum_core::{
    Conn, DeviceId, Incarnation, Membership, Reason, RoomId, SessionKey, Stamp, State, TenantId,
    UserId, UserKey,
    store::{Close, Fence, Lease, Open, Store, Touch},
};
use adsum_local::redis::{RedisServer, ServerOptions};
use adsum_store::{Hooks, Keys, Options, RedisConfig, RedisStore};
use anyhow::Result;
use redis::cmd;

pub(crate) const START: u64 = 1_700_000_000_000;

pub(crate) fn user(name: &str) -> UserKey {
    UserKey::new(TenantId::new("acme").unwrap(), UserId::new(name).unwrap())
}

pub(crate) fn key(name: &str, device: &str) -> SessionKey {
    SessionKey::new(user(name), DeviceId::new(device).unwrap())
}

pub(crate) fn holder(name: &str) -> Incarnation {
    Incarnation::new(name).unwrap()
}

pub(crate) fn stamp(conn: u64, rev: u64) -> Stamp {
    Stamp {
        conn: Conn::new(conn).unwrap(),
        rev,
    }
}

pub(crate) fn state(rooms: &[&str]) -> State {
    let rooms = rooms
        .iter()
        .map(|r| (RoomId::new(*r).unwrap(), Membership::default()));
    State {
        rooms: rooms.collect(),
        ..State::default()
    }
}

pub(crate) fn open(key: SessionKey, by: &str, stamp: Stamp, state: State) -> Open {
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

pub(crate) fn touch(key: SessionKey, stamp: Stamp, state: State) -> Touch {
    Touch {
        key,
        stamp,
        state,
        ttl_ms: 20_000,
        sessions_max: 3_000,
        origin: None,
    }
}

pub(crate) fn close(key: SessionKey, stamp: Stamp) -> Close {
    Close {
        key,
        stamp,
        reason: Reason::Leave,
        origin: None,
    }
}

pub(crate) fn options(shards: u16) -> Options {
    Options {
        shards,
        log_len: 100,
        retention_ms: 200_000,
        ..Options::default()
    }
}

/// A server, a clock that stands still, and a store.
pub(crate) struct Lab {
    pub(crate) server: RedisServer,
    pub(crate) clock: Arc<AtomicU64>,
    pub(crate) store: RedisStore,
}

impl Lab {
    pub(crate) async fn new(options: Options) -> Result<Self> {
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

    pub(crate) fn wait(&self, ms: u64) {
        self.clock.fetch_add(ms, Relaxed);
    }

    pub(crate) fn keys(&self, shard: usize) -> Keys {
        Keys::of_all("adsum", 1, self.store.shards())[shard].clone()
    }

    /// As a failover that loses nothing: the shard was written by another server.
    pub(crate) async fn change_identity(&self) -> Result<()> {
        let meta = self.keys(0).named("meta").to_owned();
        if self.raw(cmd("EXISTS").arg(&meta)).await? {
            self.raw::<()>(cmd("HSET").arg(&meta).arg("replid").arg("other"))
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn raw<T: redis::FromRedisValue>(
        &self,
        command: &mut redis::Cmd,
    ) -> Result<T> {
        self.server.query(command).await
    }
}

/// Passes the settling of a shard, with its holders alive.
pub(crate) async fn settle(lab: &Lab, holders: &[&str]) -> Result<Fence> {
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
