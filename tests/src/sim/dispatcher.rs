//! A dispatcher: the real tail of each shard, and the real outlet of each gateway, driven as the
//! product's tasks drive them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use adsum_core::{
    Change, Item, Presence, TopicState, UserId, UserKey, Version, Visibility,
    ring::ShardRing,
    store::{Shard, Store},
};
use adsum_dispatcher::{Mark, News, Next, Outlet, Routed, StreamId, Tail};
use adsum_proto::TopicKey;

use super::{store::SimStore, world::World};

/// Touched topics that a view remembers.
const HISTORY: usize = 30;

/// What is asked of the task of a shard.
#[derive(Debug)]
pub(super) enum Ask {
    Look,
    Push(Arc<Change>),
    Take {
        stream: StreamId,
        cursor: Option<Version>,
        fresh: Vec<TopicKey>,
    },
    Release(StreamId),
    Parts(StreamId, Vec<TopicKey>),
}

/// What goes to a gateway.
pub(super) enum Frame {
    States(Vec<(Shard, TopicState)>, Vec<(Shard, Mark)>),
    Parts {
        shard: Shard,
        at: Mark,
        parts: Vec<(TopicKey, Vec<(Arc<Item>, Version)>)>,
    },
    List(UserKey, u64, Vec<UserId>),
}

struct Waiting {
    stream: StreamId,
    cursor: Option<Version>,
    fresh: Vec<TopicKey>,
}

#[derive(Default)]
struct Task {
    /// `None` while it looks.
    tail: Option<Tail>,
    inbox: VecDeque<Ask>,
    takers: BTreeSet<StreamId>,
    waiting: Vec<Waiting>,
}

struct Stream {
    gateway: usize,
    life: u64,
    outlet: Outlet,
    /// When the last frame arrives: none overtakes another.
    last: u64,
    lists: BTreeMap<UserKey, u64>,
    missing: BTreeSet<(UserKey, u64)>,
    fetching: bool,
    /// Parts that wait for their turn.
    answers: VecDeque<(Shard, Frame)>,
}

pub(super) struct Dispatcher {
    pub(super) process: usize,
    pub(super) name: String,
    store: Arc<SimStore>,
    tasks: Vec<Task>,
    streams: BTreeMap<StreamId, Stream>,
    pub(super) mute_until: u64,
}

impl World {
    pub(super) fn add_dispatcher(&mut self, name: &str) {
        let process = self.new_process();
        let store = Arc::new(SimStore::new(&self.store, &self.net, process, name));
        self.dispatchers.push(Dispatcher {
            process,
            name: name.to_owned(),
            store,
            tasks: Vec::new(),
            streams: BTreeMap::new(),
            mute_until: 0,
        });
        self.start_dispatcher(self.dispatchers.len() - 1);
    }

    pub(super) fn start_dispatcher(&mut self, d: usize) {
        let process = self.dispatchers[d].process;
        self.revive(process);
        let name = self.dispatchers[d].name.clone();
        let store = Arc::new(SimStore::new(&self.store, &self.net, process, &name));
        let tail = |shard| {
            let store: Arc<dyn Store> = store.clone();
            Task {
                tail: Some(Tail::new(store, shard, HISTORY)),
                ..Task::default()
            }
        };
        self.dispatchers[d].tasks = (0..self.plan.shards).map(tail).collect();
        self.dispatchers[d].store = store;
        self.dispatchers[d].streams.clear();
        for shard in 0..self.plan.shards {
            let after = self.rng.range(1, self.times.poll);
            self.later(process, after, move |w| w.poll_shard(d, shard));
        }
    }

    pub(super) fn kill_dispatcher(&mut self, d: usize) {
        self.kill(self.dispatchers[d].process);
        let streams = std::mem::take(&mut self.dispatchers[d].streams);
        for (id, stream) in streams {
            self.refuse_stream(stream.gateway, d, id);
        }
    }

    fn poll_shard(&mut self, d: usize, shard: Shard) {
        let process = self.dispatchers[d].process;
        self.later(process, self.times.poll, move |w| w.poll_shard(d, shard));
        self.ask_shard(d, shard, Ask::Look);
    }

    /// A push of the store, if this dispatcher hears it.
    pub(super) fn push_to(&mut self, d: usize, shard: Shard, change: &Arc<Change>) {
        let per_mille = self.net.noise().pushes_lost;
        if self.dispatchers[d].mute_until > self.now || self.rng.chance(per_mille) {
            return;
        }
        let (change, process) = (change.clone(), self.dispatchers[d].process);
        let longest = if self.calm { 4 } else { 40 };
        let after = self.rng.range(1, longest);
        self.later(process, after, move |w| {
            w.ask_shard(d, shard, Ask::Push(change));
        });
    }

