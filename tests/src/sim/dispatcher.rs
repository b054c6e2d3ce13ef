//! A dispatcher: the real tail of each shard, and the real outlet of each gateway, driven as the
//! product's tasks drive them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use adsum_core::{
    Change, Item, TopicState, UserId, UserKey, Version,
    ring::ShardRing,
    store::{Shard, Store},
};
use adsum_dispatcher::{Mark, News, Outlet, Routed, StreamId, Tail};
use adsum_proto::TopicKey;

use super::{store::SimStore, stream::Stream, world::World};

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

/// Who is in a topic, each as of a version.
type Members = Vec<(Arc<Item>, Version)>;

/// A topic, and who is to be taken from it even while absence means nothing.
pub(super) struct Part {
    pub(super) topic: TopicKey,
    pub(super) members: Members,
    pub(super) withdrawn: Vec<TopicState>,
}

/// What goes to a gateway.
pub(super) enum Frame {
    States(Vec<(Shard, TopicState)>, Vec<(Shard, Mark)>),
    Parts {
        shard: Shard,
        at: Mark,
        parts: Vec<Part>,
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
    /// The last look failed.
    doubt: bool,
}

pub(super) struct Dispatcher {
    pub(super) process: usize,
    pub(super) name: String,
    pub(super) store: Arc<SimStore>,
    tasks: Vec<Task>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
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
        // Once nothing is lost any more, less often is often enough.
        let pause = self.times.poll * if self.calm { 2 } else { 1 };
        self.later(process, pause, move |w| w.poll_shard(d, shard));
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
        let longest = *self.rng.pick(&[40, 40, 500]);
        let stream = Stream::new(gateway, life, outlet, longest);
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

    /// Asks a shard that may be looking at the store.
    pub(super) fn ask_in_turn(&mut self, d: usize, shard: Shard, ask: Ask) {
        let task = &mut self.dispatchers[d].tasks[usize::from(shard)];
        task.inbox.push_back(ask);
        if task.tail.is_some() {
            self.work(d, shard);
        }
    }

    /// One thing after another, as long as the task does not look at the store.
    fn work(&mut self, d: usize, shard: Shard) {
        loop {
            let task = &mut self.dispatchers[d].tasks[usize::from(shard)];
            let Some(tail) = &mut task.tail else { return };
            match task.inbox.pop_front() {
                None => break,
                Some(Ask::Look) => self.look(d, shard),
                Some(Ask::Push(change)) => {
                    let mut burst = vec![Change::clone(&change)];
                    while let Some(Ask::Push(change)) = task.inbox.front() {
                        burst.push(Change::clone(change));
                        task.inbox.pop_front();
                    }
                    match tail.push(&burst) {
                        Some(states) => {
                            self.route_states(d, shard, &states);
                            self.mark(d, shard);
                        }
                        None => self.look(d, shard),
                    }
                }
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
                    if ahead || task.doubt {
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
            task.doubt = !matches!(news, Ok(News::Current(_) | News::Whole(_)));
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
                let mut withdrawn = view.withdrawn(&key.0, &key.1);
                withdrawn.sort_by(|a, b| a.user.cmp(&b.user));
                Part {
                    topic: key.clone(),
                    members,
                    withdrawn,
                }
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
}
