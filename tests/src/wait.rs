//! Waiting for something outside of this process. Redis and etcd tell nobody when they are
//! ready, so the harness asks again and again, under a deadline.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// The pause between two questions.
pub const POLL: Duration = Duration::from_millis(20);

/// How long a fixture waits for its processes before it gives up: far above what an idle
/// machine needs, since test machines are rarely idle.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Repeats `probe` until it is `Ok`. Its error says what is still missing; the last one is part
/// of the error when `limit` has passed.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut last = anyhow!("no answer to the first question");
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last = reason,
            Err(_) => return Err(last.context(format!("not within {limit:?}: {what}"))),
        }
        sleep(POLL).await;
    }
}
