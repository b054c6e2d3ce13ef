//! Decides which dispatcher serves which shard. No IO and no waiting: takes what happened, and
//! answers what to do. How it chooses and moves is in `moves.rs`.

use std::{collections::HashMap, sync::Arc};

use adsum_core::{
    NodeId, Version,
    membership::{Member, Members},
    ring::Placement,
    store::Shard,
};
use adsum_proto::{
    TopicKey,
    feed::{Add, Drop, TopicRef, gateway_frame::Frame},
    topic_to,
};
use tokio::time::Instant;

use super::{
    config::FeedConfig,
    frames::{Kind, Seen},
    interest::Interest,
    link::LinkId,
    metrics::FeedMetrics,
    peers::{Peers, jitter},
    route::Route,
};

/// Topics in one frame, so that none outgrows what a dispatcher reads.
pub(super) const TOPICS: usize = 1000;

/// What to do.
#[derive(Debug)]
pub(super) enum Action {
    Open { link: LinkId, member: Arc<Member> },
    Close { link: LinkId },
    Send { link: LinkId, frame: Frame },
    Stale { shard: Shard, stale: bool },
}

#[derive(Debug)]
pub(super) struct Router {
    pub(super) config: Arc<FeedConfig>,
    pub(super) metrics: Arc<FeedMetrics>,
    pub(super) interest: Interest,
    pub(super) peers: Peers,
    pub(super) routes: Vec<Route>,
    /// For each shard, whom to prefer.
    pub(super) orders: Vec<Vec<NodeId>>,
    pub(super) actions: Vec<Action>,
    /// When the event that is looked at happened.
    pub(super) now: Instant,
}

impl Router {
    pub(super) fn new(config: Arc<FeedConfig>, metrics: Arc<FeedMetrics>, now: Instant) -> Self {
        let shards = config.shards;
        Self {
            metrics,
            interest: Interest::new(shards),
            peers: Peers::default(),
            routes: (0..shards).map(|_| Route::new(now)).collect(),
            orders: vec![Vec::new(); usize::from(shards)],
            actions: Vec::new(),
            now,
            config,
        }
    }

