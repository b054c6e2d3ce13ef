//! A shard behind its lock: with the identity of its server, its feed, and the faults that
//! tests put in.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use adsum_core::{
    Change,
    store::{Push, Result, StoreError},
};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};

use super::shard::Shard;

/// Pushes that a slow subscriber may be behind before it is told that it lost some.
const FEED: usize = 1024;

/// One shard.
#[derive(Debug, Default)]
pub(super) struct Cell(Mutex<Inner>);

/// What the lock guards.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) shard: Shard,
    /// The identity of the server: another one means that writes may have been lost.
    pub(super) replid: u64,
    pub(super) stalled: bool,
    pub(super) unrenewed: bool,
    pub(super) mute: bool,
    /// How many writes can be undone; 0 in a real run.
    pub(super) keep: usize,
    feed: Option<broadcast::Sender<Arc<Change>>>,
    history: VecDeque<Shard>,
}

impl Cell {
    /// A shard; with `nothing_lost` it is born settled.
    pub(super) fn new(nothing_lost: bool) -> Self {
        let shard = Shard {
            nothing_lost,
            ..Shard::default()
        };
        Self(Mutex::new(Inner {
            shard,
            replid: 1,
            ..Inner::default()
        }))
    }

    /// The shard, as long as it answers.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.force();
        if inner.stalled {
            return Err(StoreError::Unavailable("the shard is stalled".into()));
        }
        Ok(inner)
    }

    /// The shard, for those who break it.
    pub(super) fn force(&self) -> MutexGuard<'_, Inner> {
        // A step that panicked can have left nothing worse than what it did so far.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Runs a step and pushes what it committed.
    pub(super) fn write<T>(&mut self, step: impl FnOnce(&mut Shard) -> T) -> T {
        let before = (self.keep > 0).then(|| self.shard.clone());
        let answer = step(&mut self.shard);
        let committed = std::mem::take(&mut self.shard.committed);
        if let Some(before) = before.filter(|before| *before != self.shard) {
            self.history.push_back(before);
            if self.history.len() > self.keep {
                self.history.pop_front();
            }
        }
        if let Some(feed) = self.feed.as_ref().filter(|_| !self.mute) {
            // An error says that nobody listens.
            committed
                .into_iter()
                .for_each(|change| drop(feed.send(change)));
        }
        answer
    }

    /// Goes back before the last `writes` steps that changed anything, as far as they are kept.
    pub(super) fn undo(&mut self, writes: usize) {
        for _ in 0..writes {
            let Some(before) = self.history.pop_back() else {
                return;
            };
            self.shard = before;
            self.shard.nothing_lost = false;
        }
    }

    pub(super) fn subscribe(&mut self) -> BoxStream<'static, Push> {
        let feed = self.feed.get_or_insert_with(|| broadcast::channel(FEED).0);
        stream::unfold(feed.subscribe(), |mut feed| async move {
            let push = match feed.recv().await {
                Ok(change) => Push::Change(Box::new(Change::clone(&change))),
                Err(RecvError::Lagged(_)) => Push::Lost,
                Err(RecvError::Closed) => return None,
            };
            Some((push, feed))
        })
        .boxed()
    }
}
