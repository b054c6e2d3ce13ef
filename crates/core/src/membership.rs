//! The contract of a membership: who is in the cluster, and who is elected for what. A local
//! one serves the embedded default, etcd serves a cluster.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::NodeId;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Holds client connections.
    Gateway,
    /// Serves views of shards.
    Dispatcher,
    /// Sweeps shards.
    Reaper,
}

impl Role {
    /// The word used in every interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Dispatcher => "dispatcher",
            Self::Reaper => "reaper",
        }
    }
}

/// A node as others know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id; a node that lost its lease comes back as another one.
    pub node: NodeId,
    /// Where its feed listens, `host:port`.
    pub address: String,
    /// What it does.
    pub roles: Vec<Role>,
    /// Where it stands: shown to others, and in telemetry.
    #[serde(default)]
    pub zone: String,
    /// The release it runs.
    #[serde(default)]
    pub version: String,
}

/// All live members, and whether that is known now or only remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// By node.
    pub nodes: BTreeMap<NodeId, Arc<Member>>,
    /// The registry can't be reached: this is how it was last known.
    pub stale: bool,
}

impl Members {
    /// The nodes with a role, in the order of their ids.
    pub fn with(&self, role: Role) -> impl Iterator<Item = &Arc<Member>> {
        self.nodes.values().filter(move |m| m.roles.contains(&role))
    }
}

/// What a membership can't do, and whether to try again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MembershipError {
    /// The registry does not answer; try again.
    #[error("the membership registry can't be reached: {0}")]
    Unavailable(String),
    /// The lease is gone: this node is no member until it has joined again.
    #[error("this node's lease has ended")]
    LeaseLost,
    /// Refused by the registry; trying again does not help.
    #[error("the membership registry refused: {0}")]
    Refused(String),
}

impl MembershipError {
    /// Whether trying again can help.
    #[must_use]
    pub const fn retry(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// Who owns the reaping of each shard, as far as is known.
pub type Owners = BTreeMap<u16, NodeId>;

/// Liveness and election.
///
/// Every stream gives the current value first and then the latest one after each change; a slow
/// reader misses what was overtaken, never the last one.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// The node id under the current lease; a new one after a lease was lost. Between the two it
    /// is still the old one, with [`lease_left`](Self::lease_left) zero.
    fn node(&self) -> NodeId;

    /// The node id while there is a lease, `None` while there is none.
    fn watch_node(&self) -> BoxStream<'static, Option<NodeId>>;

    /// The members as last known.
    fn members(&self) -> Arc<Members>;

    /// The current members, and then every change of them.
    fn watch(&self) -> BoxStream<'static, Arc<Members>>;

    /// The elected reapers as last known.
    fn owners(&self) -> Arc<Owners>;

    /// The elected reapers as last known, and then every change.
    fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>>;

    /// Tries to become the reaper of a shard under this node's lease: `true` if it now is, also
    /// when it was already. Never waits for another owner to go.
    ///
    /// # Errors
    /// When the registry can't be asked. The shard may be this node's all the same: the owners
    /// will tell, and campaigning again is safe.
    async fn campaign(&self, shard: u16) -> Result<bool, MembershipError>;

    /// Proves, with a linearizable read, that this node is the shard's reaper right now.
    ///
    /// # Errors
    /// When the registry can't be asked, or this node has no lease: nothing is proved then.
    async fn prove(&self, shard: u16) -> Result<bool, MembershipError>;

    /// Gives a shard up at once; nothing happens when it is not this node's.
    ///
    /// # Errors
    /// When the registry can't be asked. The shard is free when the lease ends, at the latest.
    async fn resign(&self, shard: u16) -> Result<(), MembershipError>;

    /// How long the lease is certain to live still, judged by this node's clock: zero when it
    /// can't be proved. Once zero it stays zero until this node has another id.
    fn lease_left(&self) -> std::time::Duration;

    /// Leaves the cluster for good: resigns everything and ends the lease. Members and owners
    /// can still be read.
    ///
    /// # Errors
    /// When the registry can't be told: the lease then ends by itself. It is not renewed in any
    /// case, and this node is no member any more.
    async fn leave(&self) -> Result<(), MembershipError>;
}
