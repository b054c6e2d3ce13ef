//! What waits for one client. Presence is state, so a client that reads slowly costs little and
//! is never dropped for it: of each topic only the newest word on each person waits, and past a
//! bound the topic's whole state takes the place of what waited.

mod draft;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use adsum_core::{Topic, hold::Word};
use adsum_proto::client::{Close, Encoding, Ref, frame::ServerFrame};
use adsum_telemetry::metrics::metrics;
use bytes::Bytes;

pub(crate) use self::draft::{Draft, HEAD};
use self::waiting::Waiting;
use crate::hub::{Delivery, TopicState};

/// The number of a watched topic in an outbox.
pub(crate) type SlotId = u32;

/// All topics of a client together may have so many times the entries of one.
const TOPICS_TOGETHER: usize = 10;

/// Bytes that are encoded ahead of a socket.
const BATCH_BYTES: usize = 64 * 1024;

/// The number of a watcher in what it watches; taken again by another when it has left.
pub(crate) type WatcherId = usize;

/// What is watched: tells its state again when too much has waited.
pub(crate) trait Watched: fmt::Debug + Send + Sync {
    /// Its name.
    fn topic(&self) -> &Topic;

    /// Puts the state into the outbox of this watcher.
    fn restate(&self, watcher: WatcherId);
}

/// Where a frame may go at once when nothing waits before it. That saves waking the task of the
/// connection, which costs as much as the write itself.
pub(crate) trait Direct: fmt::Debug + Send + Sync {
    /// Writes as much of a frame as can be without waiting; answers the rest, as it has to follow
    /// before anything else.
    fn write(&self, encoding: Encoding, frame: &mut Draft) -> Option<Bytes>;
}

/// What all outboxes of a gateway have in common.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Answers that wait.
    pub(crate) answers: u32,
    /// Entries of one topic that wait.
    pub(crate) entries: usize,
    /// The most entries that ever waited in one.
    pub(crate) peak: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    encoding: Encoding,
    bounds: Arc<Bounds>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Of the one task that waits here, for words, for something to write, or for both.
    waker: Option<Waker>,
    /// Without it, everything is queued.
    direct: Option<Arc<dyn Direct>>,
    /// What was taken is being written: what comes now has to wait.
    writing: bool,
    /// The rest of a frame that was written in part.
    rest: Option<Box<Bytes>>,
    queue: Queue<Out>,
    /// A client watches few: looked through, not hashed.
    topics: Vec<Waiting>,
    next_slot: SlotId,
    answers: u32,
    entries: usize,
    words: Queue<Word>,
    /// The echo of the last ping.
    pong: Option<Box<Bytes>>,
    close: Option<Close>,
    closed: bool,
}

/// Most are empty most of the time, and then take no room.
type Queue<T> = Option<Box<VecDeque<T>>>;

#[derive(Debug)]
enum Out {
    Answer(Bytes),
    State(SlotId, Arc<TopicState>, Option<Ref>, bool),
    /// A turn of a topic's deliveries; void if the topic's turn has another number by now.
    Turn(SlotId, u32),
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
    pub(crate) dirty: Vec<(Arc<dyn Watched>, WatcherId)>,
    /// After the frames, the connection is closed for this reason.
    pub(crate) close: Option<Close>,
}

