//! What waits for one client. Presence is state, so a client that reads slowly costs little and
//! is never dropped for it: of each topic only the newest word on each person waits, and past a
//! bound the topic's whole state takes the place of what waited.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use adsum_core::{Topic, UserId, hold::Word};
use adsum_proto::client::{Close, Encoding, Ref, frame::ServerFrame};
use adsum_telemetry::metrics::metrics;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::hub::{Delivery, Entry, TopicState};

/// The number of a watched topic in an outbox.
pub(crate) type SlotId = u64;

/// Entries of a topic that may wait before they are looked through for older words.
const MERGE_FROM: usize = 64;

/// All topics of a client together may have so many times the entries of one.
const TOPICS_TOGETHER: usize = 10;

/// Bytes that are encoded ahead of a socket.
const BATCH_BYTES: usize = 64 * 1024;

/// What is watched: tells its state again when too much has waited.
pub(crate) trait Watched: fmt::Debug + Send + Sync {
    /// Its name.
    fn topic(&self) -> &Topic;

    /// Puts the state into the outbox of this watcher.
    fn restate(&self, watcher: u64);
}

/// Where a frame may go at once when nothing waits before it. That saves waking the task of the
/// connection, which costs as much as the write itself.
pub(crate) trait Direct: fmt::Debug + Send + Sync {
    /// Writes as much of a frame as can be without waiting; answers the rest, as it has to follow
    /// before anything else.
    fn write(&self, frame: &Bytes) -> Option<Bytes>;
}

/// Bounds of an outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Answers that wait.
    pub(crate) answers: usize,
    /// Entries of one topic that wait.
    pub(crate) entries: usize,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    encoding: Encoding,
    bounds: Bounds,
    inner: Mutex<Inner>,
    ready: Notify,
    mail: Notify,
    /// The most entries that ever waited in an outbox of this gateway.
    peak: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Without it, everything is queued.
    direct: Option<Box<dyn Direct>>,
    /// What was taken is being written: what comes now has to wait.
    writing: bool,
    /// The rest of a frame that was written in part.
    rest: Option<Bytes>,
    queue: VecDeque<Out>,
    /// A client watches few: looked through, not hashed.
    topics: Vec<(SlotId, Waiting)>,
    next_slot: SlotId,
    answers: usize,
    entries: usize,
    words: VecDeque<Word>,
    /// The echo of the last ping.
    pong: Option<Bytes>,
    close: Option<Close>,
    closed: bool,
}

#[derive(Debug)]
enum Out {
    Answer(Bytes),
    State(SlotId, Arc<TopicState>, Option<Ref>, bool),
    /// A turn of a topic's deliveries; void if the topic's turn has another number by now.
    Turn(SlotId, u64),
}

#[derive(Debug)]
struct Waiting {
    topic: Arc<dyn Watched>,
    watcher: u64,
    offset: u64,
    deliveries: Vec<Arc<Delivery>>,
    entries: usize,
    merge_at: usize,
    /// A state is queued, and what comes after it must not overtake it.
    turn: u64,
    queued: bool,
    dirty: bool,
}

/// What a connection has to write, in this order.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// The rest of a frame, which has no head of its own.
    pub(crate) rest: Option<Bytes>,
    /// The echo of a ping.
    pub(crate) pong: Option<Bytes>,
    pub(crate) frames: Vec<Bytes>,
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_none() && self.pong.is_none() && self.frames.is_empty()
    }
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) writes: Writes,
    /// Topics whose state is to be fetched: see [`Watched::restate`].
    pub(crate) dirty: Vec<(Arc<dyn Watched>, u64)>,
    /// After the frames, the connection is closed for this reason.
    pub(crate) close: Option<Close>,
}

