//! What waits for one gateway: states in order, marks, and parts that are still to be sent. The
//! queue is bounded: a gateway that reads too slowly loses it and gets its topics whole.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use adsum_core::{Topic, UserKey, Version, ring::ShardRing, store::Shard};
use adsum_proto::TopicKey;
use tokio::sync::Notify;

use crate::{interest::StreamId, tail::Routed};

/// States sent in one batch.
const BATCH: usize = 2000;
/// Topics whose parts are asked for at a time: what one gateway holds in memory, at most.
const PARTS: usize = 32;

/// How far a shard was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) version: Version,
    pub(crate) settling: bool,
}

/// What to send next.
pub(crate) enum Next {
    /// States in order, then marks.
    Batch(Vec<(Shard, Arc<Routed>)>, Vec<(Shard, Mark)>),
    /// Parts of these topics in this shard.
    Parts(Shard, Vec<TopicKey>),
    /// Nothing now.
    Idle,
}

#[derive(Default)]
struct Queue {
    topics: HashSet<TopicKey>,
    taken: BTreeSet<Shard>,
    states: VecDeque<(Shard, Arc<Routed>)>,
    marks: BTreeMap<Shard, Mark>,
    parts: BTreeMap<Shard, VecDeque<TopicKey>>,
    /// Shards whose every topic is being sent whole: no mark until that is done, since a mark
    /// says that nothing before it is missing.
    whole: BTreeSet<Shard>,
    /// Where the parts go on, so that a shard with many does not keep others waiting.
    turn: Shard,
}

/// One gateway's stream, as the shards see it.
pub(crate) struct Outlet {
    pub(crate) id: StreamId,
    ring: Arc<ShardRing>,
    limit: usize,
    queue: Mutex<Queue>,
    wake: Notify,
    overflows: AtomicU64,
    closed: AtomicBool,
}

