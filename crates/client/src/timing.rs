//! Everything about time, in one place, so that tests can run ten times faster.

use std::time::Duration;

/// How long a client waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// For TCP, TLS and the handshake, for a token from the provider, and for the answer to the
    /// hello. 10 s.
    pub connect_timeout: Duration,
    /// For the answer to any frame; after that the connection counts as lost. 5 s.
    pub ack_timeout: Duration,
    /// Before the first retry, at most. 500 ms: when a gateway dies, all of its clients come at
    /// once.
    pub backoff_min: Duration,
    /// Before any retry, at most. 10 s.
    pub backoff_max: Duration,
    /// A connection that stood so long makes up for the failures before it. 10 s.
    pub stable_after: Duration,
    /// Before a state that was incomplete is asked for again; doubled each time. 2 s.
    pub resync_after: Duration,
    /// In place of the beat that the server asks for.
    pub heartbeat: Option<Duration>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            ack_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(10),
            stable_after: Duration::from_secs(10),
            resync_after: Duration::from_secs(2),
            heartbeat: None,
        }
    }
}

impl Timing {
    /// Everything so many times faster.
    #[must_use]
    pub fn faster(self, times: u32) -> Self {
        let times = times.max(1);
        Self {
            connect_timeout: self.connect_timeout / times,
            ack_timeout: self.ack_timeout / times,
            backoff_min: self.backoff_min / times,
            backoff_max: self.backoff_max / times,
            stable_after: self.stable_after / times,
            resync_after: self.resync_after / times,
            heartbeat: self.heartbeat.map(|h| h / times),
        }
    }
}
