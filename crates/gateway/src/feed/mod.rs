//! The gateway's side of the feed: watches topics in rosters that are put together from the
//! shards' dispatchers, and kept right while those come and go.
//!
//! [`Feed::watch`] is all that the edge needs. Below it: `topic` (a roster and its watchers),
//! `link` (a stream from a dispatcher), `router` (which dispatcher serves which shard; no IO) and
//! `driver` (the task around it).

mod config;
mod connect;
mod contacts;
mod driver;
mod frames;
mod interest;
mod link;
mod metrics;
mod moves;
mod peers;
mod route;
mod router;
mod shard_set;
mod shared;
mod topic;
mod topics;
mod watch;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use adsum_core::{
    Change, TenantId, Topic, UserId, UserKey, membership::Membership, ring::ShardRing, store::Shard,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub use config::{BadConfig, FeedConfig};
pub use connect::{ConnectError, Connector, memory, tcp};
pub use metrics::{Count, FeedMetrics};
pub use shared::{Observe, OnCheck};
pub use watch::{Cause, Causes, Picture, TopicDiff, TopicEvent, Watch};

/// Everything that this gateway watches. Clones are the same feed; it stops with the last one.
#[derive(Clone)]
pub struct Feed {
    shared: Arc<shared::Shared>,
    stop: CancellationToken,
    _stops_with_the_last: Arc<DropGuard>,
    tasks: TaskTracker,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl Feed {
    /// Begins to take all shards from the live dispatchers. Every new epoch that a frame shows
    /// is told to `observe`. To be called inside a runtime.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn start(
        config: FeedConfig,
        ring: ShardRing,
        membership: Arc<dyn Membership>,
        connector: Connector,
        observe: Observe,
    ) -> Result<Self, BadConfig> {
        config.check()?;
        let shared = Arc::new(shared::Shared::new(Arc::new(config), ring, observe));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        driver::Driver::spawn(
            Arc::clone(&shared),
            membership,
            connector,
            stop.clone(),
            &tasks,
        );
        tasks.close();
        Ok(Self {
            shared,
            _stops_with_the_last: Arc::new(stop.clone().drop_guard()),
            stop,
            tasks,
        })
    }

    /// Tells of sessions that were changed elsewhere, from now on. Only the first caller is told.
    pub fn on_check(&self, tell: OnCheck) {
        let _ = self.shared.check.set(tell);
    }

    /// Takes a change that this gateway has committed itself, and that says all there is to say of
    /// its owner, before a dispatcher tells it: those who watch here need not wait for that.
    pub fn foresee(&self, shard: Shard, change: &Change) {
        self.shared.foresee(shard, change);
    }

    /// Watches a topic. All watchers of one topic share one roster and one subscription.
    #[must_use]
    pub fn watch(&self, tenant: TenantId, topic: Topic) -> Watch {
        self.shared.topics.watch((tenant, topic))
    }

    /// Whom a user's list of contacts of this version names; `None` if it is not known, which
    /// means nobody.
    #[must_use]
    pub fn contacts(
        &self,
        tenant: &TenantId,
        user: &UserId,
        version: u64,
    ) -> Option<Arc<HashSet<UserId>>> {
        let owner = UserKey::new(tenant.clone(), user.clone());
        self.shared.contacts.get(&owner, version)
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<FeedMetrics> {
        &self.shared.metrics
    }

    /// Ends all streams, of dispatchers and of watchers.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// A thread that panicked has left nothing half-done that others would trip over.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
