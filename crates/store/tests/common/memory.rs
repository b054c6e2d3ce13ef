//! A store in memory, with its own levers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use adsum_core::store::{Shard, Store};
use adsum_store::{
    Hooks, MemoryStore, Options,
    conformance::{Lab, Labs, START},
};
use async_trait::async_trait;

/// More writes than any test loses.
const HISTORY: usize = 100;

/// Sets up [`MemoryLab`]s.
pub(crate) struct MemoryLabs;

/// One store in memory.
pub(crate) struct MemoryLab {
    options: Options,
    clock: Arc<AtomicU64>,
    store: MemoryStore,
}

impl MemoryLab {
    pub(crate) fn new(options: Options) -> Self {
        let clock = Arc::new(AtomicU64::new(START));
        let hooks = Hooks {
            clock: Some(clock.clone()),
            nonce: Some(0),
        };
        let store = MemoryStore::new(options.clone(), hooks).with_history(HISTORY);
        Self {
            options,
            clock,
            store,
        }
    }
}

#[async_trait]
impl Labs for MemoryLabs {
    async fn lab(&self, options: Options) -> Box<dyn Lab> {
        Box::new(MemoryLab::new(options))
    }
}

#[async_trait]
impl Lab for MemoryLab {
    fn options(&self) -> &Options {
        &self.options
    }

    async fn caller(&self) -> Arc<dyn Store> {
        Arc::new(self.store.handle())
    }

    async fn caller_with(&self, options: Options) -> Arc<dyn Store> {
        Arc::new(self.store.handle_with(options))
    }

    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    fn advance(&self, ms: i64) {
        let now = self.now().saturating_add_signed(ms);
        self.clock.store(now, Relaxed);
    }

    async fn fail_over(&self, shard: Shard) {
        self.store.fail_over(shard);
    }

    async fn lose_last(&self, shard: Shard, writes: usize) {
        self.store.lose_last(shard, writes);
    }

    async fn rewind(&self, shard: Shard, writes: usize) {
        self.store.rewind(shard, writes);
    }

    async fn flush(&self, shard: Shard) {
        self.store.flush(shard);
    }
}
