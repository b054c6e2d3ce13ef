//! One task per shard: follows it, and hands its states to the streams that asked for them.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use adsum_core::{
    Change, Version, View,
    store::{Push, Shard, Store},
};
use adsum_proto::TopicKey;
use adsum_telemetry::metrics::metrics;
use futures::{StreamExt, stream::BoxStream};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::DispatcherConfig,
    frames::{PartOf, Parts},
    interest::{Interest, StreamId},
    outlet::{Mark, Outlet},
    shards::{ShardStatus, Shards},
    tail::{News, Routed, Tail},
};

/// Pushes taken at once, so that a burst tells each user once.
const BURST: usize = 256;

/// Looks happen at so many instants of an interval, the same for all shards: what a master is
/// asked at once costs it a fraction of what it costs one by one. All of them at one instant would
/// hold up what comes meanwhile.
const BEATS: u32 = 4;

/// Pushes without a hole stand for looks, but not for more than so many in a row.
const PUSHED_ALONE: u32 = 8;

/// What streams ask of a shard.
pub(crate) enum Ask {
    /// Serve it on this stream.
    Take {
        outlet: Arc<Outlet>,
        cursor: Option<Version>,
        fresh: Vec<TopicKey>,
    },
    /// Serve it no longer.
    Release(StreamId),
    /// Parts of these topics; dropped unanswered while there is no view.
    Parts(Vec<TopicKey>, oneshot::Sender<Parts>),
}

struct Waiting {
    outlet: Arc<Outlet>,
    cursor: Option<Version>,
    fresh: Vec<TopicKey>,
}

/// The task's state.
pub(crate) struct ShardTask {
    pub(crate) shard: Shard,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Arc<DispatcherConfig>,
    pub(crate) interest: Arc<Interest>,
    pub(crate) shards: Arc<Shards>,
    tail: Tail,
    takers: HashMap<StreamId, Arc<Outlet>>,
    /// Streams whose cursor is ahead of the view, or that came before it was loaded.
    waiting: Vec<Waiting>,
    /// The last look failed: the view may be any age, and a newcomer would take it for the truth.
    doubt: bool,
    idle_since: Instant,
    /// When the log was last seen to agree with the view.
    agreed: Instant,
    /// When the log was last looked at.
    looked: Instant,
    /// When gateways were last told where the view is.
    marked: Instant,
}

impl ShardTask {
    pub(crate) fn new(
        shard: Shard,
        store: Arc<dyn Store>,
        config: Arc<DispatcherConfig>,
        interest: Arc<Interest>,
        shards: Arc<Shards>,
    ) -> Self {
        let tail = Tail::new(store.clone(), shard, config.history);
        Self {
            shard,
            store,
            config,
            interest,
            shards,
            tail,
            takers: HashMap::new(),
            waiting: Vec::new(),
            doubt: false,
            idle_since: Instant::now(),
            agreed: Instant::now(),
            looked: Instant::now(),
            marked: Instant::now(),
        }
    }

