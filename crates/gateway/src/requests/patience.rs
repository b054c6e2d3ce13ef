//! The store's pauses: a shard that fails over answers again within seconds, and whoever asks
//! meanwhile had better wait here than ask again and again.

use std::time::Duration;

use adsum_core::store::StoreError;
use tokio::time::{Instant, sleep};

use super::Result;

/// Longer than most failovers would be nicer, but callers have time-outs of their own.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Tries again what the same try can mend, for a bounded time. `op` must be one that may be done
/// twice: every operation of a store is, if it carries the same numbers each time.
pub(super) async fn patiently<T, F>(mut op: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, StoreError>>,
{
    let until = Instant::now() + PATIENCE;
    let mut wait = FIRST_WAIT;
    loop {
        match op().await {
            Ok(value) => return Ok(value),
            Err(error) if error.retry() && Instant::now() + wait < until => sleep(wait).await,
            Err(error) => return Err(error.into()),
        }
        wait = (2 * wait).min(LONGEST_WAIT);
    }
}