impl Outbox {
    pub(crate) fn new(
        encoding: Encoding,
        bounds: Arc<Bounds>,
        direct: Option<Arc<dyn Direct>>,
    ) -> Arc<Self> {
        let inner = Inner {
            direct,
            ..Inner::default()
        };
        Arc::new(Self {
            encoding,
            bounds,
            inner: Mutex::new(inner),
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
            return self.direct(inner, &mut Draft::of(&bytes));
        }
        if inner.close.is_none() && inner.owe(self.bounds.answers) {
            push(&mut inner.queue, Out::Answer(bytes));
        }
        wake(inner);
    }

    /// Writes at once: nothing waits before it.
    fn direct(&self, mut inner: MutexGuard<'_, Inner>, frame: &mut Draft) {
        let direct = inner.direct.as_ref();
        let rest = direct.and_then(|direct| direct.write(self.encoding, frame));
        if rest.is_some() {
            inner.rest = rest.map(Box::new);
            wake(inner);
        }
    }

    /// The echo of a ping. Of several that wait the last is enough.
    pub(crate) fn pong(&self, payload: Bytes) {
        let mut inner = self.lock();
        inner.pong = Some(Box::new(payload));
        wake(inner);
    }

    /// What is queued is still sent, then the connection is closed.
    pub(crate) fn close(&self, close: Close) {
        let mut inner = self.lock();
        inner.close.get_or_insert(close);
        wake(inner);
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
        let mut inner = self.lock();
        push(&mut inner.words, word);
        wake(inner);
    }

    /// Waits for the next word.
    pub(crate) async fn next_word(&self) -> Word {
        poll_fn(|cx| self.poll(cx, |inner| pop(&mut inner.words))).await
    }

    /// Looks for something; if it is not there yet, the task is woken when it may be.
    fn poll<T>(&self, cx: &Context<'_>, look: impl FnOnce(&mut Inner) -> Option<T>) -> Poll<T> {
        let mut inner = self.lock();
        if let Some(found) = look(&mut inner) {
            return Poll::Ready(found);
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    pub(crate) fn add(&self, topic: Arc<dyn Watched>, watcher: WatcherId) -> SlotId {
        let mut inner = self.lock();
        let slot = inner.next_slot;
        inner.next_slot = slot.wrapping_add(1);
        let waiting = Waiting::new(slot, topic, watcher);
        if !inner.closed {
            // Most watch one, and keep no room for more.
            if inner.topics.is_empty() {
                inner.topics.reserve_exact(1);
            }
            inner.topics.push(waiting);
        }
        slot
    }

    pub(crate) fn remove(&self, slot: SlotId) {
        let mut inner = self.lock();
        if let Some(at) = inner.topics.iter().position(|w| w.slot == slot) {
            let waiting = inner.topics.swap_remove(at);
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
        waiting.turn = waiting.turn.wrapping_add(1);
        inner.entries -= dropped;
        // So is a state that nobody asked for and that is not sent yet; an answer is owed.
        retain(&mut inner.queue, |out| match out {
            Out::State(s, _, None, _) | Out::Turn(s, _) => *s != slot,
            Out::Answer(_) | Out::State(..) => true,
        });
        if r#ref.is_none() || inner.owe(self.bounds.answers) {
            push(&mut inner.queue, Out::State(slot, state, r#ref, known));
        }
        wake(inner);
    }

    /// A diff of a topic, written at once if nothing waits and there is a draft to write it in.
    /// Answers how many entries wait now, or were written.
    pub(crate) fn tell(
        &self,
        slot: SlotId,
        delivery: &Arc<Delivery>,
        at_once: Option<&mut Draft>,
    ) -> usize {
        let mut inner = self.lock();
        let (total, idle) = (inner.entries, inner.is_idle());
        let Some(waiting) = waiting(&mut inner.topics, slot) else {
            return 0;
        };
        if waiting.dirty {
            return total;
        }
        if let Some(draft) = at_once
            && idle
            && delivery.weight() <= self.bounds.entries
        {
            waiting.frame(delivery, self.encoding, draft.begin());
            self.direct(inner, draft);
            return delivery.weight();
        }
        let before = waiting.entries;
        waiting.push(Arc::clone(delivery));
        if waiting.is_long() {
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
        if inner.entries > self.bounds.peak.load(Relaxed) {
            self.bounds.peak.fetch_max(inner.entries, Relaxed);
        }
        let Some(turn) = turn else {
            return depth;
        };
        push(&mut inner.queue, Out::Turn(slot, turn));
        wake(inner);
        depth
    }

    /// Waits until there is something to write. What was taken before has been written.
    pub(crate) async fn wait(&self) {
        self.lock().writing = false;
        poll_fn(|cx| self.poll(cx, |inner| (!inner.is_empty()).then_some(()))).await;
    }

    /// Takes what is to be written now, in order, at most some tens of KiB of it.
    pub(crate) fn take(&self) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut inner = self.lock();
        batch.writes.rest = inner.rest.take().map(|rest| *rest);
        batch.writes.pong = inner.pong.take().map(|pong| *pong);
        while bytes < BATCH_BYTES
            && let Some(out) = pop(&mut inner.queue)
        {
            let frame = match out {
                Out::Answer(frame) => {
                    inner.answers -= 1;
                    Some(frame)
                }
                Out::State(slot, state, r#ref, known) => {
                    inner.answers -= u32::from(r#ref.is_some());
                    inner.state_frame(slot, &state, r#ref.as_ref(), known, self.encoding)
                }
                Out::Turn(slot, turn) => inner.turn(slot, turn, self.encoding, &mut batch.dirty),
            };
            bytes += frame.as_ref().map_or(0, Bytes::len);
            batch.writes.frames.extend(frame);
        }
        if inner.queue.is_none() && batch.dirty.is_empty() {
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

/// Wakes whoever waits, once nobody has the lock.
fn wake(mut inner: MutexGuard<'_, Inner>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn push<T>(queue: &mut Queue<T>, last: T) {
    queue.get_or_insert_default().push_back(last);
}

/// The first of what waits.
fn pop<T>(queue: &mut Queue<T>) -> Option<T> {
    let first = queue.as_mut()?.pop_front();
    queue.take_if(|queue| queue.is_empty());
    first
}

fn retain<T>(queue: &mut Queue<T>, keep: impl FnMut(&T) -> bool) {
    if let Some(waiting) = queue {
        waiting.retain(keep);
    }
    queue.take_if(|queue| queue.is_empty());
}

fn waiting(topics: &mut [Waiting], slot: SlotId) -> Option<&mut Waiting> {
    topics.iter_mut().find(|waiting| waiting.slot == slot)
}

impl Inner {
    /// Whether there is nothing to do.
    fn is_empty(&self) -> bool {
        let nothing = self.rest.is_none() && self.pong.is_none() && self.close.is_none();
        nothing && self.queue.is_none()
    }

    /// Whether a frame may be written by whoever has it: nothing is before it.
    fn is_idle(&self) -> bool {
        self.direct.is_some() && !self.writing && self.is_empty()
    }

    /// One more answer waits; `false` if that is too much: who asks and asks and does not read
    /// is closed.
    fn owe(&mut self, limit: u32) -> bool {
        if self.answers < limit {
            self.answers += 1;
            return true;
        }
        self.queue = None;
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
        turn: u32,
        encoding: Encoding,
        dirty: &mut Vec<(Arc<dyn Watched>, WatcherId)>,
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
        let mut frame = Vec::new();
        waiting.frame(&delivery, encoding, &mut frame);
        Some(frame.into())
    }
}
