//! A cluster of reapers in one process, and what is asked of it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adsum_cluster::{LocalCluster, Profile};
use adsum_core::membership::{Membership, Role};
use adsum_core::store::{Fence, Open, Opened, Shard, Store, Touch};
use adsum_core::{
    Conn, DeviceId, Event, Incarnation, NodeId, SessionKey, Stamp, State, TenantId, UserId, UserKey,
};
use adsum_reaper::{Reaper, ReaperConfig, ReaperStatus};
use adsum_store::{MemoryStore, Options};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::spies::{Asked, Record, SpyMembership, SpyStore};
use crate::waits::{LIMIT, until};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn options(shards: Shard) -> Options {
    Options {
        shards,
        // Longer than any test needs to open the sessions of one holder.
        holder_ms: 1_500,
        settle_ms: 200,
        log_len: 1_000_000,
        log_max_bytes: 1 << 30,
        ..Options::default()
    }
}

/// Short times; the grace is the usual one.
pub(crate) fn config(shards: Shard) -> ReaperConfig {
    ReaperConfig {
        shards,
        sweep_interval: ms(100),
        sweep_pause: ms(10),
        lease_poll: ms(20),
        handover_after: ms(20),
        handover_interval: ms(5),
        backoff: ms(10),
        backoff_max: ms(100),
        ..ReaperConfig::default()
    }
}

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) cluster: LocalCluster,
    pub(crate) record: Record,
    pub(crate) config: ReaperConfig,
    pub(crate) work: Duration,
}

pub(crate) struct Node {
    pub(crate) store: Arc<SpyStore>,
    pub(crate) membership: Arc<SpyMembership>,
    pub(crate) status: watch::Receiver<ReaperStatus>,
    pub(crate) cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    pub(crate) fn new(config: ReaperConfig) -> Self {
        Self {
            store: MemoryStore::embedded(options(config.shards)),
            cluster: LocalCluster::new(),
            record: Record::default(),
            config,
            work: Duration::ZERO,
        }
    }

    /// A node whose reaper has not started.
    pub(crate) fn join(&self, name: &str) -> (Arc<SpyStore>, Arc<SpyMembership>) {
        let profile = Profile {
            name: name.into(),
            roles: vec![Role::Reaper],
            ..Profile::default()
        };
        let store = SpyStore {
            inner: self.store.handle(),
            name: name.into(),
            record: Arc::clone(&self.record),
            held_up: watch::Sender::new(None),
            work: self.work,
            deaf: AtomicBool::new(false),
        };
        let membership = SpyMembership {
            inner: self.cluster.join(profile).unwrap(),
            name: name.into(),
            record: Arc::clone(&self.record),
            left: Mutex::new(None),
        };
        (Arc::new(store), Arc::new(membership))
    }

    pub(crate) fn run(&self, (store, membership): (Arc<SpyStore>, Arc<SpyMembership>)) -> Node {
        let reaper = Reaper::new(store.clone(), membership.clone(), self.config.clone());
        let (status, cancel) = (reaper.status(), CancellationToken::new());
        let task = tokio::spawn(reaper.run(cancel.clone()));
        Node {
            store,
            membership,
            status,
            cancel,
            task,
        }
    }

    pub(crate) fn start(&self, name: &str) -> Node {
        self.run(self.join(name))
    }

    pub(crate) fn user(&self, name: &str) -> UserKey {
        UserKey::new(TenantId::new("acme").unwrap(), UserId::new(name).unwrap())
    }

    /// Users of a shard, as many as wanted.
    pub(crate) fn users_of(&self, shard: Shard, stem: &str) -> impl Iterator<Item = UserKey> {
        let users = (0..).map(move |n| self.user(&format!("{stem}-{n}")));
        users.filter(move |user| self.store.shard_of(user) == shard)
    }

    /// A session held by a gateway that renews nothing: gone after `holder_ms`.
    pub(crate) async fn open(&self, user: UserKey, holder: &str) {
        let open = Open {
            key: SessionKey::new(user, DeviceId::new("phone").unwrap()),
            holder: Incarnation::new(holder).unwrap(),
            stamp: Stamp {
                conn: Conn::new(1).unwrap(),
                rev: 1,
            },
            state: State::default(),
            opened_at: 0,
            prefs: None,
            origin: None,
        };
        let opened = self.store.open(open).await.unwrap().value;
        assert!(matches!(opened, Opened::Ok { .. }), "{opened:?}");
    }

    /// A session that holds itself; answers its deadline.
    pub(crate) async fn touch(&self, user: UserKey, ttl_ms: u64) -> u64 {
        let touch = Touch {
            key: SessionKey::new(user, DeviceId::new("phone").unwrap()),
            stamp: Stamp {
                conn: Conn::new(1).unwrap(),
                rev: 1,
            },
            state: State::default(),
            ttl_ms,
            sessions_max: 100,
            origin: None,
        };
        self.store.touch(vec![touch]).await.unwrap()[0].at + ttl_ms
    }

    /// Who left, when by the shard's clock, and how often it was told.
    pub(crate) async fn departures(&self) -> BTreeMap<UserKey, Vec<u64>> {
        let mut left: BTreeMap<UserKey, Vec<u64>> = BTreeMap::new();
        for shard in 0..self.config.shards {
            let page = self.store.log(shard, 0, usize::MAX >> 1).await.unwrap();
            for change in page.entries {
                if let Event::Session {
                    owner, after: None, ..
                } = change.event
                {
                    left.entry(owner).or_default().push(change.at);
                }
            }
        }
        left
    }

    pub(crate) fn asked(&self) -> Vec<(String, Asked)> {
        self.record.lock().unwrap().clone()
    }

    /// At no time were there two accepted sweepers: fences only go up, and each is one node's.
    pub(crate) fn assert_single(&self) {
        let mut highest: BTreeMap<Shard, (Fence, String)> = BTreeMap::new();
        for (name, asked) in self.asked() {
            if let Asked::Sweep(shard, fence, Some(_)) = asked {
                if let Some((last, owner)) = highest.get(&shard) {
                    assert!(fence >= *last, "shard {shard}: {fence:?} after {last:?}");
                    assert!(
                        fence != *last || name == *owner,
                        "shard {shard}: {name}, {owner}"
                    );
                }
                highest.insert(shard, (fence, name));
            }
        }
    }
}

impl Node {
    pub(crate) fn id(&self) -> NodeId {
        self.membership.node()
    }

    /// Stops everything at once, and ends the lease as time would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
        self.membership.leave().await.unwrap();
    }

    /// Drains the reaper; the node stays a member.
    pub(crate) async fn drain(self) -> Arc<SpyMembership> {
        self.cancel.cancel();
        timeout(LIMIT, self.task).await.unwrap().unwrap();
        self.membership
    }

    pub(crate) async fn until(&self, wanted: impl Fn(&ReaperStatus) -> bool) -> ReaperStatus {
        until(&self.status, wanted).await
    }
}
