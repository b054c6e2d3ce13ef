//! Gateways that are restarted, killed, frozen and asked too much, under thousands of clients:
//! what everybody else sees of it.
//!
//! Times are two times faster than the defaults; `ADSUM_SLOW=1` runs the defaults.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod crowd;
mod frozen;
mod killed;
mod rolling;
mod settings;
mod slow;
mod unheard;
mod watcher;
mod world;
