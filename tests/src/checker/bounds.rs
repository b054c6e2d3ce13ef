//! What the design promises, in ms.

/// Times that a run is held to. Those of the run's own configuration, and what telling takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Between two renewals of a gateway.
    pub renew_ms: u64,
    /// A holder's deadline.
    pub holder_ms: u64,
    /// How long a new epoch settles.
    pub settle_ms: u64,
    /// After so long a silent client is closed.
    pub ttl_ms: u64,
    /// How long a broken socket lingers.
    pub linger_ms: u64,
    /// How long a drained gateway sends its clients away.
    pub window_ms: u64,
    /// A reaper's lease.
    pub lease_ms: u64,
    /// From a change to the last watcher, whichever dispatcher is broken.
    pub told_ms: u64,
    /// What calls that get lost may delay a close by.
    pub slack_ms: u64,
}

impl Bounds {
    /// How long a session may go without a renewal before it can be closed, to be safe.
    pub(super) const fn unheld(&self) -> u64 {
        (self.holder_ms - self.renew_ms).saturating_sub(1_500)
    }

    /// How long a drained gateway's session may stay away, to be safe.
    pub(super) const fn drained(&self) -> u64 {
        (self.window_ms + self.linger_ms).saturating_sub(1_000)
    }

    /// How long a broken socket may stay away, to be safe.
    pub(super) const fn away(&self) -> u64 {
        self.linger_ms.saturating_sub(500)
    }
}
