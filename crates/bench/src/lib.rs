//! `adsum bench`: what a service can do, measured from outside by clients that cost little.
//!
//! - `engine`, `wire`, `speech`: thousands of WebSocket clients on one thread.
//! - `stage`: the service that is measured: one that runs, or a cluster of its own.
//! - `usage`: what processes and the machine spend.
//! - one module per measurement: `connect`, `fanout`, `heartbeat`, `snapshot`, `raw`.

mod args;
mod connect;
mod engine;
mod fanout;
mod heartbeat;
mod raw;
mod report;
mod snapshot;
mod speech;
mod stage;
mod usage;
mod wire;
mod worker;

pub use args::Bench;
