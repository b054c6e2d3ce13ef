//! Which shards have a task here: those the ring gives us, and those somebody asked for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use adsum_core::{
    Version,
    membership::{Members, Role},
    ring::Placement,
    store::{Shard, Store},
};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::DispatcherConfig,
    interest::Interest,
    shard::{Ask, ShardTask},
};

/// Asks waiting for one shard; more than that means that it hangs, and then asking fails.
const ASKS: usize = 1024;

/// How a shard stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardStatus {
    /// The last change in the view.
    pub version: Version,
    /// Absence means nothing yet.
    pub settling: bool,
    /// People in the view.
    pub people: usize,
    /// Rooms with somebody in them.
    pub rooms: usize,
    /// Changes that the last look found in the log and not in the view.
    pub lag: u64,
    /// When the log was last seen to agree with the view.
    pub agreed: Instant,
    /// Gateways served.
    pub gateways: usize,
    /// The last look at the store succeeded.
    pub current: bool,
}

#[derive(Default)]
struct Table {
    tasks: HashMap<Shard, mpsc::Sender<Ask>>,
    warm: BTreeSet<Shard>,
    status: BTreeMap<Shard, ShardStatus>,
}

/// The tasks of all shards that are followed here.
pub(crate) struct Shards {
    store: Arc<dyn Store>,
    config: Arc<DispatcherConfig>,
    interest: Arc<Interest>,
    cancel: CancellationToken,
    tracker: TaskTracker,
    /// Looks at the shards keep time from here.
    pub(crate) began: tokio::time::Instant,
    table: Mutex<Table>,
}

impl Shards {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        config: Arc<DispatcherConfig>,
        interest: Arc<Interest>,
        cancel: CancellationToken,
        tracker: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            config,
            interest,
            cancel,
            tracker,
            began: tokio::time::Instant::now(),
            table: Mutex::default(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a shard, which is started if need be; `false` if it does not keep up. Never waits.
    pub(crate) fn ask(self: &Arc<Self>, shard: Shard, ask: Ask) -> bool {
        let mut table = self.table();
        let task = table
            .tasks
            .entry(shard)
            .or_insert_with(|| self.start(shard));
        task.try_send(ask).is_ok()
    }

    /// Asks only a shard that is followed already.
    pub(crate) fn tell(&self, shard: Shard, ask: Ask) {
        if let Some(task) = self.table().tasks.get(&shard) {
            let _ = task.try_send(ask);
        }
    }

    fn start(self: &Arc<Self>, shard: Shard) -> mpsc::Sender<Ask> {
        let (asks, inbox) = mpsc::channel(ASKS);
        let (store, config) = (self.store.clone(), self.config.clone());
        let task = ShardTask::new(shard, store, config, self.interest.clone(), self.clone());
        self.tracker
            .spawn(task.run(inbox, self.cancel.child_token()));
        asks
    }

    /// Keeps views of the shards where `node` is among the first on the ring.
    pub(crate) fn keep_warm(self: &Arc<Self>, node: &str, members: &Members) {
        let names: Vec<_> = members
            .with(Role::Dispatcher)
            .map(|m| m.node.as_str())
            .collect();
        let placement = Placement::new(self.store.shards(), &names);
        let ours = |shard: &Shard| {
            placement
                .order(*shard)
                .take(self.config.replicas)
                .any(|n| names[n] == node)
        };
        let warm: BTreeSet<_> = (0..self.store.shards()).filter(ours).collect();
        let mut table = self.table();
        for shard in &warm {
            table
                .tasks
                .entry(*shard)
                .or_insert_with(|| self.start(*shard));
        }
        table.warm = warm;
    }

    /// Lets an idle shard go. Decided under the lock under which it is asked, so that no ask is
    /// lost.
    pub(crate) fn retire(&self, shard: Shard, asks: &mpsc::Receiver<Ask>) -> bool {
        let mut table = self.table();
        if table.warm.contains(&shard) || !asks.is_empty() {
            return false;
        }
        table.tasks.remove(&shard);
        table.status.remove(&shard);
        true
    }

    pub(crate) fn report(&self, shard: Shard, status: ShardStatus) {
        self.table().status.insert(shard, status);
    }

    pub(crate) fn status(&self) -> BTreeMap<Shard, ShardStatus> {
        self.table().status.clone()
    }
}
