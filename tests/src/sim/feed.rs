//! How a gateway follows the dispatchers: one source for each shard, the next one at once when
//! it is silent, and now and then two at a time. The rules of the product's router, in short.

use std::collections::BTreeSet;

use adsum_core::{
    Version,
    store::{Shard, Store},
};
use adsum_dispatcher::StreamId;
use adsum_proto::TopicKey;

use super::{
    dispatcher::{Ask, Frame},
    world::World,
};

/// How often a gateway looks who is silent, ms.
const TICK: u64 = 400;

/// Where one shard comes from.
#[derive(Debug, Default)]
struct Route {
    source: usize,
    /// Asked besides the source, until when.
    next: Option<(usize, u64)>,
    cursor: Option<Version>,
    settling: bool,
    heard: u64,
    /// Topics whose part is still to come.
    awaited: BTreeSet<usize>,
    return_at: u64,
}

#[derive(Debug, Default)]
pub(super) struct Feed {
    /// To each dispatcher.
    streams: Vec<Option<StreamId>>,
    routes: Vec<Route>,
    ticked: u64,
    pub(super) cut_until: u64,
    pub(super) slow_until: u64,
    next_id: StreamId,
}

impl Feed {
    pub(super) fn is(&self, dispatcher: usize, stream: StreamId) -> bool {
        self.streams.get(dispatcher) == Some(&Some(stream))
    }
}

impl World {
    pub(super) fn start_feed(&mut self, g: usize) {
        let (now, topics) = (self.now, self.gateways[g].pictures.topics.len());
        let count = self.dispatchers.len();
        let routes = (0..self.plan.shards).map(|shard| Route {
            source: (usize::from(shard) + g) % count.max(1),
            heard: now,
            awaited: (0..topics).collect(),
            return_at: now + 5_000,
            ..Route::default()
        });
        let feed = &mut self.gateways[g].feed;
        feed.routes = routes.collect();
        feed.streams = vec![None; count];
        feed.ticked = now;
        for shard in 0..self.plan.shards {
            self.take_source(g, shard);
        }
        let process = self.gateways[g].process;
        self.later(process, TICK, move |w| w.feed_tick(g));
    }

    fn feed_tick(&mut self, g: usize) {
        let process = self.gateways[g].process;
        self.later(process, TICK, move |w| w.feed_tick(g));
        let now = self.now;
        let feed = &mut self.gateways[g].feed;
        // It was away itself: nobody's silence counts for that long.
        let late = (now - feed.ticked).saturating_sub(TICK);
        feed.ticked = now;
        if late > TICK {
            feed.routes.iter_mut().for_each(|r| r.heard += late);
        }
        for shard in 0..self.plan.shards {
            self.leave_if_silent(g, shard);
            self.look_for_another(g, shard);
        }
    }

    fn route(&mut self, g: usize, shard: Shard) -> &mut Route {
        &mut self.gateways[g].feed.routes[usize::from(shard)]
    }

    fn leave_if_silent(&mut self, g: usize, shard: Shard) {
        let (now, silent) = (self.now, self.times.silent);
        let count = self.dispatchers.len();
        let route = self.route(g, shard);
        if route.next.is_some_and(|(_, until)| until <= now) {
            let next = route.next.take();
            if let Some((next, _)) = next {
                self.send_up(g, next, shard, Ask::Release);
            }
        }
        let route = self.route(g, shard);
        if now.saturating_sub(route.heard) < silent {
            return;
        }
        let old = route.source;
        route.source = route
            .next
            .take()
            .map_or((old + 1) % count, |(next, _)| next);
        self.send_up(g, old, shard, Ask::Release);
        self.take_source(g, shard);
    }

    /// Two sources at once, until the new one is as far.
    fn look_for_another(&mut self, g: usize, shard: Shard) {
        let (now, count) = (self.now, self.dispatchers.len());
        let pause = self.rng.range(4_000, 12_000);
        let patience = self.times.silent * 3;
        let route = self.route(g, shard);
        if route.return_at > now || route.next.is_some() || route.cursor.is_none() {
            return;
        }
        let other = (route.source + 1) % count;
        route.return_at = now + pause;
        route.next = Some((other, now + patience));
        self.take(g, shard, other);
    }

    fn take_source(&mut self, g: usize, shard: Shard) {
        let now = self.now;
        let route = self.route(g, shard);
        route.heard = now;
        let source = route.source;
        self.take(g, shard, source);
        let topics = self.gateways[g].pictures.topics.len();
        let route = self.route(g, shard);
        if route.cursor.is_none() {
            route.awaited = (0..topics).collect();
        }
    }

    fn take(&mut self, g: usize, shard: Shard, d: usize) {
        let route = self.route(g, shard);
        let cursor = route.cursor;
        let fresh: Vec<usize> = match cursor {
            Some(_) => route.awaited.iter().copied().collect(),
            None => Vec::new(),
        };
        if self.gateways[g].feed.streams[d].is_none() {
            self.open_stream(g, d);
        }
        let topics = &self.gateways[g].pictures.topics;
        let fresh = fresh.into_iter().map(|t| topics[t].key.clone()).collect();
        self.send_up(g, d, shard, |stream| Ask::Take {
            stream,
            cursor,
            fresh,
        });
    }

