//! Where one shard comes from, and how far it has come.

use std::collections::{HashMap, HashSet};

use adsum_core::{NodeId, Version};
use adsum_proto::TopicKey;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Route {
    pub(super) source: Option<Source>,
    /// The one to go (back) to, once it has shown that it is as far as the source.
    pub(super) next: Option<Next>,
    /// The last mark. Everything up to here has come, but for the parts that are awaited.
    pub(super) cursor: Option<Version>,
    pub(super) settling: bool,
    /// Dispatchers that were silent about this shard, and until when to avoid them.
    pub(super) silent: HashMap<NodeId, Instant>,
    /// When a part last came, or was asked for.
    pub(super) parts_at: Instant,
    /// When somebody last showed to be up to date.
    pub(super) proved_at: Instant,
    pub(super) stale: bool,
    /// When to look for a better source than this one.
    pub(super) return_at: Option<Instant>,
    pub(super) returns_failed: u32,
}

/// The dispatcher that serves the shard.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) node: NodeId,
    /// When it was asked, or gave its last mark; `None` while the link is not up.
    pub(super) heard: Option<Instant>,
    /// It has given a mark.
    pub(super) proved: bool,
}

#[derive(Debug)]
pub(super) struct Next {
    pub(super) node: NodeId,
    pub(super) taken: bool,
    pub(super) until: Instant,
    /// Topics whose part it has not sent yet.
    pub(super) awaiting: HashSet<TopicKey>,
}

impl Route {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            source: None,
            next: None,
            cursor: None,
            settling: false,
            silent: HashMap::new(),
            parts_at: now,
            proved_at: now,
            stale: false,
            return_at: None,
            returns_failed: 0,
        }
    }

    /// The source or the next one.
    pub(super) fn uses(&self, node: &NodeId) -> bool {
        self.comes_from(node) || self.goes_to(node)
    }

    pub(super) fn comes_from(&self, node: &NodeId) -> bool {
        self.source.as_ref().is_some_and(|s| s.node == *node)
    }

    pub(super) fn goes_to(&self, node: &NodeId) -> bool {
        self.next.as_ref().is_some_and(|n| n.node == *node)
    }

    /// Those who have been asked to serve the shard.
    pub(super) fn asked(&self) -> impl Iterator<Item = &NodeId> {
        let source = self.source.iter().filter(|s| s.heard.is_some());
        let next = self.next.iter().filter(|n| n.taken);
        source.map(|s| &s.node).chain(next.map(|n| &n.node))
    }

    /// Whether a mark at this version is as far as we are.
    pub(super) fn reached(&self, version: Version) -> bool {
        self.cursor.is_none_or(|cursor| version >= cursor)
    }
}
