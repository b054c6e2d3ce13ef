//! What a reaper says of itself: for metrics, `/readyz` and the `shards` command.

use std::collections::BTreeMap;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::store::{Fence, Shard};
use tokio::time::Instant;

/// A reaper as it is now. The totals count since it was made.
#[derive(Debug, Clone, Default)]
pub struct ReaperStatus {
    /// The node it reaps as, while there is a lease.
    pub node: Option<NodeId>,
    /// The registry can't be reached: members are only remembered, and nothing is handed over.
    pub stale: bool,
    /// Nodes that reap, this one included; without those that are passed over.
    pub candidates: usize,
    /// How many shards the placement gives to this node.
    pub placed: usize,
    /// The shards it was elected for and has not given up.
    pub shards: BTreeMap<Shard, ShardStatus>,
    /// Elections won.
    pub elections: u64,
    /// Shards handed over because the placement gives them to another node.
    pub handovers: u64,
    /// Shards lost: the lease ended, or another node was elected.
    pub losses: u64,
    /// Sweeps that were accepted.
    pub sweeps: u64,
    /// Sessions closed.
    pub closed: u64,
    /// Sweeps refused by the fence.
    pub refusals: u64,
    /// Calls that the store or the membership did not answer, or answered with an error.
    pub errors: u64,
}

/// One shard of a reaper.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShardStatus {
    /// The right to sweep, once claimed.
    pub fence: Option<Fence>,
    /// Why nothing is being closed; `None` while it sweeps.
    pub idle: Option<Idle>,
    /// The last sweep that was accepted.
    pub last: Option<LastSweep>,
    /// Sessions closed in this tenure.
    pub closed: u64,
}

/// A sweep that was accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastSweep {
    /// The shard's clock, ms.
    pub at: u64,
    /// When it was answered.
    pub answered: Instant,
    /// How long the answer took.
    pub took: Duration,
    /// Sessions closed.
    pub closed: u64,
}

/// Why a shard, or a whole reaper, closes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// The lease is not certain to live.
    NoLease,
    /// It has not been proved since that this node is still elected.
    Unproved,
    /// No fence yet.
    Unclaimed,
    /// The store does not answer, or answers with an error.
    Store,
    /// The shard's epoch has not settled: sweeps are accepted and close nothing.
    Settling,
    /// It is being given up.
    Leaving,
}

impl Idle {
    /// The word used in every interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLease => "no_lease",
            Self::Unproved => "unproved",
            Self::Unclaimed => "unclaimed",
            Self::Store => "store",
            Self::Settling => "settling",
            Self::Leaving => "leaving",
        }
    }
}

impl ReaperStatus {
    /// Why nothing at all is being closed; `None` while some shard is swept, or there is none to
    /// sweep. With several reasons the first in the order of [`Idle`].
    #[must_use]
    pub fn idle(&self) -> Option<Idle> {
        if self.node.is_none() {
            return Some(Idle::NoLease);
        }
        let reasons: Option<Vec<Idle>> = self.shards.values().map(|shard| shard.idle).collect();
        reasons?.into_iter().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reaper_is_idle_only_if_all_its_shards_are() {
        let mut status = ReaperStatus::default();
        assert_eq!(status.idle(), Some(Idle::NoLease));
        status.node = NodeId::new("one").ok();
        assert_eq!(status.idle(), None);
        for (shard, idle) in [(1, Idle::Settling), (2, Idle::Store)] {
            let idle = Some(idle);
            status.shards.insert(
                shard,
                ShardStatus {
                    idle,
                    ..ShardStatus::default()
                },
            );
        }
        assert_eq!(status.idle(), Some(Idle::Store));
        status.shards.insert(3, ShardStatus::default());
        assert_eq!(status.idle(), None);
    }
}
