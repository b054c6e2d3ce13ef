//! `adsum bench`: what a service can do, measured from outside by clients that cost little.
//!
//! - `engine`, `wire`, `speech`: thousands of WebSocket clients on one thread.
//! - `stage`: the service that is measured: one that runs, or a cluster of its own.
//! - `usage`: what processes and the machine spend.
//! - `turns`: clusters beside each other, measured in turns.
//! - one module per measurement: `connect`, `fanout`, `growth`, `heartbeat`, `ladder`, `snapshot`,
//!   `storm`, `telemetry`, `raw`.

mod args;
mod arrival;
mod connect;
mod engine;
mod fanout;
mod growth;
mod heartbeat;
mod ladder;
mod raw;
mod report;
mod snapshot;
mod socketio;
mod speech;
mod stage;
mod storm;
mod telemetry;
mod turns;
mod usage;
mod wire;
mod worker;

pub use args::Bench;
