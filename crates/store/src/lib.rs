//! Where sessions live: in memory for the embedded default, in Redis Cluster for the rest. Both
//! keep the contract of `adsum_core::store`; `docs/store.md` says it step by step.

#[cfg(feature = "testing")]
pub mod conformance;
mod keys;
mod memory;
mod numbers;
mod options;
mod redis;

pub use adsum_core::load;
pub use keys::{Keys, slot_of, tags};
pub use memory::MemoryStore;
pub use options::{Hooks, Options};
pub use redis::{RedisConfig, RedisStore};
