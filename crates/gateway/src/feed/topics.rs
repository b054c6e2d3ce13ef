//! All watched topics of this gateway, and which of them the router has to look at.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use adsum_core::{TenantId, Topic, UserId, UserKey, ring::ShardRing, store::Shard};
use adsum_proto::TopicKey;
use tokio::{sync::Notify, time::Instant};

use super::{
    config::FeedConfig,
    lock,
    metrics::FeedMetrics,
    shard_set::ShardSet,
    topic::TopicFeed,
    watch::{Queue, Watch},
};

#[derive(Debug)]
pub(super) struct Topics {
    config: Arc<FeedConfig>,
    ring: ShardRing,
    registry: Mutex<Registry>,
    /// Topics that got their first watcher or lost their last one. A set, so it can't outgrow
    /// the number of topics.
    changed: Mutex<HashSet<TopicKey>>,
    wake: Notify,
}

#[derive(Debug)]
struct Registry {
    topics: HashMap<TenantId, HashMap<Topic, Slot>>,
    stale: ShardSet,
    closed: bool,
}

#[derive(Debug, Clone)]
struct Slot {
    topic: Arc<TopicFeed>,
    born: Instant,
}

impl Registry {
    fn slot(&self, key: &TopicKey) -> Option<&Slot> {
        self.topics.get(&key.0)?.get(&key.1)
    }

    fn is_stale(&self, only: Option<Shard>) -> bool {
        only.map_or(!self.stale.is_empty(), |shard| self.stale.contains(shard))
    }
}

impl Topics {
    pub(super) fn new(config: Arc<FeedConfig>, ring: ShardRing) -> Self {
        let registry = Registry {
            topics: HashMap::new(),
            stale: ShardSet::new(config.shards),
            closed: false,
        };
        Self {
            config,
            ring,
            registry: Mutex::new(registry),
            changed: Mutex::default(),
            wake: Notify::new(),
        }
    }

    pub(super) fn watch(self: &Arc<Self>, key: TopicKey) -> Watch {
        let queue = Arc::new(Queue::new(self.config.queue_len));
        let mut registry = lock(&self.registry);
        let slot = match registry.slot(&key) {
            Some(slot) => slot.clone(),
            None => self.create(&mut registry, &key),
        };
        // Under the registry's lock: the topic can't be dropped between finding and joining it.
        let (id, first) = slot.topic.join(Arc::clone(&queue));
        if registry.closed {
            queue.close();
        }
        drop(registry);
        if first {
            self.note(key);
        }
        Watch {
            topic: slot.topic,
            topics: Arc::clone(self),
            id,
            queue,
            patient_until: slot.born + self.config.complete_after,
        }
    }

    fn create(&self, registry: &mut Registry, key: &TopicKey) -> Slot {
        let only = match &key.1 {
            Topic::User(user) => {
                let owner = UserKey::new(key.0.clone(), user.clone());
                Some(self.ring.shard_of(&owner))
            }
            Topic::Room(_) | Topic::Tenant => None,
        };
        let stale = registry.is_stale(only);
        let topic = TopicFeed::new(key.clone(), only, stale, &self.config);
        let slot = Slot {
            topic: Arc::new(topic),
            born: Instant::now(),
        };
        let tenant = registry.topics.entry(key.0.clone()).or_default();
        tenant.insert(key.1.clone(), slot.clone());
        slot
    }

    /// One watcher goes.
    pub(super) fn leave(&self, topic: &TopicFeed, id: u64) {
        if topic.leave(id) == 0 {
            self.note(topic.key.clone());
        }
    }

    fn note(&self, key: TopicKey) {
        lock(&self.changed).insert(key);
        self.wake.notify_one();
    }

    /// Waits until there is something for [`changed`](Self::changed).
    pub(super) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Topics that may have got their first watcher, or lost their last one, since the last time.
    pub(super) fn changed(&self) -> HashSet<TopicKey> {
        std::mem::take(&mut *lock(&self.changed))
    }

    /// The topic, if it is watched or was lately.
    pub(super) fn get(&self, key: &TopicKey) -> Option<Arc<TopicFeed>> {
        let registry = lock(&self.registry);
        registry.slot(key).map(|slot| Arc::clone(&slot.topic))
    }

    /// Forgets the topic unless somebody watches it; `true` if it is gone.
    pub(super) fn forget(&self, key: &TopicKey) -> bool {
        let mut registry = lock(&self.registry);
        if registry.slot(key).is_some_and(|s| s.topic.watchers() > 0) {
            return false;
        }
        if let Some(tenant) = registry.topics.get_mut(&key.0) {
            tenant.remove(&key.1);
            if tenant.is_empty() {
                registry.topics.remove(&key.0);
            }
        }
        true
    }

    /// Shards have lost their source, or have one again. Called by one task alone, so no older
    /// word overtakes a newer one; a topic that is created meanwhile begins with the new word.
    pub(super) fn set_stale(&self, shards: &[(Shard, bool)], metrics: &FeedMetrics) {
        let mut registry = lock(&self.registry);
        for (shard, stale) in shards {
            if *stale {
                registry.stale.insert(*shard);
            } else {
                registry.stale.remove(*shard);
            }
        }
        metrics.stale_shards.set(registry.stale.len());
        let slots = registry.topics.values().flat_map(HashMap::values);
        let topics: Vec<_> = slots
            .map(|slot| (Arc::clone(&slot.topic), registry.is_stale(slot.topic.only)))
            .collect();
        drop(registry);
        for (topic, stale) in topics {
            topic.set_stale(stale, metrics);
        }
    }

    /// Lists of contacts of these users have come.
    pub(super) fn contacts(&self, tenant: &TenantId, users: &[UserId], metrics: &FeedMetrics) {
        let registry = lock(&self.registry);
        let slots = registry
            .topics
            .get(tenant)
            .into_iter()
            .flat_map(HashMap::values);
        let topics: Vec<_> = slots.map(|slot| Arc::clone(&slot.topic)).collect();
        drop(registry);
        for topic in topics {
            topic.contacts(users, metrics);
        }
    }

    /// Ends the streams of all watchers, now and to come.
    pub(super) fn close(&self) {
        let mut registry = lock(&self.registry);
        registry.closed = true;
        let slots = registry.topics.values().flat_map(HashMap::values);
        slots.for_each(|slot| slot.topic.close());
    }
}