    pub(super) fn accept_stream(&mut self, d: usize, id: StreamId, gateway: usize, life: u64) {
        let topics = self.gateways[gateway].pictures.topics.iter();
        let topics: Vec<_> = topics.map(|t| t.key.clone()).collect();
        let outlet = Outlet::new(id, self.plan_ring(), self.plan.queue);
        outlet.know(&topics);
        let stream = Stream {
            gateway,
            life,
            outlet,
            last: 0,
            lists: BTreeMap::new(),
            missing: BTreeSet::new(),
            fetching: false,
            answers: VecDeque::new(),
        };
        self.dispatchers[d].streams.insert(id, stream);
    }

    pub(super) fn drop_stream(&mut self, d: usize, id: StreamId) {
        self.dispatchers[d].streams.remove(&id);
    }

    fn plan_ring(&self) -> Arc<ShardRing> {
        self.ring.clone()
    }

    pub(super) fn ask_shard(&mut self, d: usize, shard: Shard, ask: Ask) {
        if let Ask::Take { stream, .. } = &ask {
            match self.dispatchers[d].streams.get(stream) {
                Some(open) => open.outlet.take(shard),
                None => {
                    let g = usize::try_from(stream % 100).unwrap_or(0);
                    self.refuse_stream(g, d, *stream);
                    return;
                }
            }
        }
        if let Ask::Release(stream) = &ask
            && let Some(open) = self.dispatchers[d].streams.get(stream)
        {
            open.outlet.release(shard);
        }
        let task = &mut self.dispatchers[d].tasks[usize::from(shard)];
        task.inbox.push_back(ask);
        self.work(d, shard);
    }

    /// One thing after another, as long as the task does not look at the store.
    fn work(&mut self, d: usize, shard: Shard) {
        loop {
            let task = &mut self.dispatchers[d].tasks[usize::from(shard)];
            let Some(tail) = &mut task.tail else { return };
            match task.inbox.pop_front() {
                None => break,
                Some(Ask::Look) => self.look(d, shard),
                Some(Ask::Push(change)) => match tail.push(std::slice::from_ref(&*change)) {
                    Some(states) => {
                        self.route_states(d, shard, &states);
                        self.mark(d, shard);
                    }
                    None => self.look(d, shard),
                },
                Some(Ask::Take {
                    stream,
                    cursor,
                    fresh,
                }) => {
                    let ahead = tail
                        .view()
                        .is_none_or(|v| cursor.is_some_and(|c| c > v.version()));
                    task.waiting.push(Waiting {
                        stream,
                        cursor,
                        fresh,
                    });
                    if ahead {
                        self.look(d, shard);
                    } else {
                        self.admit(d, shard);
                        self.mark(d, shard);
                    }
                }
                Some(Ask::Release(stream)) => {
                    task.takers.remove(&stream);
                    task.waiting.retain(|w| w.stream != stream);
                }
                Some(Ask::Parts(stream, topics)) => self.send_parts(d, shard, stream, topics),
            }
        }
        self.pump(d);
    }

    fn look(&mut self, d: usize, shard: Shard) {
        let dispatcher = &mut self.dispatchers[d];
        let process = dispatcher.process;
        let Some(mut tail) = dispatcher.tasks[usize::from(shard)].tail.take() else {
            return;
        };
        let call = async move {
            let news = tail.poll().await;
            (tail, news)
        };
        self.spawn(process, call, move |w, (tail, news)| {
            let task = &mut w.dispatchers[d].tasks[usize::from(shard)];
            task.tail = Some(tail);
            match news {
                Ok(News::Current(states)) => {
                    w.route_states(d, shard, &states);
                    w.admit(d, shard);
                    w.mark(d, shard);
                }
                Ok(News::Whole(states)) => {
                    w.route_states(d, shard, &states);
                    w.each_taker(d, shard, |outlet| outlet.send_whole(shard));
                    w.admit(d, shard);
                    w.mark(d, shard);
                }
                Ok(News::Behind) | Err(_) => {}
            }
            w.work(d, shard);
        });
    }

    fn each_taker(&self, d: usize, shard: Shard, each: impl Fn(&Outlet)) {
        let dispatcher = &self.dispatchers[d];
        let takers = dispatcher.tasks[usize::from(shard)].takers.iter();
        let streams = takers.filter_map(|taker| dispatcher.streams.get(taker));
        streams.for_each(|stream| each(&stream.outlet));
    }

