//! The rate of one connection's messages, in 16 bytes: a token bucket kept as the time at which
//! it would be full (GCRA), so that nothing has to tick.

use super::{EdgeLimits, LimitError};

/// A bucket of messages.
#[derive(Debug, Clone, Copy)]
pub struct RateLimiter {
    /// When the bucket is full again, on the caller's clock.
    full_at_us: u64,
    /// What one message costs.
    interval_us: u32,
    burst: u32,
}

impl RateLimiter {
    /// A full bucket.
    #[must_use]
    pub fn new(limits: &EdgeLimits) -> Self {
        let mut limiter = Self {
            full_at_us: 0,
            interval_us: 1,
            burst: 1,
        };
        limiter.retune(limits);
        limiter
    }

    /// Takes other limits, and keeps what was spent.
    pub fn retune(&mut self, limits: &EdgeLimits) {
        self.interval_us = (1_000_000 / limits.messages_per_second.max(1)).max(1);
        self.burst = limits.message_burst.max(1);
    }

    /// Takes one message out. `now_ms` is of a clock that never goes back, from any start.
    ///
    /// # Errors
    /// When the bucket is empty; says when it won't be. Asking too early costs nothing.
    pub fn take(&mut self, now_ms: u64) -> Result<(), LimitError> {
        let now = now_ms.saturating_mul(1000);
        let interval = u64::from(self.interval_us);
        let depth = interval * u64::from(self.burst);
        // No debt is larger than the bucket: one that seems so comes from a clock that was set
        // back, or from limits that were lowered.
        let debt = self.full_at_us.saturating_sub(now).min(depth);
        let after = debt + interval;
        if after > depth {
            let retry_after_ms = (after - depth).div_ceil(1000);
            self.full_at_us = now.saturating_add(debt);
            return Err(LimitError::Rate { retry_after_ms });
        }
        self.full_at_us = now.saturating_add(after);
        Ok(())
    }
}
