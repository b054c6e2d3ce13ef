//! Keeps a gateway's sessions in the store: one task per shard around the rules of
//! `core::hold`, so that a shard that hangs holds up nobody else.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Conn, IdError, NodeId, Origin, Prefs, Reason, SessionKey, State,
    hold::{Action, Hold, HoldTimes, Word},
    store::{Alter, Altered, Answer, Close, Closed, Open, Opened, Renewed, Result, Shard, Store},
};
use adsum_telemetry::metrics::{Loss, Renewal, metrics};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;

use crate::clock;

/// Operations of one shard under way at a time; the others wait their turn.
const UNDER_WAY: usize = 128;

/// Sessions of a shard whose end is measured at a time.
const VANISHED: usize = 100_000;

/// Shards whose renewals go together.
const RENEWED_AT_ONCE: Shard = 64;

/// Sessions whose time is up are closed together in this part of the linger time, and never later
/// than so many ms: silence is told within a second.
const TOGETHER: (u64, u64) = (40, 250);

/// A renewal that takes at most this part of the time after which a shard is stuck is prompt.
const PROMPT: u64 = 20;

/// One shard in so many must be renewed promptly before another one is stuck: with three masters
/// of which one is heard, a third of them are.
const GOOD_PART: usize = 4;

/// A task that has nothing to do looks up now and then all the same.
const LONGEST_WAIT_MS: u64 = 60_000;

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
            together_ms: (ms(config.calm) / TOGETHER.0).min(TOGETHER.1),
        };
        // All gateways count alike.
        let (start, started_at) = (Instant::now(), clock::wall_ms());
        let prompt: Arc<[AtomicU64]> = (0..store.shards()).map(|_| AtomicU64::new(0)).collect();
        let mut shards = Vec::new();
        for shard in 0..store.shards() {
            let (requests, inbox) = mpsc::channel(config.backlog);
            let first = started_at + jitter(shard, times.renew_ms);
            let hold = Hold::new(node.clone(), number, times, first)?;
            let task = Task {
                shard,
                store: store.clone(),
                hold,
                tell: tell.clone(),
                start,
                started_at,
                prompt: Arc::clone(&prompt),
                stuck_ms: ms(config.stuck),
                gather_ms: ms(config.gather),
                stuck_told: 0,
                answered: 0,
                vanished: HashMap::new(),
                waiting: VecDeque::new(),
                under_way: FuturesUnordered::new(),
            };
            tracker.spawn(task.run(inbox));
            shards.push(requests);
        }
        Ok(Self {
            store,
            shards: shards.into(),
        })
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

/// An answer of the store, with what it answers.
enum Heard {
    Opened(Open, Result<Answer<Opened>>),
    Altered(Alter, Result<Answer<Altered>>),
    Closed(Close, Result<Answer<Closed>>),
    Renewed(Result<Answer<Renewed>>, Duration),
    Drained(oneshot::Sender<()>),
}

struct Task {
    shard: Shard,
    store: Arc<dyn Store>,
    hold: Hold,
    tell: Tell,
    start: Instant,
    /// By the wall clock.
    started_at: u64,
    /// When each shard was last renewed without delay.
    prompt: Arc<[AtomicU64]>,
    stuck_ms: u64,
    gather_ms: u64,
    /// When this shard's users were last told to go elsewhere.
    stuck_told: u64,
    /// When it last answered something other than a renewal.
    answered: u64,
    /// The last sign of life of those who are being closed.
    vanished: HashMap<SessionKey, Instant>,
    waiting: VecDeque<Action>,
    under_way: FuturesUnordered<BoxFuture<'static, Heard>>,
}

