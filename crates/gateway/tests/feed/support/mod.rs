//! Scripted dispatchers behind in-memory pipes, and a client that believes only what it is told.

mod client;
mod dispatcher;
mod frames;
mod world;

use std::time::Duration;

use tokio::time::{Instant, timeout};

pub(crate) use client::Client;
pub(crate) use dispatcher::Session;
pub(crate) use frames::*;
pub(crate) use world::{World, tenant, user};

pub(crate) const EPOCH: u64 = 7;
/// Nothing here takes that long unless it never comes.
const NEVER: Duration = Duration::from_secs(120);

/// Waits for what must come.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(NEVER, future)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}

/// How long something took.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let value = future.await;
    (value, start.elapsed())
}

/// Lets everything happen that needs no time.
pub(crate) async fn settle_down() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
