//! How the router chooses, moves and returns: to the next on the ring at once when there is
//! doubt, and back without a gap. Two sources at once are harmless, so a shard goes back by
//! asking the better one first and leaving the other when the better one is as far.

use std::{collections::HashSet, time::Duration};

use adsum_core::{NodeId, store::Shard};
use adsum_proto::{
    TopicKey,
    feed::{Add, Release, Take, gateway_frame::Frame},
    version_to,
};
use tokio::time::Instant;

use super::{
    peers::jitter,
    route::{Next, Source},
    router::{Action, Router, TOPICS, refs},
};

/// A cold dispatcher may take its time to load; nobody waits for it meanwhile.
const PATIENCE: u32 = 5;
/// Parts may keep others waiting that long before they are taken for lost, in silences.
const OWED: u32 = 3;
/// The longest pause between returns, in doublings of the first.
const RETURNS: u32 = 4;

impl Router {
    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant) {
        self.now = now;
        for shard in self.shards() {
            if self
                .route(shard)
                .next
                .as_ref()
                .is_some_and(|n| n.until <= now)
            {
                self.give_up_next(shard);
            }
            self.leave_if_silent(shard);
            self.find_if_none(shard);
            if now - self.route(shard).proved_at >= self.config.stale_after {
                self.set_stale(shard, true);
            }
            self.look_for_better(shard);
            self.ask_again(shard);
        }
        self.close_unused();
        self.interest.forget(now);
    }

    /// This gateway itself was away for a while: nobody's silence counts for that long.
    pub(super) fn slept(&mut self, time: Duration, now: Instant) {
        for route in &mut self.routes {
            if let Some(heard) = route.source.as_mut().and_then(|s| s.heard.as_mut()) {
                *heard = (*heard + time).min(now);
            }
            if let Some(next) = &mut route.next {
                next.until += time;
            }
            route.proved_at = (route.proved_at + time).min(now);
            route.parts_at = (route.parts_at + time).min(now);
        }
    }

    pub(super) fn find_if_none(&mut self, shard: Shard) {
        if self.route(shard).source.is_none() {
            self.find(shard);
        }
    }

    /// Takes the best dispatcher there is; if all were tried, the shard is stale, and the one
    /// whose silence is oldest gets another chance.
    pub(super) fn find(&mut self, shard: Shard) {
        let next = self.route(shard).next.take();
        if let Some(next) = next.filter(|n| n.taken) {
            self.promote(shard, next);
        } else if let Some(node) = self.best(shard) {
            self.assign(shard, node);
        } else {
            self.set_stale(shard, true);
            if let Some(node) = self.least_silent(shard) {
                self.assign(shard, node);
            }
        }
    }

    fn least_silent(&self, shard: Shard) -> Option<NodeId> {
        let silent = &self.routes[usize::from(shard)].silent;
        let order = self.orders[usize::from(shard)].iter();
        let reachable = order.filter(|n| self.peers.usable(n, self.now));
        reachable.min_by_key(|n| silent.get(*n)).cloned()
    }

    fn usable(&self, shard: Shard, node: &NodeId) -> bool {
        let silent = self.routes[usize::from(shard)].silent.get(node);
        self.peers.usable(node, self.now) && silent.is_none_or(|until| *until <= self.now)
    }

    /// The first on the ring, but rather one that is connected and no newcomer: a shard without
    /// a source can't wait for a connection or a load, and goes to the first one later.
    fn best(&self, shard: Shard) -> Option<NodeId> {
        let order = self.orders[usize::from(shard)].iter();
        let usable = || order.clone().filter(|n| self.usable(shard, n));
        let time = self.config.silent_after;
        let warm = usable().find(|n| self.peers.warm(n, self.now, time));
        let connected = || usable().find(|n| self.peers.up(n));
        warm.or_else(connected).or_else(|| usable().next()).cloned()
    }

    fn assign(&mut self, shard: Shard, node: NodeId) {
        let return_at = self.now + jitter(self.config.return_after);
        let route = self.route(shard);
        route.return_at = Some(return_at);
        route.source = Some(Source {
            node: node.clone(),
            heard: None,
            proved: false,
        });
        self.connect(&node);
        if self.peers.up(&node) {
            self.take_source(shard);
        }
    }

    fn connect(&mut self, node: &NodeId) {
        if let Some((link, member)) = self.peers.open(node) {
            self.actions.push(Action::Open { link, member });
        }
    }

    /// The source is gone, or will be told so.
    pub(super) fn leave_source(&mut self, shard: Shard) {
        if self.route(shard).source.take().is_some() {
            self.metrics.moves.add(1);
        }
    }

    fn leave_if_silent(&mut self, shard: Shard) {
        let (now, config) = (self.now, self.config.clone());
        let route = self.route(shard);
        let Some(source) = &route.source else {
            return;
        };
        if source.heard.is_none_or(|at| now - at < config.silent_after) {
            return;
        }
        let node = source.node.clone();
        let avoid = now + jitter(config.retry_max);
        route.silent.retain(|_, until| *until > now);
        route.silent.entry(node.clone()).or_insert(avoid);
        if route.next.is_some() || self.best(shard).is_some_and(|best| best != node) {
            tracing::info!(shard, dispatcher = %node, "dispatcher silent: shard moves on");
            self.leave_source(shard);
            self.send(&node, release(shard));
            self.find(shard);
        } else {
            // Nobody else: it stays, and one mark heals all.
            self.set_stale(shard, true);
        }
    }

    /// Asks the source to serve the shard from where we are.
    pub(super) fn take_source(&mut self, shard: Shard) {
        let now = self.now;
        let route = self.route(shard);
        let Some(source) = &mut route.source else {
            return;
        };
        source.heard = Some(now);
        let node = source.node.clone();
        route.parts_at = now;
        let awaiting = self.take(shard, &node);
        self.interest.await_if(shard, |key| awaiting.contains(key));
    }

    /// Parts that are owed do not come, though the source is well: on any doubt, reload.
    fn ask_again(&mut self, shard: Shard) {
        let (now, patience) = (self.now, self.config.silent_after * OWED);
        let owed = self.interest.count_awaited(shard) > 0;
        let route = self.route(shard);
        let steady = route.source.as_ref().is_some_and(|s| s.proved) && route.cursor.is_some();
        if owed && steady && now - route.parts_at >= patience {
            self.metrics.asked_again.add(1);
            self.take_source(shard);
        }
    }

    pub(super) fn take_next(&mut self, shard: Shard) {
        let Some(node) = self.route(shard).next.as_ref().map(|n| n.node.clone()) else {
            return;
        };
        let awaiting = self.take(shard, &node);
        if let Some(next) = &mut self.route(shard).next {
            next.taken = true;
            next.awaiting = awaiting;
        }
    }

    /// Sends a take; answers the topics whose parts must follow.
    fn take(&mut self, shard: Shard, node: &NodeId) -> HashSet<TopicKey> {
        let mut cursor = self.route(shard).cursor;
        // Past a bound, all is cheaper than a list of all.
        if self.interest.count_awaited(shard) > TOPICS {
            cursor = None;
        }
        let awaiting = match cursor {
            Some(_) => self.interest.awaited(shard),
            None => self.interest.of(shard).cloned().collect(),
        };
        let mut topics: Vec<TopicKey> = Vec::new();
        if let Some(stream) = self.peers.stream(node) {
            let unknown = self
                .interest
                .of(shard)
                .filter(|k| !stream.known.contains(*k));
            topics.extend(unknown.cloned());
            stream.known.extend(topics.iter().cloned());
        }
        // What does not fit goes ahead. The stream serves no shard yet that these topics need,
        // so this alone brings no parts.
        let rest = topics.split_off(topics.len().min(TOPICS));
        self.send_topics(node, &rest, |topics| Frame::Add(Add { topics }));
        let fresh = cursor.map(|_| refs(&awaiting)).unwrap_or_default();
        let take = Take {
            shard: shard.into(),
            cursor: cursor.map(version_to),
            topics: refs(&topics),
            fresh,
        };
        self.send(node, Frame::Take(take));
        awaiting
    }

    fn look_for_better(&mut self, shard: Shard) {
        let now = self.now;
        let route = self.route(shard);
        let steady = route.source.as_ref().is_some_and(|s| s.proved);
        let due = route.return_at.is_some_and(|at| at <= now);
        if !steady || !due || route.next.is_some() || route.cursor.is_none() {
            return;
        }
        let Some(node) = self.better(shard) else {
            return;
        };
        let until = now + self.config.silent_after * PATIENCE;
        self.route(shard).next = Some(Next {
            node: node.clone(),
            taken: false,
            until,
            awaiting: HashSet::new(),
        });
        self.connect(&node);
        if self.peers.up(&node) {
            self.take_next(shard);
        }
    }

    /// One that the ring prefers to the source.
    fn better(&self, shard: Shard) -> Option<NodeId> {
        let source = self.routes[usize::from(shard)].source.as_ref()?;
        let order = self.orders[usize::from(shard)].iter();
        let mut before = order.take_while(|n| **n != source.node);
        before.find(|n| self.usable(shard, n)).cloned()
    }

    /// The next one did not come up in time, or broke.
    pub(super) fn give_up_next(&mut self, shard: Shard) {
        let now = self.now;
        let pause = jitter(self.config.return_after);
        let route = self.route(shard);
        if let Some(next) = route.next.take() {
            route.returns_failed = (route.returns_failed + 1).min(RETURNS);
            route.return_at = Some(now + pause * (1 << route.returns_failed));
            if next.taken {
                self.send(&next.node, release(shard));
            }
        }
    }

    /// The next one is as far as the source: leave that.
    pub(super) fn go_to_next(&mut self, shard: Shard) {
        let Some(next) = self.route(shard).next.take() else {
            return;
        };
        let old = self.route(shard).source.as_ref().map(|s| s.node.clone());
        self.leave_source(shard);
        self.route(shard).returns_failed = 0;
        self.promote(shard, next);
        if let Some(old) = old {
            self.send(&old, release(shard));
        }
    }

    /// Makes the next one the source, with what it still owes.
    fn promote(&mut self, shard: Shard, next: Next) {
        let now = self.now;
        let return_at = now + jitter(self.config.return_after);
        let route = self.route(shard);
        route.return_at = Some(return_at);
        route.source = Some(Source {
            node: next.node,
            heard: Some(now),
            proved: false,
        });
        self.interest
            .await_if(shard, |key| next.awaiting.contains(key));
    }

    pub(super) fn set_stale(&mut self, shard: Shard, stale: bool) {
        let route = self.route(shard);
        if std::mem::replace(&mut route.stale, stale) != stale {
            self.actions.push(Action::Stale { shard, stale });
        }
    }

    fn close_unused(&mut self) {
        let (now, idle_after) = (self.now, self.config.idle_after);
        for node in self.peers.nodes() {
            let used = self.routes.iter().any(|r| r.uses(&node));
            let Some(stream) = self.peers.stream(&node) else {
                continue;
            };
            let since = stream.unused_since.get_or_insert(now);
            if used {
                stream.unused_since = None;
            } else if now - *since >= idle_after
                && let Some(link) = self.peers.close(&node)
            {
                self.actions.push(Action::Close { link });
            }
        }
    }
}

fn release(shard: Shard) -> Frame {
    Frame::Release(Release {
        shard: shard.into(),
    })
}