impl Task {
    /// Goes on steadily from the wall clock's time at the start.
    fn now(&self) -> u64 {
        self.started_at + ms(self.start.elapsed())
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        loop {
            let wait = self
                .hold
                .next()
                .saturating_sub(self.now())
                .clamp(1, LONGEST_WAIT_MS);
            let next = Instant::now() + Duration::from_millis(wait);
            let actions = tokio::select! {
                Some(heard) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.hear(heard)
                }
                request = inbox.recv() => match request {
                    Some(request) => self.take(request),
                    None => return,
                },
                () = sleep_until(next) => {
                    let now = self.now();
                    self.hold.tick(now)
                }
            };
            self.act(actions);
            let away = self.stuck();
            self.act(away);
        }
    }

    /// Users of a shard that can't be renewed from here, though others can. A gateway that is slow
    /// itself sends nobody away: it is no better elsewhere, and worse if they all go there. So a
    /// shard that answers anything at all is not given up.
    fn stuck(&mut self) -> Vec<Action> {
        let (now, last) = (self.now(), self.hold.renewed_at().max(self.answered));
        let stuck = now.saturating_sub(last) >= self.stuck_ms;
        let told = now.saturating_sub(self.stuck_told) < self.stuck_ms;
        if !stuck || told || !self.others_are_prompt(now) || self.hold.connected() == 0 {
            return Vec::new();
        }
        self.stuck_told = now;
        tracing::warn!(
            shard = self.shard,
            "can't be renewed; its users are sent elsewhere"
        );
        self.hold.send_away()
    }

    /// Whether a good part of the shards was renewed lately, and at once.
    fn others_are_prompt(&self, now: u64) -> bool {
        let lately = |at: &&AtomicU64| now.saturating_sub(at.load(Relaxed)) < self.stuck_ms;
        self.prompt.iter().filter(lately).count() * GOOD_PART >= self.prompt.len()
    }

    fn take(&mut self, request: Request) -> Vec<Action> {
        let now = self.now();
        match request {
            Request::Hello(key, conn, state, origin) => {
                self.vanished.remove(&key);
                self.hold.hello(key, conn, *state, origin)
            }
            Request::Set(key, conn, state, origin) => self.hold.set(&key, conn, *state, origin),
            Request::Prefer(key, prefs) => {
                self.hold.prefer(&key, prefs);
                Vec::new()
            }
            Request::End(key, conn, ending) => {
                self.hold.caused_by(&key, conn, ending.origin);
                let at = now.saturating_add(ms(ending.linger));
                let actions = self.hold.end(&key, conn, ending.reason, at);
                if self.vanished.len() > VANISHED {
                    // Some were taken over by others and never closed from here.
                    self.vanished.clear();
                }
                self.vanished.insert(key, ending.since);
                actions
            }
            Request::Spoke(key, conn) => {
                self.vanished.remove(&key);
                self.hold.spoke(&key, conn)
            }
            Request::Check(key) => self.hold.check(&key),
            Request::Drain(lease, done) => {
                self.drain(lease, done);
                Vec::new()
            }
            Request::Count(reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(self.hold.connected());
                Vec::new()
            }
        }
    }

    /// The last renewal goes before everything that waits.
    fn drain(&mut self, lease: Duration, done: oneshot::Sender<()>) {
        for action in self.hold.drain(ms(lease)) {
            if let Action::Renew(incarnation, lease) = action {
                let (store, shard) = (self.store.clone(), self.shard);
                self.under_way.push(Box::pin(async move {
                    if let Err(error) = store.renew(shard, &incarnation, lease).await {
                        tracing::warn!(shard, %error, "no last deadline was left behind");
                    }
                    Heard::Drained(done)
                }));
                return;
            }
        }
        let _ = done.send(());
    }

    fn hear(&mut self, heard: Heard) -> Vec<Action> {
        let now = self.now();
        self.count(&heard);
        let answered = match &heard {
            Heard::Opened(_, answer) => answer.is_ok(),
            Heard::Altered(_, answer) => answer.is_ok(),
            Heard::Closed(_, answer) => answer.is_ok(),
            Heard::Renewed(..) | Heard::Drained(_) => false,
        };
        if answered {
            self.answered = now;
        }
        match heard {
            Heard::Opened(op, answer) => self.hold.opened(&op, answer, now),
            Heard::Altered(op, answer) => self.hold.altered(&op, answer, now),
            Heard::Closed(op, answer) => self.hold.closed(&op, answer, now),
            Heard::Renewed(answer, took) => {
                if answer.is_ok() && ms(took) <= self.stuck_ms / PROMPT {
                    self.prompt[usize::from(self.shard)].store(now, Relaxed);
                }
                self.hold.renewed(answer, now)
            }
            Heard::Drained(done) => {
                let _ = done.send(());
                Vec::new()
            }
        }
    }

    fn count(&mut self, heard: &Heard) {
        let metrics = metrics();
        match heard {
            Heard::Renewed(answer, _) => {
                let outcome = match answer {
                    // One that holds nothing is not known, and that is well.
                    Ok(a) if a.value == Renewed::Gone && self.hold.was_swept(a.epoch) => {
                        let lost = metrics.sessions_lost.of(Loss::HolderGone);
                        lost.add(self.hold.connected());
                        Renewal::Gone
                    }
                    Ok(_) => Renewal::Ok,
                    Err(_) => Renewal::Error,
                };
                metrics.renewals.of(outcome).one();
            }
            Heard::Altered(_, Ok(answer)) if answer.value == Altered::Unknown => {
                metrics.sessions_lost.of(Loss::Unknown).one();
            }
            Heard::Closed(op, Ok(answer)) => {
                let since = self.vanished.remove(&op.key);
                if let (Some(since), Closed::Ok { committed: true }) = (since, answer.value) {
                    let detection = metrics.detection.of(op.reason);
                    detection.record_time(since.elapsed());
                }
            }
            _ => {}
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Tell(key, conn, word) => (self.tell)(key, conn, word),
                // A renewal speaks for all others: it does not wait behind them.
                Action::Renew(..) => self.waiting.push_front(action),
                _ => self.waiting.push_back(action),
            }
        }
        while self.under_way.len() < UNDER_WAY
            && let Some(action) = self.waiting.pop_front()
        {
            if let Some(call) = self.call(action) {
                self.under_way.push(call);
            }
        }
    }

    /// When the gateways open sessions next, if they do so together.
    fn next_beat(&self) -> Option<Instant> {
        let at = self.now().checked_next_multiple_of(self.gather_ms)?;
        Some(self.start + Duration::from_millis(at - self.started_at))
    }

    fn call(&self, action: Action) -> Option<BoxFuture<'static, Heard>> {
        let (store, shard) = (self.store.clone(), self.shard);
        Some(match action {
            Action::Open(op) => {
                let beat = self.next_beat();
                Box::pin(async move {
                    if let Some(beat) = beat {
                        sleep_until(beat).await;
                    }
                    let answer = store.open(op.clone()).await;
                    Heard::Opened(op, answer)
                })
            }
            Action::Alter(op) => Box::pin(async move {
                let answer = store.alter(op.clone()).await;
                Heard::Altered(op, answer)
            }),
            Action::Close(op) => Box::pin(async move {
                let answer = store.close(op.clone()).await;
                Heard::Closed(op, answer)
            }),
            Action::Renew(incarnation, lease) => {
                let sent = Instant::now();
                Box::pin(async move {
                    let answer = store.renew(shard, &incarnation, lease).await;
                    Heard::Renewed(answer, sent.elapsed())
                })
            }
            Action::Tell(..) => return None,
        })
    }
}
