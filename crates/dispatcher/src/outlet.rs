//! What waits for one gateway: states in order, marks, and parts that are still to be sent. The
//! queue is bounded: a gateway that reads too slowly loses it and gets its topics whole.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use adsum_core::{
    Topic, UserKey, Version,
    plant::{Plant, planted},
    ring::ShardRing,
    store::Shard,
};
use adsum_proto::{Check, TopicKey};
use adsum_telemetry::metrics::metrics;
use tokio::sync::Notify;

use crate::{interest::StreamId, tail::Routed};

/// States sent in one batch.
const BATCH: usize = 2000;
/// Topics whose parts are asked for at a time: what one gateway holds in memory, at most.
const PARTS: usize = 32;

/// Sessions with a change of this kind that wait to be told.
const CHECKS: usize = 1000;

/// How far a shard was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Everything up to here.
    pub version: Version,
    /// Absence means nothing yet.
    pub settling: bool,
}

type States = Vec<(Shard, Arc<Routed>)>;
type Marks = Vec<(Shard, Mark)>;

/// What to send next.
pub enum Next {
    /// States in order, then marks.
    Batch(States, Marks),
    /// Ask this shard for parts of these topics, and say when they are sent.
    Parts(Shard, Vec<TopicKey>),
    /// Sessions that were changed without their gateway.
    Checks(Vec<(Shard, Check)>),
    /// Nothing now.
    Idle,
}

#[derive(Default)]
struct Queue {
    topics: HashSet<TopicKey>,
    taken: BTreeSet<Shard>,
    states: VecDeque<(Shard, Arc<Routed>)>,
    marks: BTreeMap<Shard, Mark>,
    checks: Vec<(Shard, Check)>,
    parts: BTreeMap<Shard, VecDeque<TopicKey>>,
    /// Shards whose every topic is being sent whole: no mark until that is done, since a mark
    /// says that nothing before it is missing.
    whole: BTreeSet<Shard>,
    /// Shards that are asked for parts now, once at a time. No mark until they have answered and
    /// that is sent: it could be ahead of the parts, which then would look outdated.
    asked: BTreeSet<Shard>,
    /// Where the parts go on, so that a shard with many does not keep others waiting.
    turn: Shard,
    parts_turn: bool,
}

/// One gateway's stream, as the shards see it.
pub struct Outlet {
    /// Which stream.
    pub id: StreamId,
    ring: Arc<ShardRing>,
    limit: usize,
    queue: Mutex<Queue>,
    wake: Notify,
    overflows: AtomicU64,
    peak: Arc<AtomicUsize>,
    closed: AtomicBool,
}

