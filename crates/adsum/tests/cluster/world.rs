//! What a test of the cluster stands on: Redis, etcd, nodes, and a hand on the store that does
//! what gateways do.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::{
    Conn, DeviceId, Incarnation, Membership, RoomId, SessionKey, Stamp, State, TenantId, UserId,
    UserKey,
    store::{Lease, Open, Opened, Shard, Store},
};
use adsum_store::{Options, RedisConfig, RedisStore};
use adsum_tests::{EtcdCluster, Node, NodeOptions, RedisCluster, TestDir, eventually};
use anyhow::{Context, Result, ensure};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The shards of every test here, unless it says otherwise.
pub(crate) const SHARDS: Shard = 64;
/// The holders' deadline of [`NodeOptions::fast`].
pub(crate) const HOLDER: Duration = Duration::from_millis(3000);
/// The lease of [`NodeOptions::fast`].
pub(crate) const LEASE: Duration = Duration::from_millis(2000);

/// Tests here measure times, and a machine may have two cores: one at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// A cluster without nodes yet.
pub(crate) struct World {
    pub(crate) redis: RedisCluster,
    pub(crate) etcd: EtcdCluster,
    pub(crate) dir: TestDir,
    /// Given up last, when all processes are gone.
    _turn: SemaphorePermit<'static>,
}

impl World {
    pub(crate) async fn new(name: &str) -> Result<Self> {
        let _turn = TURN.acquire().await?;
        let redis = RedisCluster::start(3, 1).await?;
        let etcd = EtcdCluster::start(3).await?;
        Ok(Self {
            _turn,
            redis,
            etcd,
            dir: TestDir::new(name)?,
        })
    }

    /// The options of a node of this cluster.
    pub(crate) fn options(&self, name: &str, roles: &str) -> NodeOptions {
        NodeOptions::fast(env!("CARGO_BIN_EXE_adsum"), name, roles)
            .in_cluster(&self.redis.urls(), &self.etcd.endpoints())
    }

    /// Starts a node of this cluster.
    pub(crate) async fn node(&self, name: &str, roles: &str) -> Result<Node> {
        Node::start(self.dir.path(), &self.options(name, roles)).await
    }

    /// A caller of the store with the nodes' times.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>> {
        self.store_with(|_| {}).await
    }

    /// The same, for nodes with other settings.
    pub(crate) async fn store_with(
        &self,
        change: impl FnOnce(&mut Options),
    ) -> Result<Arc<dyn Store>> {
        let mut options = Options {
            shards: SHARDS,
            holder_ms: 3000,
            settle_ms: 4500,
            alive_gap_ms: 1000,
            tomb_ms: 6000,
            max_deadline_ms: 12_000,
            ..Options::default()
        };
        change(&mut options);
        let config = RedisConfig {
            options,
            ..RedisConfig::new(self.redis.urls())
        };
        let store = RedisStore::connect(config).await?;
        store.check().await?;
        Ok(Arc::new(store))
    }
}

/// Waits until every shard was born and has settled.
pub(crate) async fn settled(store: &dyn Store) -> Result<()> {
    eventually(
        "all shards have settled",
        Duration::from_secs(60),
        || async {
            for shard in 0..store.shards() {
                let position = store.log(shard, 0, 0).await?.position;
                let position = position.with_context(|| format!("shard {shard} was not born"))?;
                ensure!(!position.settling, "shard {shard} settles");
            }
            Ok(())
        },
    )
    .await
}

/// The session of a numbered user.
pub(crate) fn key(n: u64) -> Result<SessionKey> {
    let owner = UserKey::new(TenantId::new("acme")?, UserId::new(format!("user-{n}"))?);
    Ok(SessionKey::new(owner, DeviceId::new("web")?))
}

/// A state in these rooms.
pub(crate) fn state(rooms: &[&str]) -> Result<State> {
    let stay = |room: &&str| Ok((RoomId::new(*room)?, Membership::default()));
    Ok(State {
        rooms: rooms.iter().map(stay).collect::<Result<_>>()?,
        ..State::default()
    })
}

/// Opens a session under a holder, as a gateway would.
pub(crate) async fn open(
    store: &dyn Store,
    holder: &Incarnation,
    key: SessionKey,
    stamp: (u64, u64),
    state: State,
) -> Result<()> {
    let stamp = Stamp {
        conn: Conn::new(stamp.0)?,
        rev: stamp.1,
    };
    let holder = holder.clone();
    let op = Open {
        key,
        holder,
        stamp,
        state,
        opened_at: 0,
        prefs: None,
        origin: None,
    };
    let answer = store.open(op).await?;
    ensure!(matches!(answer.value, Opened::Ok { .. }), "{answer:?}");
    Ok(())
}

/// Renews a holder in every shard, for good.
pub(crate) async fn renew_for_good(store: Arc<dyn Store>, holder: Incarnation) {
    let mut tick = tokio::time::interval(HOLDER / 6);
    loop {
        tick.tick().await;
        let all = (0..store.shards()).map(|shard| store.renew(shard, &holder, Lease::Usual));
        futures::future::join_all(all).await;
    }
}
