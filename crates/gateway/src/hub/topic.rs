//! One watched topic: its watchers, and the task that tells them in time.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use adsum_core::{TenantId, Topic, UserId};
use adsum_proto::client::Mode;
use adsum_telemetry::metrics::{Held, metrics};
use futures::{FutureExt, StreamExt};
use slab::Slab;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Asked, Delivery, HubConfig, Watcher, board::Board, journeys::Journeys, lock};
use crate::{
    clock,
    feed::{Feed, TopicEvent, Watch},
    outbox::{Draft, Outbox, SlotId, Watched, WatcherId},
    sight::Sight,
};

/// How soon it is looked again whether a diff was taken.
const LOOK: Duration = Duration::from_millis(1);

/// One in so many watchers may not have taken a diff when the next is told.
const FEW: usize = 8;

/// So many watchers are written to by the one who tells. More than these are woken to write for
/// themselves, so that all cores do.
const AT_ONCE: usize = 256;

/// The memory of so many watchers is asked for before the first of them is told. The write of a
/// frame needs much of the cache, too: more than a few would be pushed out again.
const AHEAD: usize = 8;

#[derive(Debug)]
pub(crate) struct TopicHub {
    pub(crate) key: (TenantId, Topic),
    feed: Feed,
    config: HubConfig,
    inner: Mutex<Inner>,
    /// Nobody watches it any more.
    stop: CancellationToken,
    _counted: Held,
}

#[derive(Debug)]
struct Inner {
    board: Board,
    journeys: Journeys,
    ready: bool,
    /// In the order in which they came, as far as places are not taken again: what belongs to them
    /// lies in memory in that order, too, and a diff goes through all of it.
    watchers: Slab<Member>,
    /// What the size of the topic demanded when all watchers were last put into their groups.
    size: Mode,
    /// Somebody's state was not complete.
    partial: bool,
    /// What each mode was last told, and when.
    told: [Option<LastTold>; 3],
}

#[derive(Debug)]
struct LastTold {
    at: Instant,
    delivery: Option<Arc<Delivery>>,
}

impl LastTold {
    /// Whether most of so many watchers have taken it: until then a further diff would wait behind
    /// it all the same, and joins what is told next. A few may not be reading at all.
    fn is_taken(&self, watchers: usize) -> bool {
        let waiting = |delivery| Arc::strong_count(delivery) - 1;
        self.delivery.as_ref().map_or(0, waiting) * FEW <= watchers
    }
}

#[derive(Debug)]
struct Member {
    outbox: Arc<Outbox>,
    slot: SlotId,
    sight: Sight,
    asked: Mode,
    /// The group it is told with; `None` until it got its first state.
    mode: Option<Mode>,
    /// Whom it was told of that not everybody may see.
    seen: BTreeSet<UserId>,
    /// The first state is still to come.
    waiting: Option<Box<Asked>>,
    /// Its state was not complete.
    partial: bool,
}

impl Watched for TopicHub {
    fn topic(&self) -> &Topic {
        &self.key.1
    }

    fn restate(&self, watcher: WatcherId) {
        let mut inner = lock(&self.inner);
        if inner.ready {
            self.settle(&mut inner, watcher);
        }
    }
}

impl TopicHub {
    pub(super) fn new(key: (TenantId, Topic), feed: Feed, config: HubConfig) -> Arc<Self> {
        let counted = !matches!(key.1, Topic::User(_));
        let counted_topic = metrics().topics.of((&key.1).into()).hold();
        let inner = Inner {
            board: Board::new(config, counted),
            journeys: Journeys::default(),
            ready: false,
            watchers: Slab::new(),
            size: Mode::Members,
            partial: false,
            told: [const { None }; 3],
        };
        Arc::new(Self {
            key,
            feed,
            config,
            inner: Mutex::new(inner),
            stop: CancellationToken::new(),
            _counted: counted_topic,
        })
    }

