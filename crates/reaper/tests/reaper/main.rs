//! Reapers of one process over the store in memory and the local membership.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod expiry;
mod fencing;
mod lease;
mod ownership;
mod spies;
mod waits;
mod world;
