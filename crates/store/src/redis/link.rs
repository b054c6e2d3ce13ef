//! One connection, and its replacement when it is in doubt: the crate reconnects by itself when
//! a peer hangs up, but never gives up on one that went silent.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use redis::{RedisError, RedisResult};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::connection::{Dialer, Wire};

/// Between two attempts to connect.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A connection younger than this is not replaced.
const CHANCE: Duration = Duration::from_millis(500);

/// A wire and its number, by which one in doubt is told from its successor.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) number: u64,
    since: Instant,
    pub(super) wire: Wire,
}

impl Line {
    fn new(number: u64, wire: Wire) -> Self {
        Self {
            number,
            since: Instant::now(),
            wire,
        }
    }
}

/// One connection and its successors.
pub(super) struct Link {
    dialer: Arc<Dialer>,
    current: watch::Sender<Option<Line>>,
    /// The number of the newest line.
    newest: AtomicU64,
    dialing: AtomicBool,
    /// Why the last attempt to connect failed.
    cause: Mutex<String>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// Not connected until it is needed.
    pub(super) fn new(dialer: Arc<Dialer>) -> Arc<Self> {
        Arc::new(Self {
            dialer,
            current: watch::Sender::new(None),
            newest: AtomicU64::new(0),
            dialing: AtomicBool::new(false),
            cause: Mutex::default(),
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.dialer.is_cluster()
    }

    /// Connects now, and says why not.
    pub(super) async fn connect(&self) -> RedisResult<()> {
        let wire = self.dialer.dial(None).await?;
        self.install(wire);
        Ok(())
    }

    /// The connection; waits for one as long as it takes.
    pub(super) async fn line(self: &Arc<Self>) -> Option<Line> {
        let mut current = self.current.subscribe();
        if current.borrow().is_none() {
            self.dial();
        }
        let line = current.wait_for(Option::is_some).await.ok()?;
        line.clone()
    }

    /// Why there is no connection.
    pub(super) fn cause(&self) -> String {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the connection with this number, unless that happened or happens already. The
    /// old one stays in use until then: most of its nodes may be fine.
    pub(super) fn doubt(self: &Arc<Self>, number: u64) {
        // A new one gets a chance: a server that is just slow must not be dialed for ever.
        let is_it = |line: &Line| line.number == number && line.since.elapsed() >= CHANCE;
        if self.current.borrow().as_ref().is_some_and(is_it) {
            self.dial();
        }
    }

    /// As [`doubt`](Self::doubt), for a connection that reaches nobody: it is dropped at once.
    /// (A cluster's that has lost all its nodes can stay like that, and busy, for ever.)
    pub(super) fn abandon(self: &Arc<Self>, number: u64) {
        let dropped = self.current.send_if_modified(|current| {
            let is_it = current.as_ref().is_some_and(|line| line.number == number);
            if is_it {
                *current = None;
            }
            is_it
        });
        if dropped {
            self.dial();
        }
    }

    fn install(&self, wire: Wire) {
        let number = self.newest.fetch_add(1, SeqCst) + 1;
        debug!(number, "connected to redis");
        self.current.send_replace(Some(Line::new(number, wire)));
    }

    /// Connects in the background, once at a time.
    fn dial(self: &Arc<Self>) {
        if self.dialing.swap(true, SeqCst) {
            return;
        }
        let link = Arc::downgrade(self);
        let dialer = self.dialer.clone();
        tokio::spawn(async move {
            let mut pause = DIAL_PAUSE.0;
            loop {
                let dialed = dialer.dial(None).await;
                // Whoever asked is gone with the store.
                let Some(link) = link.upgrade() else { return };
                match dialed {
                    Ok(wire) => {
                        // First this: whoever abandons the new one at once dials again.
                        link.dialing.store(false, SeqCst);
                        return link.install(wire);
                    }
                    Err(error) => link.failed(&error),
                }
                drop(link);
                sleep(pause).await;
                pause = (pause * 2).min(DIAL_PAUSE.1);
            }
        });
    }

    fn failed(&self, error: &RedisError) {
        warn!(%error, "cannot connect to redis");
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
    }
}
