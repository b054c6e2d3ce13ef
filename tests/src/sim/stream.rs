//! The streams of a dispatcher: what waits in an outlet goes to its gateway, in order, with the
//! lists of contacts that belong to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use adsum_core::{
    Item, Presence, UserKey, Visibility,
    store::{Shard, Store},
};
use adsum_dispatcher::{Next, Outlet, StreamId};
use adsum_proto::TopicKey;

use super::{
    dispatcher::{Ask, Frame},
    world::World,
};

pub(super) struct Stream {
    pub(super) gateway: usize,
    pub(super) life: u64,
    pub(super) outlet: Outlet,
    /// What a frame takes at most, ms: of two sources one may be far behind the other.
    longest: u64,
    /// When the last frame arrives: none overtakes another.
    last: u64,
    lists: BTreeMap<UserKey, u64>,
    missing: BTreeSet<(UserKey, u64)>,
    fetching: bool,
    /// Parts that wait for their turn.
    pub(super) answers: VecDeque<(Shard, Frame)>,
}

impl World {
    /// Sends what waits for each gateway, as long as it reads.
    pub(super) fn pump(&mut self, d: usize) {
        let streams: Vec<_> = self.dispatchers[d].streams.keys().copied().collect();
        for stream in streams {
            self.pump_stream(d, stream);
        }
    }

    fn pump_stream(&mut self, d: usize, id: StreamId) {
        loop {
            let Some(stream) = self.dispatchers[d].streams.get_mut(&id) else {
                return;
            };
            let g = stream.gateway;
            if stream.fetching || self.gateways[g].feed.slow_until > self.now {
                return;
            }
            if let Some((shard, frame)) = stream.answers.pop_front() {
                stream.outlet.sent_parts(shard);
                if let Frame::Parts { parts, .. } = &frame {
                    for part in parts {
                        let members = part.members.iter();
                        members.for_each(|(item, _)| stream.miss(&part.topic, item));
                    }
                }
                self.send_down(d, id, frame);
                continue;
            }
            match stream.outlet.next() {
                Next::Idle => return,
                Next::Checks(_) => {}
                Next::Batch(states, marks) => {
                    for (_, routed) in &states {
                        if let Presence::Here(item) = &routed.state.presence {
                            let key = (routed.state.tenant.clone(), routed.state.topic.clone());
                            stream.miss(&key, item);
                        }
                    }
                    let states = states.iter().map(|(s, r)| (*s, r.state.clone())).collect();
                    self.send_down(d, id, Frame::States(states, marks));
                }
                Next::Parts(shard, topics) => self.ask_in_turn(d, shard, Ask::Parts(id, topics)),
            }
        }
    }

    fn send_down(&mut self, d: usize, id: StreamId, frame: Frame) {
        let stream = self.dispatchers[d].streams.get(&id);
        match stream.map(|stream| stream.missing.is_empty()) {
            Some(true) => self.transmit(d, id, vec![frame]),
            Some(false) => self.fetch_lists(d, id, vec![frame]),
            None => {}
        }
    }

    fn transmit(&mut self, d: usize, id: StreamId, frames: Vec<Frame>) {
        let (now, calm) = (self.now, self.calm);
        let Some(stream) = self.dispatchers[d].streams.get_mut(&id) else {
            return;
        };
        let longest = if calm { 5 } else { stream.longest };
        let after = self.rng.range(1, longest);
        stream.last = stream.last.max(now + after);
        let (g, last) = (stream.gateway, stream.last);
        let process = self.gateways[g].process;
        if stream.life == self.processes[process].life {
            self.later(process, last - now, move |w| {
                for frame in frames {
                    w.receive(g, d, id, frame);
                }
            });
        }
    }

    /// Reads the lists of contacts that must go with a frame, and sends both.
    fn fetch_lists(&mut self, d: usize, id: StreamId, mut frames: Vec<Frame>) {
        let dispatcher = &mut self.dispatchers[d];
        let (process, store) = (dispatcher.process, dispatcher.store.clone());
        let Some(stream) = dispatcher.streams.get_mut(&id) else {
            return;
        };
        let missing = std::mem::take(&mut stream.missing);
        stream.fetching = true;
        let call = async move {
            let mut found = Vec::new();
            for (user, version) in missing {
                found.push((store.contacts(&user).await, user, version));
            }
            found
        };
        self.spawn(process, call, move |w, found| {
            let Some(stream) = w.dispatchers[d].streams.get_mut(&id) else {
                return;
            };
            stream.fetching = false;
            for (list, user, version) in found {
                match list {
                    Ok(Some((version, list))) => {
                        stream.lists.insert(user.clone(), version);
                        frames.insert(0, Frame::List(user, version, list));
                    }
                    Ok(None) => {}
                    Err(_) => drop(stream.missing.insert((user, version))),
                }
            }
            w.transmit(d, id, frames);
            w.pump_stream(d, id);
        });
    }

    pub(super) fn queues(&self) -> Vec<(usize, usize)> {
        let streams = self.dispatchers.iter().flat_map(|d| d.streams.values());
        streams.map(|stream| stream.outlet.waiting()).collect()
    }
}

impl Stream {
    pub(super) const fn new(gateway: usize, life: u64, outlet: Outlet, longest: u64) -> Self {
        Self {
            gateway,
            life,
            outlet,
            longest,
            last: 0,
            lists: BTreeMap::new(),
            missing: BTreeSet::new(),
            fetching: false,
            answers: VecDeque::new(),
        }
    }

    fn miss(&mut self, key: &TopicKey, item: &Item) {
        if item.visibility != Visibility::Contacts || item.contacts == 0 {
            return;
        }
        let user = UserKey::new(key.0.clone(), item.user.clone());
        if self.lists.get(&user).is_none_or(|v| *v < item.contacts) {
            self.missing.insert((user, item.contacts));
        }
    }
}
