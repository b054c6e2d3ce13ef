//! Sessions in Redis: a cluster, or one server. The rules are the Lua functions in `lua/`; here is
//! what calls them, tries again, and reads their answers.

mod answers;
mod call;
mod check;
mod cluster;
mod config;
mod connection;
mod errors;
mod functions;
mod head;
mod link;
mod operations;
mod pool;
mod queue;
mod reads;
mod run;
mod subscribe;
mod together;
mod topology;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use adsum_core::{
    ring::ShardRing,
    store::{Result, Shard, StoreError},
};
pub use config::RedisConfig;

use self::{
    call::Caller, cluster::Cluster, connection::Dialer, subscribe::Hub, together::Together,
};
use crate::{Keys, Options};

/// Sessions in Redis. Its handles are callers that share their connections.
#[derive(Debug, Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
    options: Arc<Options>,
    ring: Arc<ShardRing>,
    /// The highest epoch of each shard that this handle saw.
    seen: Arc<[AtomicU64]>,
    /// What goes to each shard next.
    together: Arc<[Together]>,
}

/// What all handles share.
#[derive(Debug)]
struct Shared {
    config: RedisConfig,
    keys: Box<[Keys]>,
    caller: Caller,
    /// Connections of their own for writes that wait for replicas: the wait blocks them.
    waiter: Caller,
    /// How many replicas such a write waits for.
    replicas: usize,
    hub: Hub,
}

impl RedisStore {
    /// Connects; finds out whether the server is part of a cluster.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the configuration or the credentials are wrong,
    /// [`StoreError::Unavailable`] when nobody answers before the deadline.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        let shards = config.options.shards;
        if shards == 0 {
            return Err(StoreError::Refused(
                "a store needs at least one shard".into(),
            ));
        }
        let dialer = Arc::new(Dialer::find(&config).await?);
        let cluster = call::retry(config.deadline, || Cluster::learn(dialer.clone())).await?;
        let shared = Shared {
            keys: Keys::of_all(&config.cluster, config.layout, shards).into(),
            caller: Caller::new(cluster.clone(), &config),
            waiter: Caller::new(cluster.clone(), &config),
            replicas: config.replicas.unwrap_or(usize::from(dialer.is_cluster())),
            hub: Hub::new(cluster, &config),
            config,
        };
        let options = shared.config.options.clone();
        Ok(Self::over(Arc::new(shared), options))
    }

    /// Another caller over the same connections, which has seen no epoch yet.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self {
            seen: for_each(&self.shared),
            together: for_each(&self.shared),
            ..self.clone()
        }
    }

    /// Another caller of the same keys that is configured otherwise, as a node by mistake is.
    #[must_use]
    pub fn handle_with(&self, options: Options) -> Self {
        Self::over(self.shared.clone(), options)
    }

    /// Whether the servers form a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.shared.caller.is_cluster()
    }

    fn over(shared: Arc<Shared>, options: Options) -> Self {
        Self {
            ring: Arc::new(ShardRing::new(options.shards)),
            options: Arc::new(options),
            seen: for_each(&shared),
            together: for_each(&shared),
            shared,
        }
    }

    fn keys(&self, shard: Shard) -> Result<&Keys> {
        let keys = self.shared.keys.get(usize::from(shard));
        keys.ok_or_else(|| StoreError::Refused(format!("there is no shard {shard}")))
    }

    fn remember(&self, shard: Shard, epoch: u64) {
        if let Some(seen) = self.seen.get(usize::from(shard)) {
            seen.fetch_max(epoch, Relaxed);
        }
    }

    fn seen(&self, shard: Shard) -> u64 {
        self.seen
            .get(usize::from(shard))
            .map_or(0, |seen| seen.load(Relaxed))
    }
}

/// A new one of something for each shard.
fn for_each<T: Default>(shared: &Shared) -> Arc<[T]> {
    shared.keys.iter().map(|_| T::default()).collect()
}
