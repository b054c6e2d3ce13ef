//! What waits of one topic for one client.

use std::{collections::HashMap, sync::Arc};

use adsum_core::UserId;
use adsum_proto::client::Encoding;
use adsum_telemetry::metrics::metrics;

use super::{SlotId, Watched, WatcherId};
use crate::hub::{Delivery, Entry};

/// Entries of a topic that may wait before they are looked through for older words.
const MERGE_FROM: u32 = 64;

#[derive(Debug)]
// There is one for each topic that a client watches: small.
pub(super) struct Waiting {
    pub(super) slot: SlotId,
    pub(super) topic: Arc<dyn Watched>,
    pub(super) watcher: WatcherId,
    pub(super) offset: u64,
    pub(super) deliveries: Vec<Arc<Delivery>>,
    pub(super) entries: usize,
    merge_at: u32,
    /// A state is queued, and what comes after it must not overtake it.
    pub(super) turn: u32,
    pub(super) queued: bool,
    pub(super) dirty: bool,
}

impl Waiting {
    pub(super) fn new(slot: SlotId, topic: Arc<dyn Watched>, watcher: WatcherId) -> Self {
        Self {
            slot,
            topic,
            watcher,
            offset: 0,
            deliveries: Vec::new(),
            entries: 0,
            merge_at: MERGE_FROM,
            turn: 0,
            queued: false,
            dirty: false,
        }
    }

    pub(super) fn push(&mut self, delivery: Arc<Delivery>) {
        self.entries += delivery.weight();
        self.deliveries.push(delivery);
    }

    /// The frame that tells a diff next, behind what is in these bytes.
    pub(super) fn frame(&mut self, delivery: &Delivery, encoding: Encoding, bytes: &mut Vec<u8>) {
        self.offset += 1;
        delivery.put(encoding, self.topic.topic(), self.offset, bytes);
    }

    /// So many wait that it is worth looking for older words among them.
    pub(super) fn is_long(&self) -> bool {
        self.entries > self.merge_at as usize
    }

    /// Forgets what waits; answers how many entries that was.
    pub(super) fn clear(&mut self) -> usize {
        self.deliveries = Vec::new();
        self.merge_at = MERGE_FROM;
        std::mem::take(&mut self.entries)
    }

    /// Makes one diff of all that waits: the newest word on each person, as news to somebody who
    /// knows what was sent last.
    pub(super) fn merge(&mut self) {
        metrics()
            .conflations
            .add(self.deliveries.len().saturating_sub(1));
        let count = self.deliveries.iter().rev().find_map(|d| d.count);
        let mut order: Vec<UserId> = Vec::new();
        let mut people: HashMap<UserId, (bool, Entry)> = HashMap::new();
        for entry in self.deliveries.iter().flat_map(|d| &d.entries) {
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
        let merged = Arc::new(Delivery::new(merged.collect(), count));
        self.entries = merged.weight();
        let twice = u32::try_from(2 * self.entries).unwrap_or(u32::MAX);
        self.merge_at = MERGE_FROM.max(twice);
        self.deliveries = vec![merged];
    }
}
