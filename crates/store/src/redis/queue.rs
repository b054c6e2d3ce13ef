//! What a subscriber has not read yet: bounded. One that is too slow loses all of it and is
//! told so; nobody waits for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use adsum_core::store::Push;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;

/// Most pushes that wait for one subscriber.
const CAPACITY: usize = 4096;

/// Pushes for one subscriber.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    pushes: VecDeque<Push>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in here can be left half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a push; when there are too many, they all become one [`Push::Lost`].
    pub(super) fn add(&self, push: Push) {
        let mut waiting = self.lock();
        if waiting.pushes.len() >= CAPACITY || push == Push::Lost {
            waiting.pushes.clear();
            waiting.pushes.push_back(Push::Lost);
        } else {
            waiting.pushes.push_back(push);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Nothing will come any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    async fn next(&self) -> Option<Push> {
        loop {
            {
                let mut waiting = self.lock();
                if let Some(push) = waiting.pushes.pop_front() {
                    return Some(push);
                }
                if waiting.closed {
                    return None;
                }
            }
            // A permit is kept if `add` came first, so nothing is slept through.
            self.filled.notified().await;
        }
    }

    /// The pushes as they come. The queue has one reader.
    pub(super) fn stream(self: Arc<Self>) -> BoxStream<'static, Push> {
        stream::unfold(
            self,
            |queue| async move { Some((queue.next().await?, queue)) },
        )
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use adsum_core::{Change, Event, Version};

    use super::*;

    fn change(seq: u64) -> Push {
        let version = Version::new(1, seq);
        Push::Change(Box::new(Change {
            version,
            at: 0,
            event: Event::Epoch,
            origin: None,
        }))
    }

    #[tokio::test]
    async fn a_slow_subscriber_loses_all_and_hears_of_it() {
        let queue = Arc::new(Queue::default());
        (0..=CAPACITY as u64).for_each(|seq| queue.add(change(seq)));
        queue.add(change(9999));
        queue.close();
        let rest: Vec<_> = queue.stream().collect().await;
        assert_eq!(rest, [Push::Lost, change(9999)]);
    }
}
