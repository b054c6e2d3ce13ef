//! One watched topic: its roster, put together from the parts of its shards, and its watchers.
//! All under one lock, so that a snapshot and the diffs after it fit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use adsum_core::{Item, Pending, Presence, Roster, UserId, Version, store::Shard};
use adsum_proto::TopicKey;

use super::{
    config::FeedConfig,
    lock,
    metrics::FeedMetrics,
    shard_set::ShardSet,
    watch::{Cause, Causes, Picture, Queue, TopicDiff, TopicEvent},
};

/// Something to put into a roster.
#[derive(Debug)]
pub(super) enum Op {
    /// How one user stands.
    State {
        user: UserId,
        presence: Presence,
        version: Version,
        cause: Option<Cause>,
    },
    /// All of a shard.
    Part {
        members: Vec<(Arc<Item>, Version)>,
        at: Version,
        settling: bool,
    },
}

#[derive(Debug)]
pub(super) struct TopicFeed {
    pub(super) key: TopicKey,
    /// The one shard of a user topic; others need all.
    pub(super) only: Option<Shard>,
    needed: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    roster: Roster,
    pending: Pending,
    causes: Causes,
    /// Shards whose part has come.
    parts: ShardSet,
    settling: ShardSet,
    stale: bool,
    watchers: HashMap<u64, Arc<Queue>>,
    next_id: u64,
    /// Shared by all who ask before the next change.
    picture: Option<Arc<Picture>>,
}

impl TopicFeed {
    pub(super) fn new(
        key: TopicKey,
        only: Option<Shard>,
        stale: bool,
        config: &FeedConfig,
    ) -> Self {
        let absent_ms = u64::try_from(config.remember_absent.as_millis()).unwrap_or(u64::MAX);
        let inner = Inner {
            roster: Roster::new(absent_ms),
            pending: Pending::default(),
            causes: Causes::default(),
            parts: ShardSet::new(config.shards),
            settling: ShardSet::new(config.shards),
            stale,
            watchers: HashMap::new(),
            next_id: 0,
            picture: None,
        };
        Self {
            key,
            only,
            needed: only.map_or(usize::from(config.shards), |_| 1),
            inner: Mutex::new(inner),
        }
    }

    /// Takes what one batch says about this topic, and tells the watchers the difference.
    pub(super) fn take(&self, ops: Vec<(Shard, Op)>, now: u64, metrics: &FeedMetrics) {
        let mut inner = lock(&self.inner);
        let was_complete = inner.parts.len() == self.needed;
        for (shard, op) in ops {
            // A part of another shard would make a user topic look complete.
            if self.only.is_none_or(|only| only == shard) {
                inner.put(shard, op, now);
            }
        }
        inner.tell(metrics);
        if !was_complete && inner.parts.len() == self.needed {
            inner.picture = None;
            inner.push(&TopicEvent::Complete, metrics);
        }
    }

    /// Takes a state ahead of the feed, if the shard's part is whole and of the same epoch: before
    /// that nobody knows what it would be compared with.
    pub(super) fn foresee(
        &self,
        shard: Shard,
        epoch: u64,
        op: Op,
        now: u64,
        metrics: &FeedMetrics,
    ) {
        let mut inner = lock(&self.inner);
        let whole = inner.parts.contains(shard) && !inner.settling.contains(shard);
        if whole && inner.roster.settled_in(shard) == Some(epoch) {
            inner.put(shard, op, now);
            inner.tell(metrics);
        }
    }

    pub(super) fn set_stale(&self, stale: bool, metrics: &FeedMetrics) {
        let mut inner = lock(&self.inner);
        if inner.stale != stale {
            inner.stale = stale;
            inner.picture = None;
            inner.push(&TopicEvent::Stale(stale), metrics);
        }
    }

    /// Tells that a list of contacts has come, if one of these users is here.
    pub(super) fn contacts(&self, users: &[UserId], metrics: &FeedMetrics) {
        let inner = lock(&self.inner);
        for user in users.iter().filter(|u| inner.roster.get(u).is_some()) {
            inner.push(&TopicEvent::Contacts(user.clone()), metrics);
        }
    }

    pub(super) fn complete(&self) -> bool {
        lock(&self.inner).parts.len() == self.needed
    }

    pub(super) fn peek<T>(&self, look: impl FnOnce(&Roster) -> T) -> T {
        look(&lock(&self.inner).roster)
    }

    /// The picture; `taken` runs before anything else can be told.
    pub(super) fn snapshot(&self, taken: impl FnOnce()) -> Arc<Picture> {
        let mut inner = lock(&self.inner);
        taken();
        let complete = inner.parts.len() == self.needed;
        let picture = inner.picture.take().unwrap_or_else(|| {
            Arc::new(Picture {
                items: inner.roster.members().cloned().collect(),
                complete,
                stale: inner.stale,
                settling: !inner.settling.is_empty(),
            })
        });
        inner.picture = Some(Arc::clone(&picture));
        picture
    }

    /// The watcher's number, and whether it is the only one.
    pub(super) fn join(&self, queue: Arc<Queue>) -> (u64, bool) {
        let mut inner = lock(&self.inner);
        let id = inner.next_id;
        inner.next_id += 1;
        inner.watchers.insert(id, queue);
        (id, inner.watchers.len() == 1)
    }

    /// How many are still there.
    pub(super) fn leave(&self, id: u64) -> usize {
        let mut inner = lock(&self.inner);
        inner.watchers.remove(&id);
        inner.watchers.len()
    }

    pub(super) fn watchers(&self) -> usize {
        lock(&self.inner).watchers.len()
    }

    pub(super) fn close(&self) {
        lock(&self.inner).watchers.values().for_each(|q| q.close());
    }
}

impl Inner {
    fn put(&mut self, shard: Shard, op: Op, now: u64) {
        let touched = self.pending.len();
        let cause = match op {
            Op::State {
                user,
                presence,
                version,
                cause,
            } => {
                self.roster
                    .take(shard, &user, presence, version, now, &mut self.pending);
                cause
            }
            Op::Part {
                members,
                at,
                settling,
            } => {
                self.roster
                    .take_part(shard, members, at, settling, now, &mut self.pending);
                self.parts.insert(shard);
                let changed = if settling {
                    self.settling.insert(shard)
                } else {
                    self.settling.remove(shard)
                };
                if changed {
                    self.picture = None;
                }
                None
            }
        };
        // What touched nobody new was old, or a later word on the same person.
        if self.pending.len() > touched
            && let Some(cause) = cause
        {
            self.causes.push(cause);
        }
    }

    fn tell(&mut self, metrics: &FeedMetrics) {
        if self.pending.is_empty() {
            return;
        }
        let diff = self.pending.tell(&self.roster);
        let causes = std::mem::take(&mut self.causes);
        self.picture = None;
        if !diff.is_empty() {
            metrics.diffs.add(1);
            self.push(
                &TopicEvent::Diff(Arc::new(TopicDiff { diff, causes })),
                metrics,
            );
        }
    }

    fn push(&self, event: &TopicEvent, metrics: &FeedMetrics) {
        for queue in self.watchers.values() {
            if !queue.push(event.clone()) {
                metrics.resyncs.add(1);
            }
        }
    }
}
