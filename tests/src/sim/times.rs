//! The times of a simulated cluster: those of a real one, two and a half times faster, but for
//! what happens within a second anyway.

use adsum_core::Limits;
use adsum_store::Options;

use crate::checker::Bounds;

/// All in ms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) renew: u64,
    pub(super) holder: u64,
    pub(super) settle: u64,
    pub(super) ttl: u64,
    pub(super) beat: u64,
    pub(super) linger: u64,
    pub(super) ack: u64,
    pub(super) call: u64,
    pub(super) poll: u64,
    pub(super) silent: u64,
    pub(super) lease: u64,
    pub(super) sweep: u64,
    pub(super) window: u64,
    pub(super) absent: u64,
    /// Faults and actions end here.
    pub(super) active: u64,
    /// The run ends so long after.
    pub(super) quiet: u64,
}

impl Times {
    pub(super) const DEFAULT: Self = Self {
        renew: 2_000,
        holder: 12_000,
        settle: 18_000,
        ttl: 18_000,
        beat: 6_000,
        linger: 4_000,
        ack: 2_000,
        call: 500,
        poll: 500,
        silent: 1_600,
        lease: 2_000,
        sweep: 1_000,
        window: 6_000,
        absent: 24_000,
        active: 40_000,
        quiet: 50_000,
    };

    pub(super) fn store(&self, shards: u16) -> Options {
        Options {
            shards,
            holder_ms: self.holder,
            settle_ms: self.settle,
            alive_gap_ms: 4_000,
            tomb_ms: 24_000,
            max_deadline_ms: 48_000,
            retention_ms: 3_600_000,
            log_len: 100,
            log_max_bytes: 1 << 20,
            limits: Limits::default(),
        }
    }

    pub(super) const fn bounds(&self, noisy: bool) -> Bounds {
        Bounds {
            renew_ms: self.renew,
            holder_ms: self.holder,
            settle_ms: self.settle,
            ttl_ms: self.ttl,
            linger_ms: self.linger,
            window_ms: self.window,
            lease_ms: self.lease,
            told_ms: 4_500,
            slack_ms: if noisy { self.linger + 3_000 } else { 0 },
        }
    }
}
