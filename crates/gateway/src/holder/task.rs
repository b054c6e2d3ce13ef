//! The task of one shard: what is asked of it, what the store answers, what is due.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Change, SessionKey,
    hold::{Action, Hold},
    store::{Alter, Altered, Answer, Close, Closed, Open, Opened, Renewed, Result, Shard, Store},
};
use adsum_telemetry::metrics::{Loss, Renewal, metrics};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use super::{HolderConfig, OnWhole, Request, Tell, ms};

/// Operations of one shard under way at a time; the others wait their turn.
const UNDER_WAY: usize = 128;

/// Sessions of a shard whose end is measured at a time.
const VANISHED: usize = 100_000;

/// A renewal that takes at most this part of the time after which a shard is stuck is prompt.
const PROMPT: u64 = 20;

/// One shard in so many must be renewed promptly before another one is stuck: with three masters
/// of which one is heard, a third of them are.
const GOOD_PART: usize = 4;

/// A task that has nothing to do looks up now and then all the same.
const LONGEST_WAIT_MS: u64 = 60_000;

/// An answer of the store, with what it answers.
enum Heard {
    Opened(Open, Result<Answer<Opened>>),
    Altered(Alter, Result<Answer<Altered>>),
    Closed(Close, Result<Answer<Closed>>),
    Renewed(Result<Answer<Renewed>>, Duration),
    Drained(oneshot::Sender<()>),
}

impl Heard {
    /// The change that was committed, if it is all there is to say of its owner.
    fn whole(&mut self) -> Option<Box<Change>> {
        match self {
            Self::Opened(_, Ok(answer)) => answer.whole.take(),
            Self::Altered(_, Ok(answer)) => answer.whole.take(),
            Self::Closed(_, Ok(answer)) => answer.whole.take(),
            _ => None,
        }
    }
}

/// What the tasks of all shards share.
pub(super) struct Around {
    pub(super) store: Arc<dyn Store>,
    pub(super) tell: Tell,
    pub(super) start: Instant,
    /// By the wall clock.
    pub(super) started_at: u64,
    /// When each shard was last renewed without delay.
    pub(super) prompt: Arc<[AtomicU64]>,
    pub(super) whole: Arc<OnceLock<OnWhole>>,
}

/// One shard's.
pub(super) struct Task {
    shard: Shard,
    hold: Hold,
    around: Around,
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
    pub(super) fn new(shard: Shard, hold: Hold, around: Around, config: HolderConfig) -> Self {
        Self {
            shard,
            hold,
            around,
            stuck_ms: ms(config.stuck),
            gather_ms: ms(config.gather),
            stuck_told: 0,
            answered: 0,
            vanished: HashMap::new(),
            waiting: VecDeque::new(),
            under_way: FuturesUnordered::new(),
        }
    }

    /// Goes on steadily from the wall clock's time at the start.
    fn now(&self) -> u64 {
        self.around.started_at + ms(self.around.start.elapsed())
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        loop {
            let wait = self
                .hold
                .next()
                .saturating_sub(self.now())
                .clamp(1, LONGEST_WAIT_MS);
            let next = Instant::now() + Duration::from_millis(wait);
            let mut whole = None;
            let actions = tokio::select! {
                Some(mut heard) = self.under_way.next(), if !self.under_way.is_empty() => {
                    whole = heard.whole();
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
            // Whoever caused it is answered first.
            if let (Some(change), Some(tell)) = (whole, self.around.whole.get()) {
                tell(self.shard, *change);
            }
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
        self.around.prompt.iter().filter(lately).count() * GOOD_PART >= self.around.prompt.len()
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
                let (store, shard) = (self.around.store.clone(), self.shard);
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
                    self.around.prompt[usize::from(self.shard)].store(now, Relaxed);
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
                Action::Tell(key, conn, word) => (self.around.tell)(key, conn, word),
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
        Some(self.around.start + Duration::from_millis(at - self.around.started_at))
    }

    fn call(&self, action: Action) -> Option<BoxFuture<'static, Heard>> {
        let (store, shard) = (self.around.store.clone(), self.shard);
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
