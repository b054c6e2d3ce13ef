//! A store in Redis, and the hand that breaks it: what a failover does is done to the keys. Every
//! lab has a name of its own in the keys, so all share one server.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use adsum_core::store::{Shard, Store};
use adsum_local::{RedisCluster, RedisServer, ServerOptions, shared};
use adsum_store::{
    Hooks, Keys, Options, RedisConfig, RedisStore,
    conformance::{Lab, Labs, START},
};
use async_trait::async_trait;
use redis::{AsyncCommands, aio::MultiplexedConnection, cmd};
use tokio::sync::{Mutex, OnceCell};

use crate::recorded::Recorded;

/// More writes than any test loses.
const HISTORY: usize = 100;

/// Sets up [`RedisLab`]s on the servers of this process.
pub(crate) enum RedisLabs {
    /// One server.
    Server,
    /// Three masters with a replica each.
    #[allow(dead_code, reason = "not every test needs a cluster")]
    Cluster,
}

enum Site {
    Server(&'static RedisServer),
    Cluster(&'static RedisCluster),
}

/// One store in Redis.
pub(crate) struct RedisLab {
    options: Options,
    clock: Arc<AtomicU64>,
    store: RedisStore,
    tapes: Arc<Vec<Mutex<Tape>>>,
}

/// What the eight keys of a shard hold.
struct Dump {
    /// As Redis restores them.
    all: Vec<Option<Vec<u8>>>,
    /// Those that are hashes once more: Redis may have put one in another order since.
    hashes: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Dump {
    const HASHES: [&str; 4] = ["people", "meta", "tombs", "prefs"];

    fn nothing() -> Self {
        Self {
            all: vec![None; 8],
            hashes: vec![BTreeMap::new(); Self::HASHES.len()],
        }
    }

    fn holds_the_same(&self, keys: &Keys, other: &Self) -> bool {
        let hashes = Self::HASHES.map(|name| keys.named(name));
        let is_hash = |key: &str| hashes.contains(&key);
        self.hashes == other.hashes
            && (self.all.iter().zip(&other.all).zip(&keys.all))
                .all(|((one, two), key)| one == two || is_hash(key))
    }
}

/// A shard's keys before each write that changed them.
pub(crate) struct Tape {
    connection: MultiplexedConnection,
    keys: Keys,
    now: Dump,
    history: Vec<Dump>,
}

impl RedisLabs {
    async fn site(&self) -> Site {
        static SERVER: OnceCell<RedisServer> = OnceCell::const_new();
        match self {
            Self::Server => {
                let start = || RedisServer::start(ServerOptions::default());
                Site::Server(SERVER.get_or_try_init(start).await.expect("a server"))
            }
            Self::Cluster => Site::Cluster(shared::redis_cluster().await.expect("a cluster")),
        }
    }
}

impl Site {
    fn urls(&self) -> Vec<String> {
        match self {
            Self::Server(server) => vec![server.url().to_owned()],
            Self::Cluster(cluster) => cluster.urls(),
        }
    }

    /// A connection to the master of a slot.
    async fn connect(&self, slot: u16) -> MultiplexedConnection {
        let connection = match self {
            Self::Server(server) => server.conn().await,
            Self::Cluster(cluster) => {
                cluster
                    .master_of(slot)
                    .await
                    .expect("a master")
                    .conn()
                    .await
            }
        };
        connection.expect("a connection")
    }
}

#[async_trait]
impl Labs for RedisLabs {
    async fn lab(&self, options: Options) -> Box<dyn Lab> {
        static LABS: AtomicU64 = AtomicU64::new(0);
        let site = self.site().await;
        let clock = Arc::new(AtomicU64::new(START));
        let mut config = RedisConfig::new(site.urls());
        config.cluster = format!("lab{}", LABS.fetch_add(1, Relaxed));
        config.options = options.clone();
        config.hooks = Hooks {
            clock: Some(clock.clone()),
            nonce: Some(0),
        };
        let mut tapes = Vec::new();
        for keys in Keys::of_all(&config.cluster, config.layout, options.shards) {
            let connection = site.connect(keys.slot).await;
            let tape = Tape {
                connection,
                keys,
                now: Dump::nothing(),
                history: vec![],
            };
            tapes.push(Mutex::new(tape));
        }
        let store = RedisStore::connect(config).await.expect("a store");
        Box::new(RedisLab {
            options,
            clock,
            store,
            tapes: Arc::new(tapes),
        })
    }
}

impl Tape {
    async fn dump(&mut self) -> Dump {
        let mut dumps = redis::pipe();
        for key in &self.keys.all {
            dumps.cmd("DUMP").arg(key);
        }
        let all = dumps.query_async(&mut self.connection).await.expect("DUMP");
        let mut hashes = redis::pipe();
        for name in Dump::HASHES {
            hashes.hgetall(self.keys.named(name));
        }
        let hashes = hashes
            .query_async(&mut self.connection)
            .await
            .expect("HGETALL");
        Dump { all, hashes }
    }

    /// After a write: remembers what was before it, if it changed anything.
    pub(crate) async fn record(&mut self) {
        let after = self.dump().await;
        if !after.holds_the_same(&self.keys, &self.now) {
            self.history.push(std::mem::replace(&mut self.now, after));
            if self.history.len() > HISTORY {
                self.history.remove(0);
            }
        }
    }

    async fn undo(&mut self, writes: usize) {
        for _ in 0..writes {
            let Some(before) = self.history.pop() else {
                break;
            };
            self.now = before;
        }
        let mut restore = redis::pipe();
        restore.atomic().del(&self.keys.all[..]).ignore();
        for (key, dump) in self.keys.all.iter().zip(&self.now.all) {
            if let Some(dump) = dump {
                restore.cmd("RESTORE").arg(key).arg(0).arg(dump).ignore();
            }
        }
        let () = restore
            .query_async(&mut self.connection)
            .await
            .expect("RESTORE");
    }

    /// Makes the shard believe that it was born on another server, or on this one.
    async fn set_identity(&mut self, replid: &str) {
        let meta = self.keys.named("meta").to_owned();
        if self.connection.exists(&meta).await.expect("EXISTS") {
            let () = self
                .connection
                .hset(&meta, "replid", replid)
                .await
                .expect("HSET");
        }
        self.now = self.dump().await;
    }

    async fn own_identity(&mut self) -> String {
        let info = cmd("INFO").arg("replication").to_owned();
        let info: String = info.query_async(&mut self.connection).await.expect("INFO");
        let field = info
            .lines()
            .find_map(|line| line.strip_prefix("master_replid:"));
        field.expect("master_replid").trim().to_owned()
    }

    async fn clear(&mut self) {
        let () = self.connection.del(&self.keys.all[..]).await.expect("DEL");
        self.record().await;
    }
}

impl RedisLab {
    fn tape(&self, shard: Shard) -> &Mutex<Tape> {
        &self.tapes[usize::from(shard)]
    }
}

#[async_trait]
impl Lab for RedisLab {
    fn options(&self) -> &Options {
        &self.options
    }

    async fn caller(&self) -> Arc<dyn Store> {
        Arc::new(Recorded::new(self.store.handle(), self.tapes.clone()))
    }

    async fn caller_with(&self, options: Options) -> Arc<dyn Store> {
        let store = self.store.handle_with(options);
        Arc::new(Recorded::new(store, self.tapes.clone()))
    }

    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    fn advance(&self, ms: i64) {
        self.clock
            .store(self.now().saturating_add_signed(ms), Relaxed);
    }

    async fn fail_over(&self, shard: Shard) {
        self.tape(shard).lock().await.set_identity("another").await;
    }

    async fn lose_last(&self, shard: Shard, writes: usize) {
        let mut tape = self.tape(shard).lock().await;
        tape.undo(writes).await;
        tape.set_identity("another").await;
    }

    async fn rewind(&self, shard: Shard, writes: usize) {
        let mut tape = self.tape(shard).lock().await;
        tape.undo(writes).await;
        let own = tape.own_identity().await;
        tape.set_identity(&own).await;
    }

    async fn flush(&self, shard: Shard) {
        self.tape(shard).lock().await.clear().await;
    }
}
