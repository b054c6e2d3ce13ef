//! A lease as this node knows it, judged by this node's clock.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::membership::Member;
use tokio::time::Instant;

/// Whether a lease can be counted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Yes, as long as the clock says so.
    Held,
    /// Not any more, or not yet.
    Lost,
    /// Given up for good.
    Left,
}

/// A lease, and who lives under it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) member: Arc<Member>,
    pub(crate) id: i64,
    pub(crate) phase: Phase,
    /// As granted.
    pub(crate) ttl: Duration,
    /// The TTL after the sending of the last keepalive that was answered.
    pub(crate) until: Instant,
}

impl Lease {
    /// How long it is certain to live still.
    pub(crate) fn left(&self) -> Duration {
        match self.phase {
            Phase::Held => self.until.saturating_duration_since(Instant::now()),
            Phase::Lost | Phase::Left => Duration::ZERO,
        }
    }

    /// When to renew it: two thirds before its end.
    pub(crate) fn renewal(&self) -> Instant {
        self.until - self.ttl * 2 / 3
    }
}
