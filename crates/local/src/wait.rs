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
///
/// `probe` is not an `AsyncFnMut`: the compiler cannot prove the futures of those `Send`, and
/// tests spawn what waits here.
pub async fn eventually<T, F: Future<Output = Result<T>>>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut last = anyhow!("no answer to the first question");
    // The clock is asked too: a probe that never awaits would never meet the time-out.
    while Instant::now() < deadline {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last = reason,
            Err(_) => break,
        }
        sleep(POLL).await;
    }
    Err(last.context(format!("not within {limit:?}: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_reason_is_told_at_the_deadline() {
        let mut tries = 0;
        let waited = eventually("never", POLL * 3, || {
            tries += 1;
            let reason = anyhow!("try {tries}");
            async { Err::<(), _>(reason) }
        });
        let error = waited.await.err().map(|error| format!("{error:#}"));
        assert_eq!(error.as_deref(), Some("not within 60ms: never: try 3"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_ends_at_the_deadline() {
        let silence = std::future::pending::<Result<()>>;
        assert!(eventually("never", POLL, silence).await.is_err());
    }
}
