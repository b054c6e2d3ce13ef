//! The topics that this gateway asks for, and whose parts have not come yet from the dispatcher
//! that serves the shard: those can't be resumed from a cursor and are asked for in full.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use adsum_core::store::Shard;
use adsum_proto::TopicKey;
use tokio::time::Instant;

use super::shard_set::ShardSet;

/// A part that comes so soon after a topic was dropped and asked for again may be the answer to
/// the first time: nothing in it says which.
const DOUBT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Interest {
    shards: Shard,
    topics: HashMap<TopicKey, Entry>,
    /// How many topics await their part of each shard.
    awaited: Vec<usize>,
    dropped: HashMap<TopicKey, Instant>,
}

#[derive(Debug)]
struct Entry {
    only: Option<Shard>,
    awaited: ShardSet,
    doubt_until: Option<Instant>,
}

impl Entry {
    fn needs(&self, shard: Shard) -> bool {
        self.only.is_none_or(|only| only == shard)
    }
}

impl Interest {
    pub(super) fn new(shards: Shard) -> Self {
        Self {
            shards,
            topics: HashMap::new(),
            awaited: vec![0; usize::from(shards)],
            dropped: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn contains(&self, key: &TopicKey) -> bool {
        self.topics.contains_key(key)
    }

    /// Begins to ask for a topic: all its parts are awaited.
    pub(super) fn add(&mut self, key: TopicKey, only: Option<Shard>, now: Instant) {
        let lately = self.dropped.remove(&key);
        let mut awaited = ShardSet::new(self.shards);
        for shard in only.map_or(0..self.shards, |shard| shard..shard + 1) {
            if awaited.insert(shard) {
                self.awaited[usize::from(shard)] += 1;
            }
        }
        let entry = Entry {
            only,
            awaited,
            doubt_until: lately.map(|_| now + DOUBT),
        };
        self.topics.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &TopicKey, now: Instant) {
        let Some(entry) = self.topics.remove(key) else {
            return;
        };
        for shard in 0..self.shards {
            self.awaited[usize::from(shard)] -= usize::from(entry.awaited.contains(shard));
        }
        self.dropped.insert(key.clone(), now);
    }

    /// Old drops are beyond doubt.
    pub(super) fn forget(&mut self, now: Instant) {
        self.dropped.retain(|_, at| now - *at < DOUBT);
    }

    /// The topics that need a shard.
    pub(super) fn of(&self, shard: Shard) -> impl Iterator<Item = &TopicKey> {
        let needed = self.topics.iter().filter(move |(_, e)| e.needs(shard));
        needed.map(|(key, _)| key)
    }

    /// How many topics await their part of a shard.
    pub(super) fn count_awaited(&self, shard: Shard) -> usize {
        self.awaited[usize::from(shard)]
    }

    /// The topics that await their part of a shard.
    pub(super) fn awaited(&self, shard: Shard) -> HashSet<TopicKey> {
        if self.count_awaited(shard) == 0 {
            return HashSet::new();
        }
        let awaiting = self
            .topics
            .iter()
            .filter(|(_, e)| e.awaited.contains(shard));
        awaiting.map(|(key, _)| key.clone()).collect()
    }

    /// Sets anew who awaits a part of a shard.
    pub(super) fn await_if(&mut self, shard: Shard, awaits: impl Fn(&TopicKey) -> bool) {
        let mut count = 0;
        for (key, entry) in self.topics.iter_mut().filter(|(_, e)| e.needs(shard)) {
            if awaits(key) {
                entry.awaited.insert(shard);
                count += 1;
            } else {
                entry.awaited.remove(shard);
            }
        }
        self.awaited[usize::from(shard)] = count;
    }

    /// A part has come. `false` if nobody awaited it: then its sender has begun to send all.
    pub(super) fn arrived(&mut self, shard: Shard, key: &TopicKey, now: Instant) -> bool {
        let Some(entry) = self.topics.get_mut(key).filter(|e| e.needs(shard)) else {
            return true;
        };
        if entry.doubt_until.is_some_and(|until| now < until) {
            return true;
        }
        let awaited = entry.awaited.remove(shard);
        self.awaited[usize::from(shard)] -= usize::from(awaited);
        awaited
    }
}