impl Outbox {
    pub(crate) fn new(
        encoding: Encoding,
        bounds: Bounds,
        peak: Arc<AtomicUsize>,
        direct: Option<Box<dyn Direct>>,
    ) -> Arc<Self> {
        let inner = Inner {
            direct,
            ..Inner::default()
        };
        Arc::new(Self {
            encoding,
            bounds,
            inner: Mutex::new(inner),
            ready: Notify::new(),
            mail: Notify::new(),
            peak,
        })
    }

    pub(crate) const fn encoding(&self) -> Encoding {
        self.encoding
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer, or news that are not about a topic.
    pub(crate) fn answer(&self, frame: &ServerFrame) {
        let bytes = self.encoding.encode(frame);
        let mut inner = self.lock();
        if inner.is_idle() {
            return self.direct(inner, &bytes);
        }
        if inner.close.is_none() && inner.owe(self.bounds.answers) {
            inner.queue.push_back(Out::Answer(bytes));
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// Writes at once: nothing waits before it.
    fn direct(&self, mut inner: MutexGuard<'_, Inner>, frame: &Bytes) {
        let rest = inner.direct.as_ref().and_then(|direct| direct.write(frame));
        if rest.is_some() {
            inner.rest = rest;
            drop(inner);
            self.ready.notify_one();
        }
    }

    /// The echo of a ping. Of several that wait the last is enough.
    pub(crate) fn pong(&self, payload: Bytes) {
        self.lock().pong = Some(payload);
        self.ready.notify_one();
    }

    /// What is queued is still sent, then the connection is closed.
    pub(crate) fn close(&self, close: Close) {
        self.lock().close.get_or_insert(close);
        self.ready.notify_one();
    }

    /// The connection is gone: nothing is kept for it any more.
    pub(crate) fn abandon(&self) {
        let mut inner = self.lock();
        *inner = Inner {
            closed: true,
            ..Inner::default()
        };
    }

    /// A word of the store about the connection's session.
    pub(crate) fn word(&self, word: Word) {
        self.lock().words.push_back(word);
        self.mail.notify_one();
    }

    /// Waits for the next word.
    pub(crate) async fn next_word(&self) -> Word {
        loop {
            if let Some(word) = pop(&mut self.lock().words) {
                return word;
            }
            self.mail.notified().await;
        }
    }

    pub(crate) fn add(&self, topic: Arc<dyn Watched>, watcher: u64) -> SlotId {
        let mut inner = self.lock();
        let slot = inner.next_slot;
        inner.next_slot += 1;
        let waiting = Waiting {
            topic,
            watcher,
            offset: 0,
            deliveries: Vec::new(),
            entries: 0,
            merge_at: MERGE_FROM,
            turn: 0,
            queued: false,
            dirty: false,
        };
        if !inner.closed {
            inner.topics.push((slot, waiting));
        }
        slot
    }

    pub(crate) fn remove(&self, slot: SlotId) {
        let mut inner = self.lock();
        if let Some(at) = inner.topics.iter().position(|(s, _)| *s == slot) {
            let (_, waiting) = inner.topics.swap_remove(at);
            inner.entries -= waiting.entries;
        }
    }

    /// The state of a topic: takes the place of all that waited for it.
    pub(crate) fn state(
        &self,
        slot: SlotId,
        state: Arc<TopicState>,
        r#ref: Option<Ref>,
        known: bool,
    ) {
        let mut inner = self.lock();
        let Some(waiting) = waiting(&mut inner.topics, slot) else {
            return;
        };
        let dropped = waiting.clear();
        waiting.dirty = false;
        waiting.queued = false;
        // A turn that is queued before this state is void.
        waiting.turn += 1;
        inner.entries -= dropped;
        // So is a state that nobody asked for and that is not sent yet; an answer is owed.
        inner.queue.retain(|out| match out {
            Out::State(s, _, None, _) | Out::Turn(s, _) => *s != slot,
            Out::Answer(_) | Out::State(..) => true,
        });
        if r#ref.is_some() && !inner.owe(self.bounds.answers) {
            return self.ready.notify_one();
        }
        inner.queue.push_back(Out::State(slot, state, r#ref, known));
        drop(inner);
        self.ready.notify_one();
    }

    /// A diff of a topic, written at once if nothing waits and it is so wished. Answers how many
    /// entries wait now.
    pub(crate) fn tell(&self, slot: SlotId, delivery: Arc<Delivery>, at_once: bool) -> usize {
        let mut inner = self.lock();
        let total = inner.entries;
        let Some(waiting) = waiting(&mut inner.topics, slot) else {
            return 0;
        };
        if waiting.dirty {
            return total;
        }
        let before = waiting.entries;
        waiting.push(delivery);
        if waiting.entries > waiting.merge_at {
            waiting.merge();
        }
        let all = total - before + waiting.entries;
        let too_much = waiting.entries > self.bounds.entries || all > self.bounds.together();
        if too_much {
            waiting.clear();
            waiting.dirty = true;
            metrics().resyncs.one();
        }
        let after = waiting.entries;
        let turn = (!waiting.queued).then_some(waiting.turn);
        waiting.queued = true;
        let depth = total - before + after;
        inner.entries = depth;
        // Mostly a read, which all cores may do at once.
        if inner.entries > self.peak.load(Relaxed) {
            self.peak.fetch_max(inner.entries, Relaxed);
        }
        let Some(turn) = turn else {
            return depth;
        };
        if at_once && !too_much && inner.is_idle() {
            let frame = inner.turn(slot, turn, self.encoding, &mut Vec::new());
            if let Some(frame) = frame {
                self.direct(inner, &frame);
            }
            return depth;
        }
        inner.queue.push_back(Out::Turn(slot, turn));
        drop(inner);
        self.ready.notify_one();
        depth
    }

    /// Waits until there is something to write. What was taken before has been written.
    pub(crate) async fn wait(&self) {
        self.lock().writing = false;
        while self.lock().is_empty() {
            self.ready.notified().await;
        }
    }

    /// Takes what is to be written now, in order, at most some tens of KiB of it.
    pub(crate) fn take(&self) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut inner = self.lock();
        batch.writes.rest = inner.rest.take();
        batch.writes.pong = inner.pong.take();
        while bytes < BATCH_BYTES
            && let Some(out) = pop(&mut inner.queue)
        {
            let frame = match out {
                Out::Answer(frame) => {
                    inner.answers -= 1;
                    Some(frame)
                }
                Out::State(slot, state, r#ref, known) => {
                    inner.answers -= usize::from(r#ref.is_some());
                    inner.state_frame(slot, &state, r#ref.as_ref(), known, self.encoding)
                }
                Out::Turn(slot, turn) => inner.turn(slot, turn, self.encoding, &mut batch.dirty),
            };
            bytes += frame.as_ref().map_or(0, Bytes::len);
            batch.writes.frames.extend(frame);
        }
        if inner.queue.is_empty() && batch.dirty.is_empty() {
            batch.close = inner.close;
        }
        inner.writing = !batch.writes.is_empty();
        batch
    }
}

impl Bounds {
    /// Entries of all topics together that wait.
    pub(crate) const fn together(&self) -> usize {
        TOPICS_TOGETHER * self.entries
    }
}

/// The first of what waits. An empty queue keeps no room: most are empty most of the time.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
    first
}

fn waiting(topics: &mut [(SlotId, Waiting)], slot: SlotId) -> Option<&mut Waiting> {
    let mut topics = topics.iter_mut();
    topics.find(|(s, _)| *s == slot).map(|(_, waiting)| waiting)
}

impl Inner {
    /// Whether there is nothing to do.
    fn is_empty(&self) -> bool {
        let nothing = self.rest.is_none() && self.pong.is_none() && self.close.is_none();
        nothing && self.queue.is_empty()
    }

    /// Whether a frame may be written by whoever has it: nothing is before it.
    fn is_idle(&self) -> bool {
        self.direct.is_some() && !self.writing && self.is_empty()
    }

    /// One more answer waits; `false` if that is too much: who asks and asks and does not read
    /// is closed.
    fn owe(&mut self, limit: usize) -> bool {
        if self.answers < limit {
            self.answers += 1;
            return true;
        }
        self.queue.clear();
        self.answers = 0;
        self.close = Some(Close::TooMany);
        false
    }

    fn state_frame(
        &mut self,
        slot: SlotId,
        state: &TopicState,
        r#ref: Option<&Ref>,
        known: bool,
        encoding: Encoding,
    ) -> Option<Bytes> {
        let waiting = waiting(&mut self.topics, slot)?;
        waiting.offset += 1;
        let (topic, offset) = (waiting.topic.topic(), waiting.offset);
        Some(if known {
            state.unchanged(encoding, topic, r#ref, offset)
        } else {
            state.frame(encoding, topic, r#ref, offset)
        })
    }

    fn turn(
        &mut self,
        slot: SlotId,
        turn: u64,
        encoding: Encoding,
        dirty: &mut Vec<(Arc<dyn Watched>, u64)>,
    ) -> Option<Bytes> {
        let waiting = waiting(&mut self.topics, slot)?;
        if waiting.turn != turn {
            return None;
        }
        waiting.queued = false;
        if waiting.dirty {
            dirty.push((Arc::clone(&waiting.topic), waiting.watcher));
            return None;
        }
        // All of it goes now, whatever is left of it in one diff.
        self.entries -= waiting.entries;
        if waiting.deliveries.len() > 1 {
            waiting.merge();
        }
        let delivery = waiting.deliveries.pop();
        waiting.clear();
        let delivery = delivery.filter(|d| !d.entries.is_empty() || d.count.is_some())?;
        waiting.offset += 1;
        Some(delivery.frame(encoding, waiting.topic.topic(), waiting.offset))
    }
}

/// A diff that only tells a count costs something, too.
fn weight(delivery: &Delivery) -> usize {
    delivery.entries.len().max(1)
}

impl Waiting {
    fn push(&mut self, delivery: Arc<Delivery>) {
        self.entries += weight(&delivery);
        self.deliveries.push(delivery);
    }

    /// Forgets what waits; answers how many entries that was.
    fn clear(&mut self) -> usize {
        self.deliveries = Vec::new();
        self.merge_at = MERGE_FROM;
        std::mem::take(&mut self.entries)
    }

    /// Makes one diff of all that waits: the newest word on each person, as news to somebody who
    /// knows what was sent last.
    fn merge(&mut self) {
        metrics()
            .conflations
            .add(self.deliveries.len().saturating_sub(1));
        let count = self.deliveries.iter().rev().find_map(|d| d.count);
        let mut order: Vec<UserId> = Vec::new();
        let mut people: HashMap<UserId, (bool, Entry)> = HashMap::new();
        for entry in self.deliveries.iter().flat_map(|d| &d.entries) {
            let known = !matches!(entry, Entry::Join(_));
            people
                .entry(entry.user().clone())
                .and_modify(|(_, newest)| *newest = entry.clone())
                .or_insert_with(|| {
                    order.push(entry.user().clone());
                    (known, entry.clone())
                });
        }
        let merged = order.iter().filter_map(|user| {
            let (known, newest) = people.remove(user)?;
            match (known, newest) {
                (false, Entry::Join(told) | Entry::Update(told)) => Some(Entry::Join(told)),
                (true, Entry::Join(told) | Entry::Update(told)) => Some(Entry::Update(told)),
                (true, leave @ Entry::Leave(_)) => Some(leave),
                (false, Entry::Leave(_)) => None,
            }
        });
        let merged = Arc::new(Delivery::new(merged.collect(), count));
        self.entries = weight(&merged);
        self.merge_at = MERGE_FROM.max(2 * self.entries);
        self.deliveries = vec![merged];
    }
}