    fn route_states(&self, d: usize, shard: Shard, states: &[Arc<Routed>]) {
        let mut states: Vec<_> = states.iter().collect();
        // A reconciled view leaves them in no order.
        states.sort_by(|a, b| {
            let key = |s: &Routed| (s.state.version, s.state.topic.clone(), s.state.user.clone());
            key(a).cmp(&key(b))
        });
        for routed in states {
            let key = (routed.state.tenant.clone(), routed.state.topic.clone());
            self.each_taker(d, shard, |outlet| {
                if outlet.knows(&key) {
                    outlet.push(shard, routed);
                }
            });
        }
    }

    fn position(&self, d: usize, shard: Shard) -> Option<Mark> {
        let task = &self.dispatchers[d].tasks[usize::from(shard)];
        let view = task.tail.as_ref()?.view()?;
        Some(Mark {
            version: view.version(),
            settling: view.settling(),
        })
    }

    fn mark(&self, d: usize, shard: Shard) {
        if let Some(mark) = self.position(d, shard) {
            self.each_taker(d, shard, |outlet| outlet.mark(shard, mark));
        }
    }

    /// Begins to serve those whose cursor the view has reached.
    fn admit(&mut self, d: usize, shard: Shard) {
        let Dispatcher { tasks, streams, .. } = &mut self.dispatchers[d];
        let task = &mut tasks[usize::from(shard)];
        let Some(view) = task.tail.as_ref().and_then(Tail::view) else {
            return;
        };
        let waiting = std::mem::take(&mut task.waiting);
        let ready = |w: &Waiting| w.cursor.is_none_or(|c| c <= view.version());
        let (now, later): (Vec<_>, _) = waiting.into_iter().partition(ready);
        task.waiting = later;
        for Waiting {
            stream,
            cursor,
            fresh,
        } in now
        {
            let Some(open) = streams.get(&stream) else {
                continue;
            };
            let wanted = |tenant: &_, topic: &_| {
                let key = (Clone::clone(tenant), Clone::clone(topic));
                !fresh.contains(&key) && open.outlet.knows(&key)
            };
            let caught_up = cursor.and_then(|cursor| view.since(cursor, wanted));
            task.takers.insert(stream);
            let Some(states) = caught_up else {
                open.outlet.serve(shard, None);
                continue;
            };
            open.outlet.serve(shard, Some(fresh));
            for state in states {
                let routed = Routed {
                    state,
                    committed_us: 0,
                    routed_us: 0,
                };
                open.outlet.push(shard, &Arc::new(routed));
            }
        }
    }

    /// Answers a stream that asked for parts; one that is busy hears it later.
    fn send_parts(&mut self, d: usize, shard: Shard, id: StreamId, mut topics: Vec<TopicKey>) {
        let at = self.position(d, shard);
        let Dispatcher { tasks, streams, .. } = &mut self.dispatchers[d];
        let Some(stream) = streams.get_mut(&id) else {
            return;
        };
        let view = tasks[usize::from(shard)].tail.as_ref().and_then(Tail::view);
        topics.sort();
        let answer = view.zip(at).map(|(view, at)| {
            let part = |key: &TopicKey| {
                let mut members = view.members(&key.0, &key.1);
                members.sort_by(|a, b| a.0.user.cmp(&b.0.user));
                (key.clone(), members)
            };
            let parts = topics.iter().map(part).collect();
            Frame::Parts { shard, at, parts }
        });
        if let Some(frame) = answer {
            stream.answers.push_back((shard, frame));
            return;
        }
        // Not loaded yet: to be wanted again.
        stream.outlet.sent_parts(shard);
        let process = self.dispatchers[d].process;
        self.later(process, 20, move |w| {
            if let Some(stream) = w.dispatchers[d].streams.get(&id) {
                stream.outlet.want(shard, topics);
                w.pump(d);
            }
        });
    }

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
                    for (key, members) in parts {
                        members.iter().for_each(|(item, _)| stream.miss(key, item));
                    }
                }
                self.send_down(d, id, frame);
                continue;
            }
            match stream.outlet.next() {
                Next::Idle => return,
                Next::Kicked(_) => {}
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
                Next::Parts(shard, topics) => {
                    let task = &mut self.dispatchers[d].tasks[usize::from(shard)];
                    task.inbox.push_back(Ask::Parts(id, topics));
                    if task.tail.is_some() {
                        self.work(d, shard);
                    }
                }
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
        let longest = if self.calm { 5 } else { 40 };
        let after = self.rng.range(1, longest);
        let now = self.now;
        let Some(stream) = self.dispatchers[d].streams.get_mut(&id) else {
            return;
        };
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