impl Outlet {
    /// For one stream; `limit` states may wait.
    #[must_use]
    pub fn new(id: StreamId, ring: Arc<ShardRing>, limit: usize) -> Self {
        Self {
            id,
            ring,
            limit,
            queue: Mutex::default(),
            wake: Notify::new(),
            overflows: AtomicU64::new(0),
            peak: Arc::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Also notes here how many states ever waited at once.
    #[must_use]
    pub fn with_peak(self, peak: Arc<AtomicUsize>) -> Self {
        Self { peak, ..self }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a topic has people in a shard: a user has one shard alone.
    fn concerns(&self, key: &TopicKey, shard: Shard) -> bool {
        match &key.1 {
            Topic::User(user) => {
                self.ring
                    .shard_of(&UserKey::new(key.0.clone(), user.clone()))
                    == shard
            }
            Topic::Room(_) | Topic::Tenant => true,
        }
    }

    /// How many states wait, of at most how many.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.queue().states.len(), self.limit)
    }

    /// Waits until there may be something to send.
    pub async fn ready(&self) {
        self.wake.notified().await;
    }

    /// How often all that waited was dropped.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Relaxed)
    }

    /// Knows these topics from now on.
    pub fn know(&self, topics: &[TopicKey]) {
        self.queue().topics.extend(topics.iter().cloned());
    }

    /// Whether the gateway asked for this topic.
    #[must_use]
    pub fn knows(&self, key: &TopicKey) -> bool {
        self.queue().topics.contains(key)
    }

    /// Asks for parts of these topics in all taken shards.
    pub fn want_everywhere(&self, topics: &[TopicKey]) {
        let mut queue = self.queue();
        for shard in queue.taken.clone() {
            let here = topics.iter().filter(|t| self.concerns(t, shard)).cloned();
            queue.parts.entry(shard).or_default().extend(here);
        }
        drop(queue);
        self.wake.notify_one();
    }

    /// The gateway has dropped these topics.
    pub fn forget(&self, topics: &[TopicKey]) {
        let gone: HashSet<_> = topics.iter().collect();
        let mut queue = self.queue();
        queue.topics.retain(|t| !gone.contains(t));
        queue
            .parts
            .values_mut()
            .for_each(|parts| parts.retain(|t| !gone.contains(t)));
    }

    /// The stream has ended: nothing is kept for it. Answers all its topics.
    pub fn close(&self) -> HashSet<TopicKey> {
        self.closed.store(true, Relaxed);
        std::mem::take(&mut *self.queue()).topics
    }

    /// The stream has ended.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// The shards that the gateway asked for.
    #[must_use]
    pub fn taken(&self) -> Vec<Shard> {
        self.queue().taken.iter().copied().collect()
    }

    /// The gateway asked for the shard: topics that it adds from now on have a part there, even
    /// if it is served a little later.
    pub fn take(&self, shard: Shard) {
        self.queue().taken.insert(shard);
    }

    /// The shard is served from now on: parts of `fresh`, or of everything. Not if it was
    /// released meanwhile.
    pub fn serve(&self, shard: Shard, fresh: Option<Vec<TopicKey>>) {
        match fresh {
            Some(fresh) => self.want(shard, fresh),
            None => self.send_whole(shard),
        }
    }

    /// The gateway does not want the shard any more.
    pub fn release(&self, shard: Shard) {
        let mut queue = self.queue();
        queue.taken.remove(&shard);
        queue.parts.remove(&shard);
        queue.marks.remove(&shard);
        queue.whole.remove(&shard);
    }

    /// Every topic's part of the shard is sent (again).
    pub fn send_whole(&self, shard: Shard) {
        self.whole(&mut self.queue(), shard);
        self.wake.notify_one();
    }

    fn whole(&self, queue: &mut Queue, shard: Shard) {
        if !queue.taken.contains(&shard) {
            return;
        }
        let all: VecDeque<_> = queue
            .topics
            .iter()
            .filter(|t| self.concerns(t, shard))
            .cloned()
            .collect();
        // A mark from before would vouch for what is sent anew.
        queue.marks.remove(&shard);
        if !all.is_empty() {
            queue.whole.insert(shard);
        }
        queue.parts.insert(shard, all);
    }

    /// A state for this gateway, which goes out with the next [`flush`](Self::flush) or mark. Past
    /// the bound everything that waits is dropped.
    pub fn push(&self, shard: Shard, state: &Arc<Routed>) {
        if self.closed() {
            return;
        }
        let mut queue = self.queue();
        queue.states.push_back((shard, state.clone()));
        if queue.states.len() > self.limit {
            // Freed, not kept for the next flood. Under one lock with what replaces it: a mark
            // that went out in between would vouch for what was dropped.
            queue.states = VecDeque::new();
            self.overflows.fetch_add(1, Relaxed);
            metrics().overflows.one();
            if planted(Plant::DroppedStates) {
                return;
            }
            for shard in queue.taken.clone() {
                self.whole(&mut queue, shard);
            }
        }
        self.peak.fetch_max(queue.states.len(), Relaxed);
    }

    /// What was pushed may go out.
    pub fn flush(&self) {
        self.wake.notify_one();
    }

    /// Whoever has this session is to look at it again. Past a bound it is not told: the gateway's
    /// renewals will notice what was closed.
    pub fn check(&self, shard: Shard, check: &Check) {
        let mut queue = self.queue();
        if queue.checks.len() < CHECKS && !self.closed() {
            queue.checks.push((shard, check.clone()));
            drop(queue);
            self.wake.notify_one();
        }
    }

    /// All states up to here were pushed.
    pub fn mark(&self, shard: Shard, mark: Mark) {
        self.queue().marks.insert(shard, mark);
        self.wake.notify_one();
    }

    /// States, and marks when no state is left before them; and parts, in turn with these, so
    /// that neither keeps the other waiting.
    pub fn next(&self) -> Next {
        let mut queue = self.queue();
        if !queue.checks.is_empty() {
            return Next::Checks(std::mem::take(&mut queue.checks));
        }
        queue.parts_turn = !queue.parts_turn;
        if queue.parts_turn
            && let Some((shard, topics)) = queue.next_parts()
        {
            return Next::Parts(shard, topics);
        }
        let (states, marks) = queue.next_states();
        if !states.is_empty() || !marks.is_empty() {
            return Next::Batch(states, marks);
        }
        queue
            .next_parts()
            .map_or(Next::Idle, |(shard, topics)| Next::Parts(shard, topics))
    }

    /// Asks for parts of these topics in a shard.
    pub fn want(&self, shard: Shard, topics: Vec<TopicKey>) {
        let mut queue = self.queue();
        if queue.taken.contains(&shard) {
            queue.parts.entry(shard).or_default().extend(topics);
            drop(queue);
            self.wake.notify_one();
        }
    }

    /// Parts that were asked for are sent now, or were wanted again.
    pub fn sent_parts(&self, shard: Shard) {
        let mut queue = self.queue();
        queue.asked.remove(&shard);
        if queue.parts.get(&shard).is_none_or(VecDeque::is_empty) {
            queue.parts.remove(&shard);
            queue.whole.remove(&shard);
        }
    }
}

impl Queue {
    fn next_states(&mut self) -> (States, Marks) {
        let some = self.states.len().min(BATCH);
        let states = self.states.drain(..some).collect();
        let mut marks = Vec::new();
        if self.states.is_empty() {
            self.marks.retain(|shard, mark| {
                let held = self.whole.contains(shard) || self.asked.contains(shard);
                if !held {
                    marks.push((*shard, *mark));
                }
                held
            });
        }
        (states, marks)
    }

