//! The harness proves itself: what it promises is what every other test stands on.

#![allow(
    clippy::print_stdout,
    reason = "a test that passes still tells how long things took"
)]

mod etcd;
mod processes;
mod proxy;
mod redis_cluster;
mod redis_server;
