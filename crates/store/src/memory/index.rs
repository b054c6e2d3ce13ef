//! The ordered indexes of a shard: what has a time, soonest first, and who holds what. Their
//! orders are those of the bytes that Redis keeps: ids contain nothing below the byte that
//! joins them, so comparing part by part is comparing bytes.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
};

use adsum_core::{Incarnation, SessionKey, store::Due};

/// Members with a time each, in the order of times and then of members: a sorted set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timed<T: Eq + Hash> {
    times: HashMap<T, u64>,
    order: BTreeSet<(u64, T)>,
}

impl<T: Eq + Hash> Default for Timed<T> {
    fn default() -> Self {
        Self {
            times: HashMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<T: Clone + Eq + Hash + Ord> Timed<T> {
    pub(super) fn set(&mut self, member: T, at: u64) {
        if let Some(before) = self.times.insert(member.clone(), at) {
            self.order.remove(&(before, member.clone()));
        }
        self.order.insert((at, member));
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, member: &Q) -> Option<u64>
    where
        T: Borrow<Q>,
    {
        self.times.get(member).copied()
    }

    pub(super) fn remove(&mut self, member: &T) -> Option<u64> {
        let at = self.times.remove(member)?;
        self.order.remove(&(at, member.clone()));
        Some(at)
    }

    /// All, soonest first; from the other end: latest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &(u64, T)> {
        self.order.iter()
    }
}

/// What has a deadline. The order of the variants is that of the letters in Redis: `c d e h s t`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Member {
    /// A holder that expired.
    Lost(Incarnation),
    /// A holder that drained.
    Draining(Incarnation),
    /// A holder that drained and expired.
    Drained(Incarnation),
    /// A holder that renews.
    Holder(Incarnation),
    /// A session that holds itself.
    Session(SessionKey),
    /// A tombstone.
    Tomb(SessionKey),
}

impl Member {
    /// A holder's last instant still counts; the others end at theirs; who is condemned is due
    /// even if the clock went back.
    pub(super) const fn is_due(&self, at: u64, now: u64) -> bool {
        match self {
            Self::Lost(_) | Self::Drained(_) => true,
            Self::Holder(_) | Self::Draining(_) => at < now,
            Self::Session(_) | Self::Tomb(_) => at <= now,
        }
    }

    pub(super) fn due(&self) -> Due {
        match self {
            Self::Holder(h) => Due::Holder(h.clone()),
            Self::Draining(h) => Due::Draining(h.clone()),
            Self::Lost(h) | Self::Drained(h) => Due::Condemned(h.clone()),
            Self::Session(key) => Due::Session(key.clone()),
            Self::Tomb(key) => Due::Tomb(key.clone()),
        }
    }
}

/// All deadlines of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Deadlines {
    all: Timed<Member>,
    /// Those of `all` that are condemned, which are due at any time.
    condemned: BTreeSet<(u64, Member)>,
}

impl Deadlines {
    pub(super) fn set(&mut self, member: Member, at: u64) {
        self.remove(&member);
        if matches!(member, Member::Lost(_) | Member::Drained(_)) {
            self.condemned.insert((at, member.clone()));
        }
        self.all.set(member, at);
    }

    pub(super) fn get(&self, member: &Member) -> Option<u64> {
        self.all.get(member)
    }

    pub(super) fn remove(&mut self, member: &Member) -> Option<u64> {
        let at = self.all.remove(member)?;
        self.condemned.remove(&(at, member.clone()));
        Some(at)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &(u64, Member)> {
        self.all.iter()
    }

    /// At most `limit` of what is due, by deadline and then by bytes.
    pub(super) fn overdue(&self, now: u64, limit: usize) -> Vec<(u64, Member)> {
        let timely = self.iter().take_while(|(at, _)| *at <= now);
        let early = self.condemned.iter().skip_while(|(at, _)| *at <= now);
        timely
            .chain(early)
            .filter(|(at, m)| m.is_due(*at, now))
            .take(limit)
            .cloned()
            .collect()
    }
}

/// Who holds what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held(BTreeMap<Incarnation, BTreeSet<SessionKey>>);

impl Held {
    pub(super) fn add(&mut self, holder: &Incarnation, key: &SessionKey) {
        self.0
            .entry(holder.clone())
            .or_default()
            .insert(key.clone());
    }

    pub(super) fn remove(&mut self, holder: &Incarnation, key: &SessionKey) {
        if let Some(keys) = self.0.get_mut(holder) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(holder);
            }
        }
    }

    pub(super) fn count(&self, holder: &Incarnation) -> usize {
        self.0.get(holder).map_or(0, BTreeSet::len)
    }

    pub(super) fn first(&self, holder: &Incarnation) -> Option<SessionKey> {
        self.0.get(holder)?.first().cloned()
    }

    pub(super) fn after(
        &self,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Vec<SessionKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let keys = self.0.get(holder).into_iter();
        keys.flat_map(|keys| keys.range((from, Unbounded)))
            .take(limit)
            .cloned()
            .collect()
    }
}
