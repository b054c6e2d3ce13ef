//! The dispatchers: who is alive, who has a link, who failed and is avoided for a while.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use adsum_core::{
    NodeId,
    membership::{Member, Members, Role},
};
use adsum_proto::TopicKey;
use tokio::time::Instant;

use super::link::LinkId;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) member: Arc<Member>,
    /// Still a member. One that is not may go on serving until others have taken over.
    pub(super) live: bool,
    /// When it became a member, or when we first heard of it.
    since: Instant,
    pub(super) stream: Option<Stream>,
    failures: u32,
    avoid_until: Option<Instant>,
}

/// A link as the router sees it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: LinkId,
    pub(super) up: bool,
    /// The topics that were named on it.
    pub(super) known: HashSet<TopicKey>,
    pub(super) unused_since: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    next_link: LinkId,
}

/// Half to the whole of a time, so that gateways don't move in step.
pub(super) fn jitter(time: Duration) -> Duration {
    time.mul_f64(rand::random_range(0.5..=1.0))
}

impl Peers {
    /// Takes the members; `true` if other dispatchers are alive than before.
    pub(super) fn update(&mut self, members: &Members, now: Instant) -> bool {
        let mut changed = false;
        for member in members.with(Role::Dispatcher) {
            let peer = self
                .peers
                .entry(member.node.clone())
                .or_insert_with(|| Peer {
                    member: Arc::clone(member),
                    live: false,
                    since: now,
                    stream: None,
                    failures: 0,
                    avoid_until: None,
                });
            peer.member = Arc::clone(member);
            changed |= !std::mem::replace(&mut peer.live, true);
        }
        for (node, peer) in &mut self.peers {
            let member = members.nodes.get(node);
            if peer.live && !member.is_some_and(|m| m.roles.contains(&Role::Dispatcher)) {
                peer.live = false;
                changed = true;
            }
        }
        self.tidy();
        changed
    }

    /// The ids of those alive, in their order.
    pub(super) fn live(&self) -> Vec<NodeId> {
        let live = self.peers.iter().filter(|(_, p)| p.live);
        live.map(|(node, _)| node.clone()).collect()
    }

    pub(super) fn usable(&self, node: &NodeId, now: Instant) -> bool {
        let peer = self.peers.get(node).filter(|p| p.live);
        peer.is_some_and(|p| p.avoid_until.is_none_or(|until| until <= now))
    }

    pub(super) fn stream(&mut self, node: &NodeId) -> Option<&mut Stream> {
        self.peers.get_mut(node)?.stream.as_mut()
    }

    pub(super) fn up(&self, node: &NodeId) -> bool {
        let stream = self.peers.get(node).and_then(|p| p.stream.as_ref());
        stream.is_some_and(|s| s.up)
    }

    /// Connected, and a member for so long that it has had time to load its views.
    pub(super) fn warm(&self, node: &NodeId, now: Instant, time: Duration) -> bool {
        let peer = self.peers.get(node);
        self.up(node) && peer.is_some_and(|p| now - p.since >= time)
    }

    pub(super) fn node_of(&self, link: LinkId) -> Option<NodeId> {
        let has = |p: &Peer| p.stream.as_ref().is_some_and(|s| s.id == link);
        let found = self.peers.iter().find(|(_, p)| has(p));
        found.map(|(node, _)| node.clone())
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.peers.keys().cloned().collect()
    }

    /// A new link, if there is none.
    pub(super) fn open(&mut self, node: &NodeId) -> Option<(LinkId, Arc<Member>)> {
        let peer = self.peers.get_mut(node).filter(|p| p.stream.is_none())?;
        self.next_link += 1;
        peer.stream = Some(Stream {
            id: self.next_link,
            up: false,
            known: HashSet::new(),
            unused_since: None,
        });
        Some((self.next_link, Arc::clone(&peer.member)))
    }

    pub(super) fn close(&mut self, node: &NodeId) -> Option<LinkId> {
        let stream = self.peers.get_mut(node)?.stream.take();
        self.tidy();
        stream.map(|s| s.id)
    }

    /// The link is gone: avoid its dispatcher, longer each time.
    pub(super) fn failed(&mut self, node: &NodeId, now: Instant, min: Duration, max: Duration) {
        if let Some(peer) = self.peers.get_mut(node) {
            let pause = min.saturating_mul(1 << peer.failures.min(16)).min(max);
            peer.failures += 1;
            peer.avoid_until = Some(now + jitter(pause));
            peer.stream = None;
        }
        self.tidy();
    }

    pub(super) fn proved(&mut self, node: &NodeId) {
        if let Some(peer) = self.peers.get_mut(node) {
            peer.failures = 0;
        }
    }

    fn tidy(&mut self) {
        self.peers.retain(|_, p| p.live || p.stream.is_some());
    }
}