    pub(super) fn enter(self: &Arc<Self>, watcher: Watcher) -> WatcherId {
        let mut inner = lock(&self.inner);
        let place = inner.watchers.vacant_entry();
        let id = place.key();
        let slot = watcher.outbox.add(Arc::<Self>::clone(self), id);
        let member = Member {
            outbox: watcher.outbox,
            slot,
            sight: watcher.sight,
            asked: watcher.asked.mode,
            mode: None,
            seen: BTreeSet::new(),
            waiting: Some(Box::new(watcher.asked)),
            partial: false,
        };
        place.insert(member);
        if inner.ready {
            self.settle(&mut inner, id);
        }
        id
    }

    /// How many are still there.
    pub(super) fn leave(&self, id: WatcherId) -> usize {
        let mut inner = lock(&self.inner);
        if let Some(member) = inner.watchers.try_remove(id) {
            member.outbox.remove(member.slot);
            if let Some(mode) = member.mode {
                inner.board.leave(mode);
            }
        }
        inner.watchers.len()
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn ask(&self, id: WatcherId, asked: Asked) {
        let mut inner = lock(&self.inner);
        if let Some(member) = inner.watchers.get_mut(id) {
            member.asked = asked.mode;
            member.waiting = Some(Box::new(asked));
        }
        if inner.ready {
            self.settle(&mut inner, id);
        }
    }

    pub(super) fn look(&self, id: WatcherId, sight: Sight) {
        let mut inner = lock(&self.inner);
        if let Some(member) = inner.watchers.get_mut(id) {
            member.sight = sight;
        }
        if inner.ready {
            self.settle(&mut inner, id);
        }
    }

    /// Puts a watcher into the group it belongs to, and tells it the state.
    fn settle(&self, inner: &mut Inner, id: WatcherId) {
        let Inner {
            board,
            watchers,
            partial,
            ..
        } = inner;
        let Some(member) = watchers.get_mut(id) else {
            return;
        };
        let mode = member.asked.max(board.mode());
        if member.mode != Some(mode) {
            if let Some(before) = member.mode.replace(mode) {
                board.leave(before);
            }
            board.enter(mode);
        }
        let (state, seen) = board.state(mode, &member.sight, &|user, version| {
            self.feed.contacts(&self.key.0, user, version)
        });
        member.seen = seen;
        member.partial = !state.complete;
        *partial |= member.partial;
        let asked = member.waiting.take();
        let known = asked
            .as_ref()
            .is_some_and(|asked| state.known(asked.digest));
        let r#ref = asked.and_then(|asked| asked.r#ref);
        metrics().snapshots.one();
        member.outbox.state(member.slot, state, r#ref, known);
    }

    /// Follows the topic until nobody watches it any more.
    pub(super) async fn run(self: Arc<Self>, mut watch: Watch) {
        let stop = self.stop.clone();
        let picture = tokio::select! {
            () = stop.cancelled() => return,
            picture = watch.ready() => picture,
        };
        {
            let mut inner = lock(&self.inner);
            inner
                .board
                .replace(&picture.items, |_| None, clock::wall_ms());
            inner.board.set_complete(picture.complete);
            inner.board.set_stale(picture.stale);
            inner.ready = true;
            let ids: Vec<_> = inner.watchers.iter().map(|(id, _)| id).collect();
            ids.into_iter().for_each(|id| self.settle(&mut inner, id));
        }
        let mut due: Option<Instant> = None;
        loop {
            let timer = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = watch.next() => match event {
                    Some(event) => Some(event),
                    None => return,
                },
                () = timer => None,
            };
            due = self.work(event, &mut watch);
        }
    }

    /// Takes all that waits, tells who is due, and answers when the next ones are.
    fn work(&self, event: Option<TopicEvent>, watch: &mut Watch) -> Option<Instant> {
        let mut inner = lock(&self.inner);
        let mut next = event;
        while let Some(event) = next {
            self.take(&mut inner, event, watch);
            next = watch.next().now_or_never().flatten();
        }
        self.climb(&mut inner);
        let now = Instant::now();
        let mut due = None;
        for (at, mode) in Mode::ALL.into_iter().enumerate() {
            if !inner.board.pending(mode) {
                continue;
            }
            let next = self.next_time(&inner, at, mode, now);
            if next <= now {
                let delivery = self.tell(&mut inner, mode);
                inner.told[at] = Some(LastTold { at: now, delivery });
            } else {
                due = Some(due.map_or(next, |due: Instant| due.min(next)));
            }
        }
        self.complete(&mut inner);
        due
    }

    /// When a mode is to be told what waits, or looked at again.
    fn next_time(&self, inner: &Inner, at: usize, mode: Mode, now: Instant) -> Instant {
        let Some(told) = &inner.told[at] else {
            return now;
        };
        let full = told.at + self.period(mode);
        if mode != Mode::Members {
            return full;
        }
        match told.is_taken(inner.watchers.len()) {
            true => now,
            false => full.min(now + LOOK),
        }
    }

    const fn period(&self, mode: Mode) -> Duration {
        match mode {
            Mode::Members => self.config.window,
            Mode::Interval | Mode::Count => self.config.interval,
        }
    }

    fn take(&self, inner: &mut Inner, event: TopicEvent, watch: &Watch) {
        let now_ms = clock::wall_ms();
        match event {
            TopicEvent::Diff(diff) => {
                inner.board.take(&diff.diff, now_ms);
                inner.journeys.add(&diff.causes, &inner.board);
            }
            TopicEvent::Complete => inner.board.set_complete(true),
            TopicEvent::Contacts(user) => inner.board.judge_again(&user),
            TopicEvent::Resync => {
                let picture = watch.snapshot();
                let left = |user: &UserId| watch.peek(|roster| roster.left(user));
                inner.board.replace(&picture.items, left, now_ms);
                inner.board.set_complete(picture.complete);
                inner.board.set_stale(picture.stale);
            }
            TopicEvent::Stale(stale) => inner.board.set_stale(stale),
        }
    }

    /// Whoever was given an incomplete state is given the complete one: diffs alone don't say that
    /// nobody is missing any more.
    fn complete(&self, inner: &mut Inner) {
        if !inner.partial || !Mode::ALL.iter().any(|mode| inner.board.is_complete(*mode)) {
            return;
        }
        let (board, watchers) = (&inner.board, inner.watchers.iter());
        let partial = watchers.filter(|(_, m)| m.partial);
        let whole = |m: &Member| m.mode.is_some_and(|mode| board.is_complete(mode));
        let (due, others): (Vec<_>, Vec<_>) = partial.partition(|(_, m)| whole(m));
        inner.partial = !others.is_empty();
        let due: Vec<_> = due.into_iter().map(|(id, _)| id).collect();
        due.into_iter().for_each(|id| self.settle(inner, id));
    }

    /// Whoever is to be told in another mode now gets the state in it.
    fn climb(&self, inner: &mut Inner) {
        let size = inner.board.mode();
        if std::mem::replace(&mut inner.size, size) == size {
            return;
        }
        let moving = |m: &Member| m.mode.is_some_and(|mode| mode != m.asked.max(size));
        let moving = inner.watchers.iter().filter(|(_, m)| moving(m));
        let moving: Vec<_> = moving.map(|(id, _)| id).collect();
        moving
            .into_iter()
            .for_each(|id| self.settle(&mut *inner, id));
    }

    /// Tells a group what waits; answers what most of them were told.
    fn tell(&self, inner: &mut Inner, mode: Mode) -> Option<Arc<Delivery>> {
        let flush = inner.board.flush(mode, clock::wall_ms());
        let lists = |user: &UserId, version| self.feed.contacts(&self.key.0, user, version);
        let (mut clients, mut deepest) = (0, 0);
        let mut draft = (inner.watchers.len() <= AT_ONCE).then(Draft::default);
        let group = inner.watchers.iter_mut().map(|(_, member)| member);
        let mut group = group.filter(|m| m.mode == Some(mode));
        let mut next = Vec::with_capacity(AHEAD);
        loop {
            next.extend(group.by_ref().take(AHEAD));
            if next.is_empty() {
                break;
            }
            Outbox::warm(next.iter().map(|member| &member.outbox));
            for member in next.drain(..) {
                if let Some(delivery) = flush.of(&member.sight, &mut member.seen, &lists) {
                    clients += 1;
                    let depth = member.outbox.tell(member.slot, &delivery, draft.as_mut());
                    deepest = deepest.max(depth);
                }
            }
        }
        inner.journeys.told(mode, clients, deepest);
        flush.shared
    }
}
