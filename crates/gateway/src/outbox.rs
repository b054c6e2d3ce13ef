//! What waits for one client. Presence is state, so a client that reads slowly costs little and
//! is never dropped for it: of each topic only the newest word on each person waits, and past a
//! bound the topic's whole state takes the place of what waited.

mod draft;
mod load;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    fmt,
    future::poll_fn,
    hint::black_box,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use adsum_core::{Topic, hold::Word};
use adsum_proto::client::{Close, Encoding, Ref, frame::ServerFrame};
use adsum_telemetry::metrics::metrics;
use bytes::Bytes;

pub(crate) use self::draft::{Draft, HEAD};
use self::{
    load::{Load, Out},
    waiting::Waiting,
};
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

    /// Reads what a write reads first: see [`Outbox::warm`].
    fn warm(&self) {}
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

/// In this order, and with the two counters of its `Arc`, it fills two lines of the cache: one who
/// tells thousands of clients waits for memory more than for anything else. The first line is the
/// lock and what a diff is told with under it, the second can be read without.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    /// Without it, everything is queued. Not under the lock, to be read before that; the socket
    /// stays open as long as this, and nobody keeps an outbox for longer than its connection.
    direct: Option<Arc<dyn Direct>>,
    bounds: Arc<Bounds>,
    next_slot: AtomicU32,
    encoding: Encoding,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Inner {
    load: Option<Box<Load>>,
    /// Most clients watch one. Others are in the load, and none is there if this is empty.
    first: Option<Waiting>,
    /// Of the one task that waits here, for words, for something to write, or for both.
    waker: Option<Waker>,
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
        Arc::new(Self {
            inner: Mutex::default(),
            direct,
            bounds,
            next_slot: AtomicU32::new(0),
            encoding,
        })
    }

    /// Reads a little of all that [`tell`](Self::tell) is going to need of some: a prefetch in
    /// safe Rust. What is not in the cache comes for all of them at the same time, instead of for
    /// each one while its frame waits for it.
    pub(crate) fn warm<'a>(some: impl Iterator<Item = &'a Arc<Self>> + Clone) {
        for outbox in some.clone() {
            // Of either line one.
            black_box((Arc::strong_count(outbox), outbox.encoding));
        }
        for direct in some.filter_map(|outbox| outbox.direct.as_ref()) {
            direct.warm();
        }
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
        if self.is_idle(&inner) {
            return self.write(inner, &mut Draft::of(&bytes));
        }
        let load = inner.load();
        if load.close.is_none() && load.owe(self.bounds.answers) {
            load.queue.push_back(Out::Answer(bytes));
        }
        wake(inner);
    }

    /// Whether a frame may be written by whoever has it: nothing is before it.
    fn is_idle(&self, inner: &Inner) -> bool {
        let free = |load: &Load| !load.writing && !load.closed && load.is_silent();
        self.direct.is_some() && inner.load.as_deref().is_none_or(free)
    }

    /// Writes at once: nothing waits before it.
    fn write(&self, mut inner: MutexGuard<'_, Inner>, frame: &mut Draft) {
        let direct = self.direct.as_ref();
        let rest = direct.and_then(|direct| direct.write(self.encoding, frame));
        if rest.is_some() {
            inner.load().rest = rest.map(Box::new);
            wake(inner);
        }
    }

    /// The echo of a ping. Of several that wait the last is enough.
    pub(crate) fn pong(&self, payload: Bytes) {
        let mut inner = self.lock();
        inner.load().pong = Some(Box::new(payload));
        wake(inner);
    }

    /// What is queued is still sent, then the connection is closed.
    pub(crate) fn close(&self, close: Close) {
        let mut inner = self.lock();
        inner.load().close.get_or_insert(close);
        wake(inner);
    }

    /// The connection is gone: nothing is kept for it any more.
    pub(crate) fn abandon(&self) {
        let closed = Load {
            closed: true,
            ..Load::default()
        };
        *self.lock() = Inner {
            load: Some(Box::new(closed)),
            ..Inner::default()
        };
    }

    /// A word of the store about the connection's session.
    pub(crate) fn word(&self, word: Word) {
        let mut inner = self.lock();
        inner.load().words.push_back(word);
        wake(inner);
    }

    /// Waits for the next word.
    pub(crate) async fn next_word(&self) -> Word {
        poll_fn(|cx| self.poll(cx, Inner::next_word)).await
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
        let slot = self.next_slot.fetch_add(1, Relaxed);
        self.lock().add(Waiting::new(slot, topic, watcher));
        slot
    }

    pub(crate) fn remove(&self, slot: SlotId) {
        self.lock().remove(slot);
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
        let Some(waiting) = inner.waiting(slot) else {
            return;
        };
        let dropped = waiting.clear();
        waiting.dirty = false;
        waiting.queued = false;
        let load = inner.load();
        load.entries -= dropped;
        // A turn that is queued before this state is void. So is a state that nobody asked for
        // and that is not sent yet; an answer is owed.
        load.queue.retain(|out| match out {
            Out::State(s, _, None, _) | Out::Turn(s) => *s != slot,
            Out::Answer(_) | Out::State(..) => true,
        });
        if r#ref.is_none() || load.owe(self.bounds.answers) {
            let state = Out::State(slot, state, r#ref, known);
            load.queue.push_back(state);
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
        let idle = self.is_idle(&inner);
        let Some(waiting) = inner.waiting(slot) else {
            return 0;
        };
        if waiting.dirty {
            return inner.entries();
        }
        if let Some(draft) = at_once
            && idle
            && delivery.weight() <= self.bounds.entries
        {
            waiting.frame(delivery, self.encoding, draft.begin());
            self.write(inner, draft);
            return delivery.weight();
        }
        self.queue(inner, slot, delivery)
    }

    /// A diff that has to wait. Answers how many entries do now.
    fn queue(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        slot: SlotId,
        delivery: &Arc<Delivery>,
    ) -> usize {
        let total = inner.entries();
        let Some(waiting) = inner.waiting(slot) else {
            return total;
        };
        let others = total - waiting.entries();
        waiting.push(Arc::clone(delivery));
        let entries = waiting.entries();
        if entries > self.bounds.entries || others + entries > self.bounds.together() {
            waiting.clear();
            waiting.dirty = true;
            metrics().resyncs.one();
        }
        let depth = others + waiting.entries();
        let queued = std::mem::replace(&mut waiting.queued, true);
        let load = inner.load();
        load.entries = depth;
        // Mostly a read, which all cores may do at once.
        if depth > self.bounds.peak.load(Relaxed) {
            self.bounds.peak.fetch_max(depth, Relaxed);
        }
        if !queued {
            load.queue.push_back(Out::Turn(slot));
            wake(inner);
        }
        depth
    }

    /// Waits until there is something to write. What was taken before has been written.
    pub(crate) async fn wait(&self) {
        self.lock().written();
        poll_fn(|cx| self.poll(cx, |inner| (!inner.is_empty()).then_some(()))).await;
    }

    /// Takes what is to be written now, in order, at most some tens of KiB of it.
    pub(crate) fn take(&self) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut inner = self.lock();
        if let Some(load) = &mut inner.load {
            batch.writes.rest = load.rest.take().map(|rest| *rest);
            batch.writes.pong = load.pong.take().map(|pong| *pong);
        }
        while bytes < BATCH_BYTES
            && let Some(out) = inner.load.as_mut().and_then(|load| load.next())
        {
            let frame = inner.frame(out, self.encoding, &mut batch.dirty);
            bytes += frame.as_ref().map_or(0, Bytes::len);
            batch.writes.frames.extend(frame);
        }
        if let Some(load) = &mut inner.load {
            if load.queue.is_empty() && batch.dirty.is_empty() {
                batch.close = load.close;
            }
            load.writing = !batch.writes.is_empty();
        }
        inner.tidy();
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

impl Inner {
    /// To put something into it.
    fn load(&mut self) -> &mut Load {
        self.load.get_or_insert_default()
    }

    /// Something was taken out of the load: without any, there is no room for it.
    fn tidy(&mut self) {
        self.load.take_if(|load| load.is_nothing());
    }

    /// Whether there is nothing to do.
    fn is_empty(&self) -> bool {
        self.load.as_deref().is_none_or(Load::is_silent)
    }

    /// How many wait, of all topics.
    fn entries(&self) -> usize {
        self.load.as_ref().map_or(0, |load| load.entries)
    }

    fn next_word(&mut self) -> Option<Word> {
        let word = self.load.as_mut()?.next_word();
        self.tidy();
        word
    }

    /// What was taken before has been written.
    fn written(&mut self) {
        if let Some(load) = &mut self.load {
            load.writing = false;
        }
        self.tidy();
    }

    fn waiting(&mut self, slot: SlotId) -> Option<&mut Waiting> {
        match &mut self.first {
            Some(first) if first.slot == slot => Some(first),
            _ => {
                let others = &mut self.load.as_mut()?.topics;
                others.iter_mut().find(|waiting| waiting.slot == slot)
            }
        }
    }

    fn add(&mut self, waiting: Waiting) {
        if self.load.as_ref().is_some_and(|load| load.closed) {
            return;
        }
        match &self.first {
            None => self.first = Some(waiting),
            Some(_) => self.load().topics.push(waiting),
        }
    }

    fn remove(&mut self, slot: SlotId) {
        let load = self.load.as_deref_mut();
        let removed = match &self.first {
            Some(first) if first.slot == slot => {
                let next = load.and_then(|load| load.topics.pop());
                std::mem::replace(&mut self.first, next)
            }
            _ => load.and_then(|load| load.remove(slot)),
        };
        if let (Some(removed), Some(load)) = (removed, &mut self.load) {
            load.entries -= removed.entries();
        }
        self.tidy();
    }

    /// The frame for what comes next, if there still is one.
    fn frame(
        &mut self,
        out: Out,
        encoding: Encoding,
        dirty: &mut Vec<(Arc<dyn Watched>, WatcherId)>,
    ) -> Option<Bytes> {
        match out {
            Out::Answer(frame) => Some(frame),
            Out::State(slot, state, r#ref, known) => {
                self.state_frame(slot, &state, r#ref.as_ref(), known, encoding)
            }
            Out::Turn(slot) => self.turn(slot, encoding, dirty),
        }
    }

    fn state_frame(
        &mut self,
        slot: SlotId,
        state: &TopicState,
        r#ref: Option<&Ref>,
        known: bool,
        encoding: Encoding,
    ) -> Option<Bytes> {
        let waiting = self.waiting(slot)?;
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
        encoding: Encoding,
        dirty: &mut Vec<(Arc<dyn Watched>, WatcherId)>,
    ) -> Option<Bytes> {
        let waiting = self.waiting(slot)?;
        waiting.queued = false;
        if waiting.dirty {
            dirty.push((Arc::clone(&waiting.topic), waiting.watcher));
            return None;
        }
        // All of it goes now, whatever is left of it in one diff.
        let entries = waiting.entries();
        let delivery = waiting.take();
        let delivery = delivery.filter(|d| !d.is_empty());
        let frame = delivery.map(|delivery| {
            let mut frame = Vec::new();
            waiting.frame(&delivery, encoding, &mut frame);
            frame.into()
        });
        self.load().entries -= entries;
        frame
    }
}