impl Outlet {
    pub(crate) fn new(id: StreamId, ring: Arc<ShardRing>, limit: usize) -> Self {
        Self {
            id,
            ring,
            limit,
            queue: Mutex::default(),
            wake: Notify::new(),
            overflows: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a topic has people in a shard: a user has one shard alone.
    fn concerns(&self, key: &TopicKey, shard: Shard) -> bool {
        match &key.1 {
            Topic::User(user) => {
                self.ring
                    .shard_of(&UserKey::new(key.0.clone(), user.clone()))
                    == shard
            }
            Topic::Room(_) | Topic::Tenant => true,
        }
    }

    /// Waits until there may be something to send.
    pub(crate) async fn ready(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn overflows(&self) -> u64 {
        self.overflows.load(Relaxed)
    }

    /// Knows these topics from now on.
    pub(crate) fn know(&self, topics: &[TopicKey]) {
        self.queue().topics.extend(topics.iter().cloned());
    }

    pub(crate) fn knows(&self, key: &TopicKey) -> bool {
        self.queue().topics.contains(key)
    }

    /// Asks for parts of these topics in all taken shards.
    pub(crate) fn want_everywhere(&self, topics: &[TopicKey]) {
        let mut queue = self.queue();
        for shard in queue.taken.clone() {
            let here = topics.iter().filter(|t| self.concerns(t, shard)).cloned();
            queue.parts.entry(shard).or_default().extend(here);
        }
        drop(queue);
        self.wake.notify_one();
    }

    pub(crate) fn forget(&self, topics: &[TopicKey]) {
        let gone: HashSet<_> = topics.iter().collect();
        let mut queue = self.queue();
        queue.topics.retain(|t| !gone.contains(t));
        queue
            .parts
            .values_mut()
            .for_each(|parts| parts.retain(|t| !gone.contains(t)));
    }

    /// The stream has ended: nothing is kept for it. Answers all its topics.
    pub(crate) fn close(&self) -> HashSet<TopicKey> {
        self.closed.store(true, Relaxed);
        std::mem::take(&mut *self.queue()).topics
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(crate) fn taken(&self) -> Vec<Shard> {
        self.queue().taken.iter().copied().collect()
    }

    /// The shard is served here from now on: parts of `fresh`, or of everything.
    pub(crate) fn serve(&self, shard: Shard, fresh: Option<Vec<TopicKey>>) {
        self.queue().taken.insert(shard);
        match fresh {
            Some(fresh) => {
                self.queue().parts.entry(shard).or_default().extend(fresh);
                self.wake.notify_one();
            }
            None => self.send_whole(shard),
        }
    }

    pub(crate) fn release(&self, shard: Shard) {
        let mut queue = self.queue();
        queue.taken.remove(&shard);
        queue.parts.remove(&shard);
        queue.marks.remove(&shard);
        queue.whole.remove(&shard);
    }

    /// Every topic's part of the shard is sent (again).
    pub(crate) fn send_whole(&self, shard: Shard) {
        let mut queue = self.queue();
        if !queue.taken.contains(&shard) {
            return;
        }
        let all: VecDeque<_> = queue
            .topics
            .iter()
            .filter(|t| self.concerns(t, shard))
            .cloned()
            .collect();
        // A mark from before would vouch for what is sent anew.
        queue.marks.remove(&shard);
        if !all.is_empty() {
            queue.whole.insert(shard);
        }
        queue.parts.insert(shard, all);
        drop(queue);
        self.wake.notify_one();
    }

    /// A state for this gateway. Past the bound everything that waits is dropped.
    pub(crate) fn push(&self, shard: Shard, state: &Arc<Routed>) {
        if self.closed() {
            return;
        }
        let mut queue = self.queue();
        queue.states.push_back((shard, state.clone()));
        let over = queue.states.len() > self.limit;
        if over {
            // Freed, not kept for the next flood.
            queue.states = VecDeque::new();
            let taken: Vec<_> = queue.taken.iter().copied().collect();
            drop(queue);
            self.overflows.fetch_add(1, Relaxed);
            taken.into_iter().for_each(|shard| self.send_whole(shard));
        }
    }

    /// All states up to here were pushed.
    pub(crate) fn mark(&self, shard: Shard, mark: Mark) {
        self.queue().marks.insert(shard, mark);
        self.wake.notify_one();
    }

    /// States first, since they are small and fresh; marks when no state is left before them;
    /// parts when nothing else waits.
    pub(crate) fn next(&self) -> Next {
        let mut queue = self.queue();
        let some = queue.states.len().min(BATCH);
        let states: Vec<_> = queue.states.drain(..some).collect();
        let mut marks = Vec::new();
        if queue.states.is_empty() {
            let Queue {
                marks: waiting,
                whole,
                ..
            } = &mut *queue;
            waiting.retain(|shard, mark| {
                let held = whole.contains(shard);
                if !held {
                    marks.push((*shard, *mark));
                }
                held
            });
        }
        if !states.is_empty() || !marks.is_empty() {
            return Next::Batch(states, marks);
        }
        queue
            .next_parts()
            .map_or(Next::Idle, |(shard, topics)| Next::Parts(shard, topics))
    }

    /// Parts that could not be had now are asked for again.
    pub(crate) fn want_again(&self, shard: Shard, topics: Vec<TopicKey>) {
        let mut queue = self.queue();
        if queue.taken.contains(&shard) {
            queue.parts.entry(shard).or_default().extend(topics);
        }
    }

    /// Parts that were asked for have been sent.
    pub(crate) fn sent_parts(&self, shard: Shard) {
        let mut queue = self.queue();
        if queue.parts.get(&shard).is_none_or(VecDeque::is_empty) {
            queue.parts.remove(&shard);
            queue.whole.remove(&shard);
        }
    }
}

impl Queue {
    fn next_parts(&mut self) -> Option<(Shard, Vec<TopicKey>)> {
        let turn = self.turn;
        let waiting =
            |(shard, topics): (&Shard, &VecDeque<_>)| (!topics.is_empty()).then_some(*shard);
        let shard = self
            .parts
            .range(turn..)
            .chain(self.parts.range(..turn))
            .find_map(waiting)?;
        self.turn = shard.wrapping_add(1);
        let topics = self.parts.get_mut(&shard)?;
        let some = topics.len().min(PARTS);
        Some((shard, topics.drain(..some).collect()))
    }
}
