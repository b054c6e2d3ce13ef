//! A shard's log: bounded by entries and by bytes, trimmed in batches.

use std::{collections::VecDeque, sync::Arc};

use adsum_core::{Change, codec};

use crate::Options;

/// Most entries that one commit removes.
const BATCH: u64 = 64;

/// The newest entries, oldest first, numbered without gaps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Log {
    entries: VecDeque<(Arc<Change>, u64)>,
    bytes: u64,
}

impl Log {
    pub(super) fn add(&mut self, change: Arc<Change>, options: &Options) {
        let size = codec::encode_change(&change).len() as u64;
        self.entries.push_back((change, size));
        self.bytes += size;
        self.trim(options);
    }

    fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    fn trim(&mut self, options: &Options) {
        if self.len() <= options.log_len && self.bytes <= options.log_max_bytes {
            return;
        }
        for _ in 0..BATCH {
            let long = self.len() + (BATCH - 1) > options.log_len;
            if self.len() <= 1 || !(long || self.bytes > options.log_max_bytes) {
                return;
            }
            if let Some((_, size)) = self.entries.pop_front() {
                self.bytes -= size;
            }
        }
    }

    /// The number of the oldest entry; 0 if there is none.
    pub(super) fn first(&self) -> u64 {
        self.entries
            .front()
            .map_or(0, |(change, _)| change.version.seq)
    }

    /// At most `limit` entries after the one with this number.
    pub(super) fn after(&self, seq: u64, limit: usize) -> Vec<Change> {
        let passed = seq.saturating_add(1).saturating_sub(self.first());
        let skip = usize::try_from(passed).unwrap_or(usize::MAX);
        self.entries
            .iter()
            .skip(skip)
            .take(limit)
            .map(|(c, _)| Change::clone(c))
            .collect()
    }
}
