//! What the operating system tells: stop, stop now, read the configuration again.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are listened to, from the moment it exists.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(crate) fn listen() -> Result<Self> {
        let hear = |kind| signal(kind).context("signals can't be heard");
        Ok(Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            hangup: hear(SignalKind::hangup())?,
        })
    }

    /// Waits until told to stop; every hang-up before that calls `reload`.
    pub(crate) async fn stop(&mut self, mut reload: impl AsyncFnMut()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => reload().await,
            }
        }
    }
}
