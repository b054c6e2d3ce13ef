//! One local watcher of a topic: a snapshot, and then what changes. Many of them share the
//! topic's roster; each has a bounded queue of its own.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use adsum_core::{Diff, Item, Origin, Roster, UserId};
use futures::{Stream, StreamExt, task::AtomicWaker};
use tokio::time::{Instant, timeout_at};

use super::{lock, topic::TopicFeed, topics::Topics};

/// Everybody in a topic, as of one moment.
#[derive(Debug, Default)]
pub struct Picture {
    /// Who is there, visible or not.
    pub items: Vec<Arc<Item>>,
    /// All shards have sent their part.
    pub complete: bool,
    /// A shard has no source: its members are as they were.
    pub stale: bool,
    /// A shard settles: some may be missing.
    pub settling: bool,
}

/// Where a diff came from, with the times along the way in µs of the wall clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What was caused, and when.
    pub origin: Origin,
    /// When the shard committed it.
    pub committed_us: u64,
    /// When the dispatcher took it.
    pub routed_us: u64,
    /// When it came from there.
    pub received_us: u64,
}

/// Where a diff came from: the fresh changes in it. Most have one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Causes {
    first: Option<Cause>,
    more: Vec<Cause>,
}

impl Causes {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Cause> {
        self.first.iter().chain(&self.more)
    }

    pub(super) fn push(&mut self, cause: Cause) {
        match self.first {
            None => self.first = Some(cause),
            Some(_) => self.more.push(cause),
        }
    }
}

/// What changed in a topic at one time.
#[derive(Debug, PartialEq, Eq)]
pub struct TopicDiff {
    /// Who came, left or looks different.
    pub diff: Diff,
    /// For those who measure.
    pub causes: Causes,
}

/// What a watcher is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicEvent {
    /// The picture changed.
    Diff(Arc<TopicDiff>),
    /// The last missing part has come.
    Complete,
    /// Part of the picture may be old from now on, or is not any more.
    Stale(bool),
    /// A list of contacts has come: who may see this user has to be judged again.
    Contacts(UserId),
    /// Too much was waiting, and it is gone: take a [`snapshot`](Watch::snapshot). Nothing
    /// more comes before that.
    Resync,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Overflow {
    #[default]
    None,
    Untold,
    Told,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<TopicEvent>,
    overflow: Overflow,
    closed: bool,
}

/// What waits for one watcher.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    waker: AtomicWaker,
    limit: usize,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            waker: AtomicWaker::new(),
            limit,
        }
    }

    /// `false` if that was too much: all that waits has gone for one [`TopicEvent::Resync`].
    pub(super) fn push(&self, event: TopicEvent) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.closed || waiting.overflow != Overflow::None {
            return true;
        }
        let fits = waiting.events.len() < self.limit;
        if fits {
            waiting.events.push_back(event);
        } else {
            waiting.events = VecDeque::new();
            waiting.overflow = Overflow::Untold;
        }
        drop(waiting);
        self.waker.wake();
        fits
    }

    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.waker.wake();
    }

    /// What waits is part of a snapshot already.
    fn clear(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.events.clear();
        waiting.overflow = Overflow::None;
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<TopicEvent>> {
        // Registered first: what is pushed after the look wakes.
        self.waker.register(cx.waker());
        let mut waiting = lock(&self.waiting);
        if waiting.overflow == Overflow::Untold {
            waiting.overflow = Overflow::Told;
            return Poll::Ready(Some(TopicEvent::Resync));
        }
        match waiting.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if waiting.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// A watcher: a stream of [`TopicEvent`]s that follow its last snapshot without gap or overlap.
/// It ends when the feed stops. Dropping it is how to stop watching.
#[derive(Debug)]
pub struct Watch {
    pub(super) topic: Arc<TopicFeed>,
    pub(super) topics: Arc<Topics>,
    pub(super) id: u64,
    pub(super) queue: Arc<Queue>,
    pub(super) patient_until: Instant,
}

impl Watch {
    /// The picture now. All events after it, and none before it, are still to come.
    pub fn snapshot(&self) -> Arc<Picture> {
        self.topic.snapshot(|| self.queue.clear())
    }

    /// The first snapshot: waits until it is complete, but not longer than the topic may take
    /// for it.
    pub async fn ready(&mut self) -> Arc<Picture> {
        let until = self.patient_until;
        let complete = async {
            while !self.topic.complete() {
                match self.next().await {
                    Some(TopicEvent::Resync) => self.queue.clear(),
                    Some(_) => {}
                    None => return,
                }
            }
        };
        // Late or not: the snapshot says itself whether it is complete.
        let _ = timeout_at(until, complete).await;
        self.snapshot()
    }

    /// Looks at the roster under its lock; be brief. It may be ahead of the events taken so far.
    pub fn peek<T>(&self, look: impl FnOnce(&Roster) -> T) -> T {
        self.topic.peek(look)
    }
}

impl Stream for Watch {
    type Item = TopicEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TopicEvent>> {
        self.queue.poll(cx)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.topics.leave(&self.topic, self.id);
    }
}
