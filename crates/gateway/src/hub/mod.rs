//! What watchers of topics are told. All local watchers of a topic share one subscription
//! upstream, one picture and the bytes of every diff; each has its own eyes and its own outbox.
//!
//! `board` knows what was told to whom (no IO), `topic` is the task around it, `told` the shared
//! bytes.

mod board;
mod journeys;
#[cfg(test)]
mod tests;
mod told;
mod topic;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use adsum_core::{Digest, TenantId, Topic};
use adsum_proto::client::{Mode, Ref};
use adsum_telemetry::metrics::{Held, metrics};
use tokio_util::task::TaskTracker;

use crate::{
    feed::Feed,
    outbox::{Outbox, WatcherId},
    sight::Sight,
};

use topic::TopicHub;

pub(crate) use told::{Delivery, Entry, TopicState};
#[cfg(test)]
pub(crate) use told::{Gone, Told};

/// How topics are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubConfig {
    /// In mode `members` diffs are gathered for at most this long, while the last one is taken.
    pub window: Duration,
    /// In the other modes one diff is told in this time.
    pub interval: Duration,
    /// Above so many public members a topic is told in mode `interval`.
    pub interval_above: usize,
    /// Above so many in mode `count`.
    pub count_above: usize,
    /// Members in the sample of mode `count`.
    pub sample: usize,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_millis(50),
            interval: Duration::from_secs(1),
            interval_above: 2000,
            count_above: 10_000,
            sample: 50,
        }
    }
}

type Topics = Arc<Mutex<HashMap<(TenantId, Topic), Arc<TopicHub>>>>;

/// All topics that are watched through this gateway.
#[derive(Debug)]
pub(crate) struct Hub {
    feed: Feed,
    config: HubConfig,
    tasks: TaskTracker,
    topics: Topics,
}

/// Who begins to watch, and how.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) sight: Sight,
    pub(crate) asked: Asked,
}

/// What a watcher asked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) mode: Mode,
    pub(crate) digest: Option<Digest>,
    pub(crate) r#ref: Option<Ref>,
}

impl Hub {
    pub(crate) fn new(feed: Feed, config: HubConfig, tasks: TaskTracker) -> Self {
        Self {
            feed,
            config,
            tasks,
            topics: Topics::default(),
        }
    }

    /// Begins to watch: the state goes to the outbox as soon as there is one, diffs follow.
    pub(crate) fn watch(&self, tenant: &TenantId, topic: Topic, watcher: Watcher) -> Subscription {
        let key = (tenant.clone(), topic);
        let mut topics = lock(&self.topics);
        let hub = topics.entry(key).or_insert_with_key(|key| {
            let hub = TopicHub::new(key.clone(), self.feed.clone(), self.config);
            let watch = self.feed.watch(key.0.clone(), key.1.clone());
            self.tasks.spawn(Arc::clone(&hub).run(watch));
            hub
        });
        // Under the lock: the topic can't be dropped between finding and joining it.
        let id = hub.enter(watcher);
        Subscription {
            topic: Arc::clone(hub),
            topics: Arc::clone(&self.topics),
            id,
            _counted: metrics().subscriptions.hold(),
        }
    }

    /// Topics that are watched.
    pub(crate) fn topics(&self) -> usize {
        lock(&self.topics).len()
    }
}

/// One watcher of one topic; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    topic: Arc<TopicHub>,
    topics: Topics,
    id: WatcherId,
    _counted: Held,
}

impl Subscription {
    /// Asks anew: for another mode, or for the state again.
    pub(crate) fn again(&self, asked: Asked) {
        self.topic.ask(self.id, asked);
    }

    /// The watcher has other eyes from now on: it gets the state again.
    pub(crate) fn look(&self, sight: Sight) {
        self.topic.look(self.id, sight);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = lock(&self.topics);
        if self.topic.leave(self.id) == 0 {
            topics.remove(&self.topic.key);
            self.topic.stop();
        }
    }
}

/// A thread that panicked has left nothing half-done that others would trip over.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
