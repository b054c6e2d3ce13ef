//! The harness: real clusters (from `adsum-local`), a simulation of the real rules under faults,
//! and the checker that judges the histories of both.

pub mod checker;
pub mod history;
pub mod sim;

pub use adsum_local::*;
