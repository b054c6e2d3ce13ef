//! The queue between a client and its app. Presence is state: an app that falls behind is told
//! less, not later. Up to the capacity every event is kept; beyond it, what is pending is folded
//! to the net change of each user in each topic. So memory is bounded by what there is to know,
//! and beating never waits for the app.

mod fold;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use adsum_core::Topic;
use futures::Stream;

use crate::Event;

#[derive(Debug)]
struct Inner {
    pending: VecDeque<Event>,
    capacity: usize,
    /// Fold when so many are pending; grows with what can't be folded.
    fold_at: usize,
    waker: Option<Waker>,
    /// Nothing more will come.
    ended: bool,
    /// Nobody reads.
    deaf: bool,
}

/// The end that is written to.
#[derive(Debug)]
pub(crate) struct Queue(Arc<Mutex<Inner>>);

/// What happens to a client, as a stream. It ends after [`Event::Ended`].
///
/// An app that is slow is told less: beyond the capacity of the queue, only the net change of each
/// user in each topic is kept. Who came and went unseen is not told at all. Dropping this is fine
/// for an app that only looks at rosters.
#[derive(Debug)]
pub struct Events(Arc<Mutex<Inner>>);

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    // Every change of it is whole, so a panic of another thread leaves it usable.
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of a queue that keeps so many events as they are.
pub(crate) fn queue(capacity: usize) -> (Queue, Events) {
    let inner = Arc::new(Mutex::new(Inner {
        pending: VecDeque::new(),
        capacity,
        fold_at: capacity,
        waker: None,
        ended: false,
        deaf: false,
    }));
    (Queue(inner.clone()), Events(inner))
}

impl Queue {
    /// Adds events, in order.
    pub(crate) fn extend(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut inner = lock(&self.0);
        if inner.deaf {
            return;
        }
        inner.pending.extend(events);
        if inner.pending.len() > inner.fold_at {
            let pending = std::mem::take(&mut inner.pending);
            inner.pending = fold::fold(pending);
            inner.fold_at = inner.capacity.max(inner.pending.len() * 2);
        }
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What is pending of a topic is of no interest any more.
    pub(crate) fn forget(&self, topic: &Topic) {
        lock(&self.0)
            .pending
            .retain(|event| fold::topic(event) != Some(topic));
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut inner = lock(&self.0);
        inner.ended = true;
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Events {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        futures::StreamExt::next(self).await
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        lock(&self.0).pop()
    }

    /// How many are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        lock(&self.0).pending.len()
    }
}

impl Inner {
    fn pop(&mut self) -> Option<Event> {
        let event = self.pending.pop_front();
        if self.pending.is_empty() {
            // A burst must not be paid for ever after: 20,000 of these may live in one process.
            self.fold_at = self.capacity;
            if self.pending.capacity() > 64 {
                self.pending = VecDeque::new();
            }
        }
        event
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut inner = lock(&self.0);
        match inner.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None if inner.ended => Poll::Ready(None),
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mut inner = lock(&self.0);
        inner.deaf = true;
        inner.pending = VecDeque::new();
    }
}