    fn open_stream(&mut self, g: usize, d: usize) {
        let feed = &mut self.gateways[g].feed;
        feed.next_id += 1;
        let id = feed.next_id * 100 + (g as u64);
        feed.streams[d] = Some(id);
        let life = self.processes[self.gateways[g].process].life;
        let process = self.dispatchers[d].process;
        if self.gateways[g].feed.cut_until > self.now {
            return;
        }
        if self.processes[process].dead {
            self.refuse_stream(g, d, id);
            return;
        }
        self.later(process, 2, move |w| w.accept_stream(d, id, g, life));
    }

    /// Nobody listens there.
    pub(super) fn refuse_stream(&mut self, g: usize, d: usize, id: StreamId) {
        let process = self.gateways[g].process;
        let after = self.rng.range(2, 60);
        self.later(process, after, move |w| w.stream_down(g, d, id));
    }

    fn stream_down(&mut self, g: usize, d: usize, id: StreamId) {
        if !self.gateways[g].feed.is(d, id) {
            return;
        }
        self.gateways[g].feed.streams[d] = None;
        let (now, count, silent) = (self.now, self.dispatchers.len(), self.times.silent);
        for shard in 0..self.plan.shards {
            let route = self.route(g, shard);
            route.next.take_if(|(next, _)| *next == d);
            if route.source == d {
                // The next one at once; if that is as dead, the silence brings us back.
                route.source = (d + 1) % count;
                let other = route.source;
                let dead = self.processes[self.dispatchers[other].process].dead;
                self.take_source(g, shard);
                if dead {
                    self.route(g, shard).heard = now.saturating_sub(silent / 2);
                }
            }
        }
    }

    /// A message to a dispatcher, behind those before it.
    fn send_up(&mut self, g: usize, d: usize, shard: Shard, ask: impl FnOnce(StreamId) -> Ask) {
        let feed = &self.gateways[g].feed;
        let Some(stream) = feed.streams[d] else {
            return;
        };
        if feed.cut_until > self.now {
            return;
        }
        let process = self.dispatchers[d].process;
        if self.processes[process].dead {
            self.refuse_stream(g, d, stream);
            return;
        }
        let ask = ask(stream);
        // All take the same time, so none overtakes another.
        self.later(process, 3, move |w| w.ask_shard(d, shard, ask));
    }

    /// The lines to all dispatchers break.
    pub(super) fn cut_feed(&mut self, g: usize, until: u64) {
        self.gateways[g].feed.cut_until = until;
        for d in 0..self.dispatchers.len() {
            if let Some(stream) = self.gateways[g].feed.streams[d].take() {
                self.drop_stream(d, stream);
            }
        }
    }

    /// Something came.
    pub(super) fn receive(&mut self, g: usize, d: usize, stream: StreamId, frame: Frame) {
        if !self.gateways[g].feed.is(d, stream) {
            return;
        }
        match frame {
            Frame::States(states, marks) => {
                self.put_states(g, states);
                for (shard, mark) in marks {
                    let store = &self.gateways[g].store;
                    store.observe(shard, mark.version.epoch);
                    self.marked(g, d, shard, mark.version, mark.settling);
                }
            }
            Frame::Parts { shard, at, parts } => {
                for part in parts {
                    self.part_came(g, d, shard, &part.topic, at.version, at.settling);
                    self.put_part(g, shard, &part.topic, part.members, at);
                    let withdrawn = part.withdrawn.into_iter();
                    self.put_states(g, withdrawn.map(|state| (shard, state)).collect());
                }
            }
            Frame::List(user, version, list) => self.put_list(g, &user, version, &list),
        }
    }

    fn settle_route(&mut self, g: usize, shard: Shard, settling: bool) {
        let topics = self.gateways[g].pictures.topics.len();
        let route = self.route(g, shard);
        let was = std::mem::replace(&mut route.settling, settling);
        if settling {
            route.cursor = None;
        } else if was {
            route.awaited = (0..topics).collect();
        }
    }

    fn marked(&mut self, g: usize, d: usize, shard: Shard, version: Version, settling: bool) {
        let now = self.now;
        let route = self.route(g, shard);
        let reached = route.cursor.is_none_or(|cursor| version >= cursor);
        if route.source != d {
            if route.next.is_none_or(|(next, _)| next != d) || !(reached || settling) {
                return;
            }
            let old = std::mem::replace(&mut route.source, d);
            route.next = None;
            self.send_up(g, old, shard, Ask::Release);
        }
        self.settle_route(g, shard, settling);
        let route = self.route(g, shard);
        if !settling && !reached {
            return;
        }
        route.cursor = (!settling).then_some(version);
        route.heard = now;
    }

    fn part_came(
        &mut self,
        g: usize,
        d: usize,
        shard: Shard,
        key: &TopicKey,
        version: Version,
        settling: bool,
    ) {
        let topics = &self.gateways[g].pictures.topics;
        let Some(topic) = topics.iter().position(|t| t.key == *key) else {
            return;
        };
        if self.route(g, shard).source != d {
            return;
        }
        self.settle_route(g, shard, settling);
        let (now, count) = (self.now, self.gateways[g].pictures.topics.len());
        let route = self.route(g, shard);
        if route.cursor.is_some_and(|cursor| version < cursor) {
            return;
        }
        route.heard = now;
        if !route.awaited.remove(&topic) {
            // Nobody asked: the dispatcher sends all.
            route.awaited = (0..count).filter(|other| *other != topic).collect();
        }
    }
}