    /// Runs until cancelled, or until nobody has wanted the shard for a while.
    pub(crate) async fn run(mut self, mut asks: mpsc::Receiver<Ask>, cancel: CancellationToken) {
        let mut pushes = self.listen();
        self.look().await;
        let phase = self.config.poll * (u32::from(self.shard) % BEATS + 1) / BEATS;
        let mut quiet = pin!(sleep_until(self.look_at(phase)));
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                ask = asks.recv() => match ask {
                    Some(ask) => self.answer(ask).await,
                    None => return,
                },
                () = quiet.as_mut() => {
                    self.look().await;
                    if self.retire(&asks) {
                        return;
                    }
                    quiet.as_mut().reset(self.look_at(self.config.poll));
                }
                burst = pushes.next() => match burst {
                    Some(burst) => {
                        self.hear(burst).await;
                        quiet.as_mut().reset(self.look_at(self.config.poll));
                    }
                    None => pushes = self.listen(),
                },
            }
        }
    }

    /// The shard's pushes. Not having them costs time, never truth: until they can be had the
    /// polls go on alone, and once they are had a look tells what was missed. Ends when it has
    /// to be asked for again.
    fn listen(&self) -> BoxStream<'static, Vec<Push>> {
        let (store, shard, pause) = (self.store.clone(), self.shard, self.config.poll * 4);
        let subscribed = async move {
            match store.subscribe(shard).await {
                Ok(pushes) => futures::stream::iter([Push::Lost]).chain(pushes).boxed(),
                Err(error) => {
                    tracing::warn!(shard, %error, "no pushes, polling alone");
                    tokio::time::sleep(pause).await;
                    futures::stream::empty().boxed()
                }
            }
        };
        futures::stream::once(subscribed)
            .flatten()
            .ready_chunks(BURST)
            .boxed()
    }

    /// When to look if nothing is heard until then: on the last beat that is not later than
    /// `after` the view was last seen to be right. A lost push thus costs no more than that.
    fn look_at(&self, after: Duration) -> Instant {
        let beat = (self.config.poll / BEATS).max(Duration::from_millis(1));
        let due = (self.agreed.max(self.looked) + after).duration_since(self.shards.began);
        let past = Duration::from_nanos((due.as_nanos() % beat.as_nanos()) as u64);
        self.shards.began + due.saturating_sub(past)
    }

    async fn hear(&mut self, burst: Vec<Push>) {
        let changes: Option<Vec<Change>> = burst
            .into_iter()
            .map(|push| match push {
                Push::Change(change) => Some(*change),
                Push::Lost => None,
            })
            .collect();
        self.tail.traces.served = !self.takers.is_empty();
        let before = self.tail.view().map(View::version);
        match changes.and_then(|changes| self.tail.push(&changes)) {
            Some(states) => {
                self.tell_checks();
                self.route(&states);
            }
            None => return self.look().await,
        }
        if self.tail.view().map(View::version) == before {
            return;
        }
        self.agreed = Instant::now();
        // A mark goes to all gateways, whoever watches: not with each push.
        if self.marked.elapsed() < self.config.poll {
            return;
        }
        let in_doubt = self.doubt || !self.waiting.is_empty();
        if in_doubt || self.looked.elapsed() >= self.config.poll * PUSHED_ALONE {
            return self.look().await;
        }
        self.report(true);
        self.mark();
    }

    /// Looks at the log. Only a look that succeeded is told: a gateway that hears nothing goes
    /// to the next dispatcher.
    async fn look(&mut self) {
        self.takers.retain(|_, outlet| !outlet.closed());
        self.waiting.retain(|w| !w.outlet.closed());
        self.tail.traces.served = !self.takers.is_empty();
        let news = self.tail.poll().await;
        self.looked = Instant::now();
        self.doubt = !matches!(news, Ok(News::Current(_) | News::Whole(_)));
        if !self.doubt {
            self.agreed = self.looked;
        }
        self.report(!self.doubt);
        self.tell_checks();
        match news {
            Ok(News::Current(states)) => {
                self.route(&states);
                self.admit();
                self.mark();
            }
            Ok(News::Whole(states)) => {
                self.route(&states);
                self.takers
                    .values()
                    .for_each(|outlet| outlet.send_whole(self.shard));
                self.admit();
                self.mark();
            }
            Ok(News::Behind) => {}
            Err(error) => tracing::debug!(shard = self.shard, %error, "shard can't be read now"),
        }
    }

    /// Goes before what watchers are told: what they see of a user is then carried through a loss
    /// by the gateway that tells them, if it has the user.
    fn tell_checks(&mut self) {
        for check in self.tail.checks() {
            let outlets = self.takers.values();
            outlets.for_each(|outlet| outlet.check(self.shard, &check));
        }
    }

    fn route(&mut self, states: &[Arc<Routed>]) {
        let (mut pushed, mut fed) = (0, Vec::new());
        for routed in states {
            let (state, before) = (&routed.state, pushed);
            self.interest
                .streams(&state.tenant, &state.topic, |stream| {
                    if let Some(outlet) = self.takers.get(&stream) {
                        outlet.push(self.shard, routed);
                        pushed += 1;
                        if !fed.contains(&stream) {
                            fed.push(stream);
                        }
                    }
                });
            self.tail.traces.routed(state, pushed - before);
        }
        let fed = fed.iter().filter_map(|stream| self.takers.get(stream));
        fed.for_each(|outlet| outlet.flush());
        metrics().states.add(pushed);
        self.tail.traces.sent();
    }

    fn position(&self) -> Option<Mark> {
        let view = self.tail.view()?;
        Some(Mark {
            version: view.version(),
            settling: view.settling(),
        })
    }

    fn mark(&mut self) {
        self.marked = Instant::now();
        let Some(mark) = self.position() else { return };
        self.takers
            .values()
            .for_each(|outlet| outlet.mark(self.shard, mark));
    }

    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Take {
                outlet,
                cursor,
                fresh,
            } => {
                self.idle_since = Instant::now();
                let ahead = self
                    .tail
                    .view()
                    .is_none_or(|v| cursor.is_some_and(|c| c > v.version()));
                self.waiting.push(Waiting {
                    outlet,
                    cursor,
                    fresh,
                });
                if ahead || self.doubt {
                    self.look().await;
                } else {
                    self.admit();
                    self.mark();
                }
            }
            Ask::Release(stream) => {
                self.takers.remove(&stream);
                self.waiting.retain(|w| w.outlet.id != stream);
                self.idle_since = Instant::now();
            }
            Ask::Parts(topics, reply) => {
                if let (Some(view), Some(at)) = (self.tail.view(), self.position()) {
                    let part = |topic: TopicKey| {
                        let members = view.members(&topic.0, &topic.1);
                        let withdrawn = view.withdrawn(&topic.0, &topic.1);
                        PartOf {
                            topic,
                            members,
                            withdrawn,
                        }
                    };
                    let parts = topics.into_iter().map(part).collect();
                    // A stream that has ended does not want them any more.
                    let _ = reply.send(Parts { at, parts });
                }
            }
        }
    }

    /// Begins to serve those whose cursor the view has reached.
    fn admit(&mut self) {
        let Some(view) = self.tail.view() else { return };
        let ready = |w: &Waiting| w.cursor.is_none_or(|c| c <= view.version());
        let (now, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(ready);
        self.waiting = later;
        for Waiting {
            outlet,
            cursor,
            fresh,
        } in now
        {
            let wanted = |tenant: &_, topic: &_| {
                let key = (Clone::clone(tenant), Clone::clone(topic));
                !fresh.contains(&key) && outlet.knows(&key)
            };
            let caught_up = cursor.and_then(|cursor| view.since(cursor, wanted));
            self.takers.insert(outlet.id, outlet.clone());
            match caught_up {
                Some(states) => {
                    outlet.serve(self.shard, Some(fresh));
                    for state in states {
                        let routed = Routed {
                            state,
                            committed_us: 0,
                            routed_us: 0,
                        };
                        outlet.push(self.shard, &Arc::new(routed));
                    }
                }
                None => outlet.serve(self.shard, None),
            }
        }
    }

    fn report(&self, current: bool) {
        let view = self.tail.view();
        self.shards.report(
            self.shard,
            ShardStatus {
                version: view.map_or(Version::ZERO, View::version),
                settling: view.is_some_and(View::settling),
                people: view.map_or(0, View::people),
                rooms: view.map_or(0, View::rooms),
                lag: self.tail.lag,
                agreed: self.agreed.into_std(),
                gateways: self.takers.len(),
                current,
            },
        );
    }

    fn retire(&mut self, asks: &mpsc::Receiver<Ask>) -> bool {
        let wanted = !self.takers.is_empty() || !self.waiting.is_empty();
        if wanted
            || self.idle_since.elapsed() < self.config.unload_after.max(Duration::from_millis(1))
        {
            return false;
        }
        self.shards.retire(self.shard, asks)
    }
}
