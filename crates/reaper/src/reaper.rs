//! The reaper as the binary sees it, and what its tasks share.

use std::fmt;
use std::sync::Arc;

use adsum_core::NodeId;
use adsum_core::membership::Membership;
use adsum_core::store::Store;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{ReaperConfig, ReaperStatus, control::Control};

/// Sweeps the shards that this node is elected for.
pub struct Reaper {
    shared: Arc<Shared>,
}

/// What the tasks of one reaper share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) config: ReaperConfig,
    pub(crate) status: watch::Sender<ReaperStatus>,
    /// This node's id, as `control` last heard of it; wakes sweepers that wait for a lease.
    pub(crate) node: watch::Sender<Option<NodeId>>,
    /// What the beats of sweeps are counted from.
    pub(crate) began: Instant,
    /// Turns at the store: first come, first served.
    pub(crate) turns: Semaphore,
    /// Turns at the registry.
    pub(crate) elections: Semaphore,
}

impl Reaper {
    /// A reaper that does nothing until it is [run](Self::run).
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        membership: Arc<dyn Membership>,
        config: ReaperConfig,
    ) -> Self {
        let shared = Shared {
            store,
            membership,
            began: Instant::now(),
            status: watch::Sender::default(),
            node: watch::Sender::default(),
            turns: Semaphore::new(config.concurrent_sweeps.max(1)),
            elections: Semaphore::new(config.concurrent_elections.max(1)),
            config,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// What it is doing, followed by every change; it can be kept after the reaper has ended.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<ReaperStatus> {
        self.shared.status.subscribe()
    }

    /// Reaps until cancelled; then finishes running sweeps, resigns all shards at once, and
    /// returns. Dropped instead, it is like a reaper that died: its shards are free when the
    /// lease ends.
    pub async fn run(self, cancel: CancellationToken) {
        let (configured, stored) = (self.shared.config.shards, self.shared.store.shards());
        if configured != stored {
            tracing::error!(
                configured,
                stored,
                "the reaper and the store disagree on the shards"
            );
        }
        Control::new(self.shared).run(cancel).await;
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("status", &*self.shared.status.borrow())
            .finish_non_exhaustive()
    }
}
