//! Every rule of the contract, on the store in memory.

#[path = "common/memory.rs"]
mod memory;

adsum_store::conformance!(crate::memory::MemoryLabs);
