//! The connection to one server, and its replacement: when it breaks at once, when it is silent
//! after a while.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use redis::{
    Cmd, PushInfo, PushKind, RedisError, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::{cluster::Cluster, connection::OnPush, topology::Address};

/// Between two attempts to connect.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A connection younger than this is not replaced for its silence.
const CHANCE: Duration = Duration::from_millis(500);
/// So many calls without an answer, one after another, are silence.
const SILENCE: u32 = 2;

/// Hears pushes, with the number of the line they came over.
pub(super) type Ear = Arc<dyn Fn(u64, PushInfo) + Send + Sync>;

/// A connection and its number, by which one that failed is told from its successor.
#[derive(Clone)]
pub(super) struct Line {
    number: u64,
    since: Instant,
    connection: MultiplexedConnection,
}

impl Line {
    /// Sends commands one after another; their answers, or the first error.
    pub(super) async fn send(&self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        let mut connection = self.connection.clone();
        if let [command] = commands {
            let answer = connection.req_packed_command(command).await?;
            return Ok(vec![answer.extract_error()?]);
        }
        let mut all = redis::pipe();
        for command in commands {
            all.add_command(command.clone());
        }
        let answers = connection.req_packed_commands(&all, 0, commands.len());
        answers
            .await?
            .into_iter()
            .map(Value::extract_error)
            .collect()
    }
}

/// The connection to one server.
pub(super) struct Link {
    address: Address,
    cluster: Arc<Cluster>,
    ear: Option<Ear>,
    current: watch::Sender<Option<Line>>,
    dialing: AtomicBool,
    /// Calls in a row that were not answered.
    silent: AtomicU32,
    /// Why the last attempt to connect failed.
    cause: Mutex<String>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.address).finish()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.replace(None);
    }
}

impl Link {
    /// Not connected until it is needed.
    pub(super) fn new(address: Address, cluster: Arc<Cluster>, ear: Option<Ear>) -> Arc<Self> {
        Arc::new(Self {
            address,
            cluster,
            ear,
            current: watch::Sender::new(None),
            dialing: AtomicBool::new(false),
            silent: AtomicU32::new(0),
            cause: Mutex::default(),
        })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The connection; waits for one as long as it takes.
    pub(super) async fn line(self: &Arc<Self>) -> Line {
        let mut current = self.current.subscribe();
        loop {
            if let Some(line) = current.borrow_and_update().clone() {
                return line;
            }
            self.dial();
            // Can't fail: the sender is in `self`.
            let _ = current.changed().await;
        }
    }

    /// Why there is no connection.
    pub(super) fn cause(&self) -> String {
        let cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        format!("not connected to {}: {cause}", self.address)
    }

    /// Takes note of how a call over a line ended.
    pub(super) fn heard<T>(self: &Arc<Self>, line: &Line, answer: &RedisResult<T>) {
        match answer {
            Err(error) if error.is_timeout() => self.missed(line),
            Err(error) if error.is_unrecoverable_error() => self.lost(line),
            _ => self.silent.store(0, SeqCst),
        }
    }

    /// A call was not answered. A line that is silent is in use until it is replaced: the server
    /// may be slow only.
    fn missed(self: &Arc<Self>, line: &Line) {
        let silent = self.silent.fetch_add(1, SeqCst) + 1;
        let is_it = |now: &Line| now.number == line.number && now.since.elapsed() >= CHANCE;
        if silent >= SILENCE && self.current.borrow().as_ref().is_some_and(is_it) {
            self.silent.store(0, SeqCst);
            self.dial();
        }
    }

    fn lost(self: &Arc<Self>, line: &Line) {
        if self.is_current(line.number) {
            self.replace(None);
            self.dial();
        }
    }

    fn is_current(&self, number: u64) -> bool {
        let current = self.current.borrow();
        current.as_ref().is_some_and(|line| line.number == number)
    }

    fn replace(&self, line: Option<Line>) {
        let before = self.current.send_replace(line);
        if let (Some(before), Some(ear)) = (before, &self.ear) {
            // The crate says this when the server hangs up, but not when we do.
            let (kind, data) = (PushKind::Disconnection, Vec::new());
            ear(before.number, PushInfo { kind, data });
        }
    }

    /// Connects in the background, once at a time.
    fn dial(self: &Arc<Self>) {
        if self.dialing.swap(true, SeqCst) {
            return;
        }
        let link = Arc::downgrade(self);
        let (address, ear) = (self.address.clone(), self.ear.clone());
        let dialer = self.cluster.dialer().clone();
        tokio::spawn(async move {
            let mut pause = DIAL_PAUSE.0;
            loop {
                let (number, on_push) = next(ear.as_ref());
                let dialed = dialer.dial(&address, on_push).await;
                // The slots went elsewhere, or the store is gone.
                let Some(link) = link.upgrade() else { return };
                match dialed {
                    Ok(connection) => {
                        // First this: whoever loses the new one at once dials again.
                        link.dialing.store(false, SeqCst);
                        return link.connected(number, connection);
                    }
                    Err(error) => link.failed(&error),
                }
                drop(link);
                sleep(pause).await;
                pause = (pause * 2).min(DIAL_PAUSE.1);
            }
        });
    }

    fn connected(&self, number: u64, connection: MultiplexedConnection) {
        debug!(server = %self.address, "connected to redis");
        let since = Instant::now();
        self.silent.store(0, SeqCst);
        self.replace(Some(Line {
            number,
            since,
            connection,
        }));
    }

    fn failed(&self, error: &RedisError) {
        warn!(server = %self.address, %error, "cannot connect to redis");
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
        self.cluster.doubt();
    }
}

/// The number of the next line, and what hears its pushes.
fn next(ear: Option<&Ear>) -> (u64, Option<OnPush>) {
    static LINES: AtomicU64 = AtomicU64::new(1);
    let number = LINES.fetch_add(1, SeqCst);
    let on_push = ear
        .cloned()
        .map(|ear| -> OnPush { Box::new(move |info| ear(number, info)) });
    (number, on_push)
}