    /// What to do now, in this order.
    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        0..self.config.shards
    }

    pub(super) fn route(&mut self, shard: Shard) -> &mut Route {
        &mut self.routes[usize::from(shard)]
    }

    /// The members are these now.
    pub(super) fn members(&mut self, members: &Members, now: Instant) {
        self.now = now;
        if self.peers.update(members, now) {
            let live = self.peers.live();
            let names: Vec<&str> = live.iter().map(NodeId::as_str).collect();
            let placement = Placement::new(self.config.shards, &names);
            for shard in self.shards() {
                let order = placement.order(shard).map(|n| live[n].clone());
                self.orders[usize::from(shard)] = order.collect();
                // Soon, but not all gateways at the same moment.
                let soon = now + jitter(self.config.return_after / 10);
                let route = self.route(shard);
                route.return_at = Some(route.return_at.map_or(soon, |at| at.min(soon)));
                route.returns_failed = 0;
            }
        }
        for shard in self.shards() {
            self.find_if_none(shard);
        }
    }

    /// A stream is open.
    pub(super) fn up(&mut self, link: LinkId, now: Instant) {
        self.now = now;
        let Some(node) = self.peers.node_of(link) else {
            return;
        };
        if let Some(stream) = self.peers.stream(&node) {
            stream.up = true;
        }
        for shard in self.shards() {
            if self.route(shard).comes_from(&node) {
                self.take_source(shard);
            } else if self.route(shard).goes_to(&node) {
                self.take_next(shard);
            }
        }
    }

    /// A stream broke, or could not be opened.
    pub(super) fn down(&mut self, link: LinkId, now: Instant) {
        self.now = now;
        let Some(node) = self.peers.node_of(link) else {
            return;
        };
        let (min, max) = (self.config.retry_min, self.config.retry_max);
        self.peers.failed(&node, now, min, max);
        for shard in self.shards() {
            if self.route(shard).goes_to(&node) {
                self.give_up_next(shard);
            }
            if self.route(shard).comes_from(&node) {
                self.leave_source(shard);
                self.find(shard);
            }
        }
    }

    /// A frame came; what it brought is in the rosters already.
    pub(super) fn seen(&mut self, link: LinkId, seen: &Seen, now: Instant) {
        self.now = now;
        let Some(node) = self.peers.node_of(link) else {
            return;
        };
        // What it sent before it was asked again says nothing about the shard as it is asked now.
        let route = self.route(seen.shard);
        if !route.asked().any(|asked| *asked == node) {
            return;
        }
        let is_source = route.comes_from(&node);
        if is_source {
            self.settle(seen.shard, seen.settling);
        }
        match &seen.kind {
            Kind::Mark if is_source => self.mark(&node, seen),
            Kind::Mark => {
                if self.route(seen.shard).reached(seen.version) || seen.settling {
                    self.go_to_next(seen.shard);
                    self.settle(seen.shard, seen.settling);
                    self.mark(&node, seen);
                }
            }
            Kind::Part(key) if is_source => self.part(seen.shard, key, seen.version),
            Kind::Part(key) => self.part_of_next(seen.shard, key),
            Kind::Other => {}
        }
    }

    /// While a shard settles there is no cursor; when it has settled, all its parts come again.
    fn settle(&mut self, shard: Shard, settling: bool) {
        let route = self.route(shard);
        let was = std::mem::replace(&mut route.settling, settling);
        if settling {
            route.cursor = None;
        } else if was {
            self.interest.await_if(shard, |_| true);
        }
    }

    fn mark(&mut self, node: &NodeId, seen: &Seen) {
        let now = self.now;
        let route = self.route(seen.shard);
        // One that lags shows nothing: what came after its mark may be missing in new parts.
        if !seen.settling && !route.reached(seen.version) {
            return;
        }
        route.cursor = (!seen.settling).then_some(seen.version);
        route.proved_at = now;
        route.silent.remove(node);
        if let Some(source) = &mut route.source {
            source.heard = Some(now);
            source.proved = true;
        }
        self.peers.proved(node);
        self.set_stale(seen.shard, false);
    }

    fn part(&mut self, shard: Shard, key: &TopicKey, version: Version) {
        let now = self.now;
        let route = self.route(shard);
        // One from behind the cursor leaves the topic behind it, too.
        if !route.reached(version) {
            return;
        }
        // While a shard is sent in full there are no marks, and that may take long.
        route.parts_at = now;
        route.proved_at = now;
        if let Some(source) = &mut route.source {
            source.heard = Some(now);
        }
        if !self.interest.arrived(shard, key, now) {
            // Nobody asked: the dispatcher can't resume, or dropped its queue, and sends all.
            self.interest.await_if(shard, |other| other != key);
        }
    }

    fn part_of_next(&mut self, shard: Shard, key: &TopicKey) {
        let interest = &self.interest;
        let Some(next) = &mut self.routes[usize::from(shard)].next else {
            return;
        };
        next.until = next.until.max(self.now + self.config.silent_after);
        if !next.awaiting.remove(key) {
            next.awaiting = interest.of(shard).filter(|k| *k != key).cloned().collect();
        }
    }

    /// Asks for topics.
    pub(super) fn want(&mut self, topics: Vec<(TopicKey, Option<Shard>)>, now: Instant) {
        self.now = now;
        let mut asked: HashMap<NodeId, Vec<TopicKey>> = HashMap::new();
        let everyone: std::collections::BTreeSet<NodeId> =
            self.routes.iter().flat_map(Route::asked).cloned().collect();
        for (key, only) in topics {
            if self.interest.contains(&key) {
                continue;
            }
            self.interest.add(key.clone(), only, now);
            let routes = match only {
                Some(shard) => &mut self.routes[usize::from(shard)..=usize::from(shard)],
                None => &mut self.routes[..],
            };
            for route in routes {
                route.parts_at = now;
                if let Some(next) = &mut route.next {
                    next.awaiting.insert(key.clone());
                }
            }
            let nodes: Vec<_> = match only {
                Some(shard) => self.route(shard).asked().cloned().collect(),
                None => everyone.iter().cloned().collect(),
            };
            for node in nodes {
                asked.entry(node).or_default().push(key.clone());
            }
        }
        for (node, keys) in asked {
            self.send_topics(&node, &keys, |topics| Frame::Add(Add { topics }));
            if let Some(stream) = self.peers.stream(&node) {
                stream.known.extend(keys);
            }
        }
        self.metrics.topics.set(self.interest.len());
    }

    /// Nobody watches these topics any more.
    pub(super) fn unwant(&mut self, topics: &[TopicKey], now: Instant) {
        self.now = now;
        for key in topics {
            self.interest.remove(key, now);
            for next in self.routes.iter_mut().filter_map(|r| r.next.as_mut()) {
                next.awaiting.remove(key);
            }
        }
        for node in self.peers.nodes() {
            let Some(stream) = self.peers.stream(&node) else {
                continue;
            };
            let known = topics.iter().filter(|k| stream.known.remove(k)).cloned();
            let known: Vec<_> = known.collect();
            self.send_topics(&node, &known, |topics| Frame::Drop(Drop { topics }));
        }
        self.metrics.topics.set(self.interest.len());
    }

    pub(super) fn send_topics(
        &mut self,
        node: &NodeId,
        keys: &[TopicKey],
        frame: impl Fn(Vec<TopicRef>) -> Frame,
    ) {
        for keys in keys.chunks(TOPICS) {
            self.send(node, frame(refs(keys)));
        }
    }

    pub(super) fn send(&mut self, node: &NodeId, frame: Frame) {
        if let Some(stream) = self.peers.stream(node).filter(|s| s.up) {
            let link = stream.id;
            self.actions.push(Action::Send { link, frame });
        }
    }
}

pub(super) fn refs<'a>(keys: impl IntoIterator<Item = &'a TopicKey>) -> Vec<TopicRef> {
    let refs = keys.into_iter();
    refs.map(|(tenant, topic)| topic_to(tenant, topic))
        .collect()
}
