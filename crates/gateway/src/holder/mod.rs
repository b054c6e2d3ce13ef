//! Keeps a gateway's sessions in the store: one task per shard around the rules of
//! `core::hold`, so that a shard that hangs holds up nobody else.

mod task;

use std::{
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use adsum_core::{
    Change, Conn, IdError, NodeId, Origin, Prefs, Reason, SessionKey, State,
    hold::{Hold, HoldTimes, Word},
    store::{Shard, Store},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::task::TaskTracker;

use self::task::{Around, Task};
use crate::clock;

/// Shards whose renewals go together.
const RENEWED_AT_ONCE: Shard = 64;

/// Sessions whose time is up are closed together in this part of the linger time, and never later
/// than so many ms.
const TOGETHER: (u64, u64) = (40, 250);

/// Where opens are gathered, closes go with them, up to so many ms: silence is told within a second.
const GATHERED: u64 = 500;

/// Times and bounds of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderConfig {
    /// Between two renewals of a shard.
    pub renew: Duration,
    /// How long closes wait after a shard was in doubt: the linger time.
    pub calm: Duration,
    /// A shard that can't be renewed for so long, while others can, is given up: its users are
    /// told to go elsewhere.
    pub stuck: Duration,
    /// Sessions are opened at whole multiples of this by the wall clock; zero for at once.
    pub gather: Duration,
    /// Requests waiting for one shard; past that the caller is told to come back later.
    pub backlog: usize,
}

/// What happens to sessions is told here, from the shards' tasks: must not block.
pub type Tell = Arc<dyn Fn(SessionKey, Conn, Word) + Send + Sync>;

/// Told of changes that say all there is to say of their owners, once the store has them: must not
/// block.
pub type OnWhole = Arc<dyn Fn(Shard, Change) + Send + Sync>;

/// How a session ends.
#[derive(Debug, Clone)]
pub struct Ending {
    /// Why.
    pub reason: Reason,
    /// After what time; a goodbye at once.
    pub linger: Duration,
    /// The last sign of life.
    pub since: Instant,
    /// For those who measure.
    pub origin: Option<Origin>,
}

impl Ending {
    /// Whose last sign of life was right now.
    #[must_use]
    pub fn new(reason: Reason, linger: Duration) -> Self {
        Self {
            reason,
            linger,
            since: Instant::now(),
            origin: None,
        }
    }
}

/// A shard has too many requests waiting; trying again later helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many operations wait for this shard; retry")]
pub struct Busy;

enum Request {
    Hello(SessionKey, Conn, Box<State>, Option<Origin>),
    Set(SessionKey, Conn, Box<State>, Option<Origin>),
    Prefer(SessionKey, Prefs),
    End(SessionKey, Conn, Box<Ending>),
    Spoke(SessionKey, Conn),
    Check(SessionKey),
    Drain(Duration, oneshot::Sender<()>),
    Count(oneshot::Sender<usize>),
}

/// A gateway's sessions in all shards. Its tasks end with the last clone.
#[derive(Clone)]
pub struct Holder {
    store: Arc<dyn Store>,
    shards: Arc<[mpsc::Sender<Request>]>,
    whole: Arc<OnceLock<OnWhole>>,
}

impl Holder {
    /// Begins to renew. `number` must be higher than any that this node id used before.
    ///
    /// # Errors
    /// When the node's id is too long to make incarnations of it.
    pub fn start(
        store: Arc<dyn Store>,
        node: &NodeId,
        number: u64,
        config: HolderConfig,
        tell: &Tell,
        tracker: &TaskTracker,
    ) -> std::result::Result<Self, IdError> {
        let times = HoldTimes {
            renew_ms: ms(config.renew),
            calm_ms: ms(config.calm),
            together_ms: (ms(config.calm) / TOGETHER.0)
                .min(TOGETHER.1)
                .max(ms(config.gather).min(GATHERED)),
        };
        // All gateways count alike.
        let (start, started_at) = (Instant::now(), clock::wall_ms());
        let prompt: Arc<[AtomicU64]> = (0..store.shards()).map(|_| AtomicU64::new(0)).collect();
        let (mut shards, whole) = (Vec::new(), Arc::default());
        for shard in 0..store.shards() {
            let (requests, inbox) = mpsc::channel(config.backlog);
            let first = started_at + jitter(shard, times.renew_ms);
            let hold = Hold::new(node.clone(), number, times, first)?;
            let around = Around {
                store: store.clone(),
                tell: tell.clone(),
                start,
                started_at,
                prompt: Arc::clone(&prompt),
                whole: Arc::clone(&whole),
            };
            tracker.spawn(Task::new(shard, hold, around, config).run(inbox));
            shards.push(requests);
        }
        Ok(Self {
            store,
            shards: shards.into(),
            whole,
        })
    }

    /// Tells of changes as soon as the store has them, from now on. Only the first caller is told.
    pub fn on_whole(&self, tell: OnWhole) {
        let _ = self.whole.set(tell);
    }

    /// A client said hello.
    ///
    /// # Errors
    /// When its shard has too much to do.
    pub fn hello(
        &self,
        key: SessionKey,
        conn: Conn,
        state: State,
        origin: Option<Origin>,
    ) -> std::result::Result<(), Busy> {
        self.ask(
            &key.clone(),
            Request::Hello(key, conn, Box::new(state), origin),
        )
    }

    /// A connected client changed what it says of itself.
    ///
    /// # Errors
    /// When its shard has too much to do.
    pub fn set(
        &self,
        key: SessionKey,
        conn: Conn,
        state: State,
        origin: Option<Origin>,
    ) -> std::result::Result<(), Busy> {
        self.ask(
            &key.clone(),
            Request::Set(key, conn, Box::new(state), origin),
        )
    }

    /// New preferences of a session's owner.
    ///
    /// # Errors
    /// When its shard has too much to do.
    pub fn prefer(&self, key: SessionKey, prefs: Prefs) -> std::result::Result<(), Busy> {
        self.ask(&key.clone(), Request::Prefer(key, prefs))
    }

    /// Ends a session: a goodbye at once, anything else after `linger`.
    ///
    /// # Errors
    /// When its shard has too much to do: the session is still held.
    pub fn end(
        &self,
        key: SessionKey,
        conn: Conn,
        reason: Reason,
        linger: Duration,
    ) -> std::result::Result<(), Busy> {
        self.end_as(key, conn, Ending::new(reason, linger))
    }

    /// The same, and more about it.
    ///
    /// # Errors
    /// When its shard has too much to do: the session is still held.
    pub fn end_as(
        &self,
        key: SessionKey,
        conn: Conn,
        ending: Ending,
    ) -> std::result::Result<(), Busy> {
        self.ask(&key.clone(), Request::End(key, conn, Box::new(ending)))
    }

    /// A client that was believed silent spoke after all.
    ///
    /// # Errors
    /// When its shard has too much to do.
    pub fn spoke(&self, key: SessionKey, conn: Conn) -> std::result::Result<(), Busy> {
        self.ask(&key.clone(), Request::Spoke(key, conn))
    }

    /// A session may have been closed by a service: if it is connected here, the store is asked.
    ///
    /// # Errors
    /// When its shard has too much to do; the next renewals will notice.
    pub fn check(&self, key: SessionKey) -> std::result::Result<(), Busy> {
        self.ask(&key.clone(), Request::Check(key))
    }

    /// Leaves a last deadline behind in every shard, and waits until they have it.
    pub async fn drain(&self, lease: Duration) {
        let mut drained = Vec::new();
        for shard in &*self.shards {
            let (done, wait) = oneshot::channel();
            if shard.send(Request::Drain(lease, done)).await.is_ok() {
                drained.push(wait);
            }
        }
        futures::future::join_all(drained).await;
    }

    /// How many sessions are connected.
    pub async fn connected(&self) -> usize {
        let mut counts = Vec::new();
        for shard in &*self.shards {
            let (reply, count) = oneshot::channel();
            if shard.send(Request::Count(reply)).await.is_ok() {
                counts.push(count);
            }
        }
        let counts = futures::future::join_all(counts).await;
        counts.into_iter().filter_map(std::result::Result::ok).sum()
    }

    fn ask(&self, key: &SessionKey, request: Request) -> std::result::Result<(), Busy> {
        let shard = usize::from(self.store.shard_of(&key.owner));
        self.shards[shard].try_send(request).map_err(|_| Busy)
    }
}

/// Renewals of the shards are spread over the interval, some at a time: what a master is asked at
/// once costs it a fraction of what it costs one by one.
fn jitter(shard: Shard, renew_ms: u64) -> u64 {
    let group = u64::from(shard / RENEWED_AT_ONCE) + 1;
    group.wrapping_mul(0x9e37_79b9_7f4a_7c15) % renew_ms.max(1)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
