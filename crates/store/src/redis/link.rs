//! One connection, and its replacement when it is in doubt: the crate reconnects by itself when
//! a peer hangs up, but never gives up on one that went silent.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use redis::RedisResult;
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
    dialing: AtomicBool,
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
            dialing: AtomicBool::new(false),
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.dialer.is_cluster()
    }

    /// Connects now, and says why not.
    pub(super) async fn connect(&self) -> RedisResult<()> {
        let wire = self.dialer.dial(None).await?;
        self.current.send_replace(Some(Line::new(1, wire)));
        Ok(())
    }

    /// The connection; waits for the first one as long as it takes.
    pub(super) async fn line(self: &Arc<Self>) -> Option<Line> {
        let mut current = self.current.subscribe();
        if current.borrow().is_none() {
            self.doubt(0);
        }
        let line = current.wait_for(Option::is_some).await.ok()?;
        line.clone()
    }

    /// Replaces the connection with this number, unless that happened or happens already. The
    /// old one stays in use until then: most of its nodes may be fine.
    pub(super) fn doubt(self: &Arc<Self>, number: u64) {
        let is_it = match &*self.current.borrow() {
            // A new one gets a chance: a server that is just slow must not be dialed for ever.
            Some(line) => line.number == number && line.since.elapsed() >= CHANCE,
            None => number == 0,
        };
        if !is_it || self.dialing.swap(true, SeqCst) {
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
                        debug!(number = number + 1, "connected to redis");
                        link.current.send_replace(Some(Line::new(number + 1, wire)));
                        link.dialing.store(false, SeqCst);
                        return;
                    }
                    Err(error) => warn!(%error, "cannot connect to redis"),
                }
                drop(link);
                sleep(pause).await;
                pause = (pause * 2).min(DIAL_PAUSE.1);
            }
        });
    }
}
