//! Which nodes are responsible for a shard, as this node knows the cluster.

use std::sync::Arc;

use adsum_core::{
    NodeId,
    membership::{Member, Owners, Role},
    ring::Placement,
    store::Shard,
};

use super::Parts;

/// The cluster at one moment.
pub(super) struct Responsible {
    dispatchers: Vec<Arc<Member>>,
    placement: Placement,
    replicas: usize,
    reapers: Arc<Owners>,
}

impl Responsible {
    pub(super) fn now(parts: &Parts) -> Self {
        let members = parts.membership.members();
        let dispatchers: Vec<_> = members.with(Role::Dispatcher).cloned().collect();
        let names: Vec<_> = dispatchers.iter().map(|m| m.node.as_str()).collect();
        Self {
            placement: Placement::new(parts.store.shards(), &names),
            dispatchers,
            replicas: parts.config.bounds.feed_replicas,
            reapers: parts.membership.owners(),
        }
    }

    /// Those that keep a view of it, the first one first.
    pub(super) fn dispatchers(&self, shard: Shard) -> Vec<NodeId> {
        let order = self.placement.order(shard).take(self.replicas);
        order
            .filter_map(|n| Some(self.dispatchers.get(n)?.node.clone()))
            .collect()
    }

    /// The one that sweeps it.
    pub(super) fn reaper(&self, shard: Shard) -> Option<NodeId> {
        self.reapers.get(&shard).cloned()
    }
}
