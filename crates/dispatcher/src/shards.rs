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

impl ShardStatus {
    /// Of a shard that was not looked at yet.
    fn unknown() -> Self {
        Self {
            version: Version::ZERO,
            settling: false,
            people: 0,
            rooms: 0,
            lag: 0,
            agreed: Instant::now(),
            gateways: 0,
            current: false,
        }
    }
}

#[derive(Default)]
struct Table {
    tasks: HashMap<Shard, mpsc::Sender<Ask>>,
    warm: BTreeSet<Shard>,
    status: BTreeMap<Shard, ShardStatus>,
    /// The ring with this node on it was seen: `warm` is what it gives us.
    placed: bool,
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
        self.follow(&mut table, shard).try_send(ask).is_ok()
    }

    /// Asks only a shard that is followed already.
    pub(crate) fn tell(&self, shard: Shard, ask: Ask) {
        if let Some(task) = self.table().tasks.get(&shard) {
            let _ = task.try_send(ask);
        }
    }

    /// The task of a shard, which is known as not current until it has looked.
    fn follow<'t>(self: &Arc<Self>, table: &'t mut Table, shard: Shard) -> &'t mpsc::Sender<Ask> {
        let status = table.status.entry(shard);
        status.or_insert_with(ShardStatus::unknown);
        let task = table.tasks.entry(shard);
        task.or_insert_with(|| self.start(shard))
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
            self.follow(&mut table, *shard);
        }
        table.warm = warm;
        table.placed |= names.contains(&node);
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

    pub(crate) fn placed(&self) -> bool {
        self.table().placed
    }
}

#[cfg(test)]
mod tests {
    use adsum_core::{NodeId, membership::Member};
    use adsum_store::{MemoryStore, Options};

    use super::*;

    fn members(nodes: &[&str]) -> Members {
        let member = |node: &&str| {
            let node = NodeId::new(*node).unwrap();
            let member = Member {
                node: node.clone(),
                address: String::new(),
                roles: vec![Role::Dispatcher],
                zone: String::new(),
                version: String::new(),
            };
            (node, Arc::new(member))
        };
        Members {
            nodes: nodes.iter().map(member).collect(),
            stale: false,
        }
    }

    #[tokio::test]
    async fn no_shard_is_taken_for_none_before_the_ring_is_seen() {
        let cancel = CancellationToken::new();
        let shards = Shards::new(
            Arc::new(MemoryStore::embedded(Options::default())),
            Arc::default(),
            Arc::default(),
            cancel.clone(),
            TaskTracker::new(),
        );
        assert!(!shards.placed());
        shards.keep_warm("here", &members(&["there"]));
        assert!(!shards.placed(), "a ring without this node says nothing");

        shards.keep_warm("here", &members(&["here", "there"]));
        // No task has run yet: all of them are awaited.
        let status = shards.status();
        assert!(shards.placed() && status.len() == usize::from(shards.store.shards()));
        assert!(status.values().all(|s| !s.current));
        cancel.cancel();
    }
}