    fn next_parts(&mut self) -> Option<(Shard, Vec<TopicKey>)> {
        let turn = self.turn;
        let waiting = |(shard, topics): (&Shard, &VecDeque<_>)| {
            (!topics.is_empty() && !self.asked.contains(shard)).then_some(*shard)
        };
        let shard = self
            .parts
            .range(turn..)
            .chain(self.parts.range(..turn))
            .find_map(waiting)?;
        self.turn = shard.wrapping_add(1);
        self.asked.insert(shard);
        let topics = self.parts.get_mut(&shard)?;
        let some = topics.len().min(PARTS);
        Some((shard, topics.drain(..some).collect()))
    }
}

#[cfg(test)]
mod tests {
    use adsum_core::{Presence, TenantId, TopicState, UserId};

    use super::*;

    fn outlet(limit: usize) -> Outlet {
        Outlet::new(1, Arc::new(ShardRing::new(4)), limit)
    }

    fn topic() -> TopicKey {
        (TenantId::new("acme").unwrap(), Topic::Tenant)
    }

    fn state(seq: u64) -> Arc<Routed> {
        let state = TopicState {
            tenant: topic().0,
            topic: topic().1,
            user: UserId::new("ann").unwrap(),
            presence: Presence::Absent {
                reason: None,
                last_seen: 0,
            },
            version: Version::new(1, seq),
            origin: None,
        };
        Arc::new(Routed {
            state,
            committed_us: 0,
            routed_us: 0,
        })
    }

    fn mark(seq: u64) -> Mark {
        Mark {
            version: Version::new(1, seq),
            settling: false,
        }
    }

