//! What a sweeper makes of an answer, how long it rests, and how it leaves.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use adsum_core::membership::MembershipError;
use adsum_core::store::{Fence, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use super::{End, Step, Sweeper};
use crate::{Idle, LastSweep, ShardStatus};

/// Beats in an interval.
const BEATS: u32 = 4;

/// The time until the last beat within an interval from now. Shards with nothing to do are swept on
/// the same beats: a server that does several sweeps at once is woken for all of them once.
fn until_beat(now: Duration, interval: Duration) -> Duration {
    let beat = (interval / BEATS).as_nanos().max(1);
    let over = (now + interval).as_nanos() % beat;
    interval - Duration::from_nanos(u64::try_from(over).unwrap_or_default())
}

impl Sweeper {
    /// A sweep was accepted. Answers how long to rest; not at all when there is more to do.
    pub(super) async fn swept(&mut self, last: LastSweep, next_ms: Option<u64>) -> Step {
        self.backoff.reset();
        self.failing_since = None;
        self.refused = false;
        if self.settling {
            self.settling = self.is_settling().await?;
        }
        let idle = self.settling.then_some(Idle::Settling);
        self.shared.status.send_modify(|status| {
            status.sweeps += 1;
            status.closed += last.closed;
            if let Some(shard) = status.shards.get_mut(&self.shard) {
                shard.idle = idle;
                shard.closed += last.closed;
                shard.last = Some(last);
            }
        });
        if next_ms == Some(0) {
            return Ok(None);
        }
        let config = &self.shared.config;
        let longest = until_beat(self.shared.began.elapsed(), config.sweep_interval);
        let next = next_ms.map_or(longest, Duration::from_millis);
        Ok(Some(next.min(longest).max(config.sweep_pause)))
    }

    /// A sweep does not tell whether the epoch has settled, so this asks, until it has. Every
    /// epoch begins with a claim: an older fence is refused.
    async fn is_settling(&self) -> Result<bool, End> {
        let shared = Arc::clone(&self.shared);
        let page = self
            .or_stop(shared.store(shared.store.log(self.shard, 0, 0)))
            .await?;
        Ok(page.map_or(true, |page| {
            page.position.is_some_and(|position| position.settling)
        }))
    }

    /// Another fence is higher, or the epoch is another. The second time in a row it takes a
    /// rest: two nodes that both hold themselves elected must not chase each other.
    pub(super) fn refused(&mut self, fence: Fence) -> Option<Duration> {
        tracing::info!(
            shard = self.shard,
            ?fence,
            "the sweep was refused, proving the election"
        );
        self.shared
            .status
            .send_modify(|status| status.refusals += 1);
        self.lose_faith(Idle::Unproved);
        let again = std::mem::replace(&mut self.refused, true);
        again.then(|| self.backoff.pause())
    }

    pub(super) fn failed(&mut self, error: &StoreError) -> Step {
        let shard = self.shard;
        if self.failing_since.is_none() {
            tracing::warn!(shard, %error, "can't sweep the shard, trying again");
        }
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        self.shared.status.send_modify(|status| status.errors += 1);
        self.note(|shard| shard.idle = Some(Idle::Store));
        if since.elapsed() >= self.shared.config.give_up_after && self.shared.has_rivals() {
            tracing::warn!(shard, %error, "can't sweep the shard, leaving it to another node");
            return Err(End::GaveUp);
        }
        let pause = self.backoff.pause();
        // Where a retry does not help somebody has to: look again now and then.
        let patience = if error.retry() {
            pause
        } else {
            self.shared.config.backoff_max
        };
        Ok(Some(patience))
    }

    pub(super) async fn rest(&mut self, rest: Duration) -> Result<(), End> {
        tokio::select! {
            () = self.stop.cancelled() => return Err(End::Stopped),
            () = self.doubt.notified() => {}
            // A lease was lost, or there is another one: look at once.
            _ = self.node_changes.changed() => return Ok(()),
            () = sleep(rest) => return Ok(()),
        }
        self.lose_faith(Idle::Unproved);
        Ok(())
    }

    /// Gives the shard up. What can't be told to the registry ends with the lease.
    pub(super) async fn resign(&mut self) {
        let shared = Arc::clone(&self.shared);
        let deadline = Instant::now() + shared.config.resign_timeout;
        self.backoff.reset();
        let attempts = async {
            loop {
                match shared.registry(shared.membership.resign(self.shard)).await {
                    Ok(()) | Err(MembershipError::LeaseLost) => return true,
                    Err(error) if !error.retry() => return false,
                    Err(_) => sleep(self.backoff.pause()).await,
                }
            }
        };
        if !timeout_at(deadline, attempts).await.unwrap_or(false) {
            tracing::warn!(shard = self.shard, "can't resign, the lease will");
        }
    }

    /// Waits for something that need not be finished.
    pub(super) async fn or_stop<T>(&self, call: impl Future<Output = T>) -> Result<T, End> {
        self.stop
            .run_until_cancelled(call)
            .await
            .ok_or(End::Stopped)
    }

    /// Followers hear of it only if something is new.
    pub(super) fn note(&self, note: impl FnOnce(&mut ShardStatus)) {
        self.shared.status.send_if_modified(|status| {
            let Some(shard) = status.shards.get_mut(&self.shard) else {
                return false;
            };
            let before = shard.clone();
            note(shard);
            *shard != before
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_rest_meet_on_beats() {
        let interval = Duration::from_millis(3000);
        for now in [0, 1, 740, 749, 750, 2999, 3001, 100_123].map(Duration::from_millis) {
            let rest = until_beat(now, interval);
            assert_eq!((now + rest).as_millis() % 750, 0, "{now:?}");
            assert!(rest <= interval && rest > interval * 3 / 4, "{now:?}");
        }
    }
}
