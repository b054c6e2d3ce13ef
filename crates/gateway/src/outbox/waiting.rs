//! What waits of one topic for one client.

use std::{collections::HashMap, iter::once, sync::Arc};

use adsum_core::UserId;
use adsum_proto::client::Encoding;
use adsum_telemetry::metrics::metrics;

use super::{SlotId, Watched, WatcherId};
use crate::hub::{Delivery, Entry};

/// Entries of a topic that may wait before they are looked through for older words.
const MERGE_FROM: usize = 64;

// There is one for each topic that a client watches: small. What telling needs comes first, to be
// in the first line of the outbox's memory.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Waiting {
    pub(super) topic: Arc<dyn Watched>,
    pub(super) offset: u64,
    pub(super) slot: SlotId,
    /// Its turn to be told what waits is in the outbox's queue.
    pub(super) queued: bool,
    /// Too much has waited: the state is due.
    pub(super) dirty: bool,
    pub(super) watcher: WatcherId,
    backlog: Option<Box<Backlog>>,
}

/// Diffs that wait.
#[derive(Debug)]
struct Backlog {
    first: Arc<Delivery>,
    more: Vec<Arc<Delivery>>,
    entries: usize,
    /// With more entries than these it is worth looking for older words among them.
    merge_at: usize,
}

impl Waiting {
    pub(super) fn new(slot: SlotId, topic: Arc<dyn Watched>, watcher: WatcherId) -> Self {
        Self {
            topic,
            offset: 0,
            slot,
            queued: false,
            dirty: false,
            watcher,
            backlog: None,
        }
    }

    /// How many wait.
    pub(super) fn entries(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.entries)
    }

    pub(super) fn push(&mut self, delivery: Arc<Delivery>) {
        match &mut self.backlog {
            Some(backlog) => backlog.push(delivery),
            none => *none = Some(Box::new(Backlog::new(delivery))),
        }
    }

    /// Takes all that waits, as one diff.
    pub(super) fn take(&mut self) -> Option<Arc<Delivery>> {
        let mut backlog = self.backlog.take()?;
        if !backlog.more.is_empty() {
            backlog.merge();
        }
        Some(backlog.first)
    }

    /// Forgets what waits; answers how many entries that was.
    pub(super) fn clear(&mut self) -> usize {
        self.backlog.take().map_or(0, |backlog| backlog.entries)
    }

    /// The frame that tells a diff next, behind what is in these bytes.
    pub(super) fn frame(&mut self, delivery: &Delivery, encoding: Encoding, bytes: &mut Vec<u8>) {
        self.offset += 1;
        delivery.put(encoding, self.topic.topic(), self.offset, bytes);
    }
}

impl Backlog {
    fn new(first: Arc<Delivery>) -> Self {
        Self {
            entries: first.weight(),
            first,
            more: Vec::new(),
            merge_at: MERGE_FROM,
        }
    }

    fn push(&mut self, delivery: Arc<Delivery>) {
        self.entries += delivery.weight();
        self.more.push(delivery);
        if self.entries > self.merge_at {
            self.merge();
        }
    }

    /// Makes one diff of all that waits: the newest word on each person, as news to somebody who
    /// knows what was sent last.
    fn merge(&mut self) {
        metrics().conflations.add(self.more.len());
        let all = || once(&self.first).chain(&self.more);
        let count = all().rev().find_map(|d| d.count);
        let stale = all().rev().find_map(|d| d.stale);
        let mut order: Vec<UserId> = Vec::new();
        let mut people: HashMap<UserId, (bool, Entry)> = HashMap::new();
        for entry in all().flat_map(|d| &d.entries) {
            let known = !matches!(entry, Entry::Join(_));
            people
                .entry(entry.user().clone())
                .and_modify(|(_, newest)| *newest = entry.clone())
                .or_insert_with(|| {
                    order.push(entry.user().clone());
                    (known, entry.clone())
                });
        }
        let merged = order.iter().filter_map(|user| {
            let (known, newest) = people.remove(user)?;
            match (known, newest) {
                (false, Entry::Join(told) | Entry::Update(told)) => Some(Entry::Join(told)),
                (true, Entry::Join(told) | Entry::Update(told)) => Some(Entry::Update(told)),
                (true, leave @ Entry::Leave(_)) => Some(leave),
                (false, Entry::Leave(_)) => None,
            }
        });
        let merged = Arc::new(Delivery::new(merged.collect(), count, stale));
        let merge_at = MERGE_FROM.max(2 * merged.weight());
        *self = Self {
            merge_at,
            ..Self::new(merged)
        };
    }
}