    /// Everything that goes out until nothing waits; `P<shard>` for parts.
    fn drain(outlet: &Outlet) -> Vec<String> {
        let mut sent = Vec::new();
        loop {
            match outlet.next() {
                Next::Idle => return sent,
                Next::Checks(checks) => sent.push(format!("K{}", checks.len())),
                Next::Batch(states, marks) => {
                    sent.extend(
                        states
                            .iter()
                            .map(|(_, s)| format!("S{}", s.state.version.seq)),
                    );
                    sent.extend(marks.iter().map(|(_, m)| format!("M{}", m.version.seq)));
                }
                Next::Parts(shard, topics) => {
                    sent.push(format!("P{shard}x{}", topics.len()));
                    outlet.sent_parts(shard);
                }
            }
        }
    }

    #[test]
    fn a_mark_follows_its_states_and_never_overtakes_a_whole_part() {
        let outlet = outlet(100);
        outlet.know(&[topic()]);
        outlet.take(2);
        outlet.serve(2, None);
        outlet.push(2, &state(5));
        outlet.mark(2, mark(5));
        let sent = drain(&outlet);
        let place = |what: &str| sent.iter().position(|s| s == what);
        assert!(
            place("P2x1") < place("M5") && place("S5") < place("M5"),
            "{sent:?}"
        );
    }

    #[test]
    fn an_overflow_drops_states_and_marks_and_sends_everything_whole() {
        let outlet = outlet(3);
        outlet.know(&[topic()]);
        for shard in [0, 1] {
            outlet.take(shard);
            outlet.serve(shard, Some(Vec::new()));
            outlet.mark(shard, mark(1));
        }
        for seq in 2..=5 {
            outlet.push(0, &state(seq));
        }
        assert_eq!(outlet.overflows(), 1);
        outlet.mark(0, mark(5));
        // A mark waits for the parts of its own shard, not for those of others.
        assert_eq!(
            drain(&outlet),
            ["P0x1", "M5", "P1x1"],
            "nothing that was dropped is vouched for"
        );
    }

    #[test]
    fn a_topic_added_before_its_shard_is_served_gets_its_part() {
        let outlet = outlet(100);
        outlet.take(3);
        outlet.know(&[topic()]);
        outlet.want_everywhere(&[topic()]);
        outlet.serve(3, Some(Vec::new()));
        assert_eq!(drain(&outlet), ["P3x1"]);
    }

    #[test]
    fn a_released_shard_is_not_served_by_a_take_that_comes_late() {
        let outlet = outlet(100);
        outlet.know(&[topic()]);
        outlet.take(1);
        outlet.release(1);
        outlet.serve(1, None);
        assert!(drain(&outlet).is_empty());
    }

    #[test]
    fn a_shard_that_does_not_answer_keeps_nobody_waiting() {
        let outlet = outlet(100);
        outlet.know(&[topic()]);
        for shard in [0, 1] {
            outlet.take(shard);
            outlet.want(shard, vec![topic()]);
        }
        assert!(matches!(outlet.next(), Next::Parts(0, _)));
        assert!(matches!(outlet.next(), Next::Parts(1, _)));
        outlet.want(0, vec![topic()]);
        outlet.push(1, &state(5));
        outlet.mark(0, mark(7));
        outlet.mark(1, mark(5));
        outlet.sent_parts(1);
        assert_eq!(
            drain(&outlet),
            ["S5", "M5"],
            "shard 0 is asked once at a time"
        );
        outlet.sent_parts(0);
        assert_eq!(drain(&outlet), ["P0x1", "M7"]);
    }

    #[test]
    fn parts_are_not_starved_by_states() {
        let outlet = outlet(1_000_000);
        outlet.know(&[topic()]);
        outlet.take(0);
        outlet.want(0, vec![topic()]);
        for round in 0..3 {
            (0..BATCH as u64).for_each(|n| outlet.push(0, &state(round * 10_000 + n)));
        }
        let kinds: Vec<_> = (0..2)
            .map(|_| matches!(outlet.next(), Next::Parts(..)))
            .collect();
        assert!(kinds.contains(&true));
    }
}
