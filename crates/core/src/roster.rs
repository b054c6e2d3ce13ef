//! A gateway's picture of one topic: takes versioned states in any order and any number of
//! times, and derives joins, leaves and updates from them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    Digest, Item, Presence, Reason, UserId, Version,
    plant::{Plant, planted},
    store::Shard,
};

/// Somebody who left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// As they were: decides who may be told.
    pub item: Arc<Item>,
    /// Why, when that is known.
    pub reason: Option<Reason>,
    /// When they were last there, ms; 0 when not known.
    pub last_seen: u64,
    /// Of the absence.
    pub version: Version,
}

/// What changed in a topic. Nobody is in two of the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// Who came.
    pub joins: Vec<Arc<Item>>,
    /// Who left.
    pub leaves: Vec<Leave>,
    /// Who looks different.
    pub updates: Vec<Arc<Item>>,
}

impl Diff {
    /// Nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.leaves.is_empty() && self.updates.is_empty()
    }
}

/// What happened since the last diff was told: who was touched, and how they were before. Grows
/// with people, not with states; what comes and goes in between is never told.
#[derive(Debug, Default)]
pub struct Pending(HashMap<UserId, Before>);

#[derive(Debug)]
struct Before {
    item: Option<Arc<Item>>,
    left: Option<(Option<Reason>, u64, Version)>,
}

impl Pending {
    /// How many people were touched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nobody was touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How the roster now differs from how it was told last.
    pub fn tell(&mut self, roster: &Roster) -> Diff {
        let mut diff = Diff::default();
        for (user, before) in self.0.drain() {
            match (before.item, roster.get(&user)) {
                (None, Some(item)) => diff.joins.push(item.clone()),
                (Some(old), Some(item)) if !old.looks_like(item) => diff.updates.push(item.clone()),
                (Some(item), None) => {
                    let (reason, last_seen, version) = before.left.unwrap_or_default();
                    diff.leaves.push(Leave {
                        item,
                        reason,
                        last_seen,
                        version,
                    });
                }
                _ => {}
            }
        }
        diff
    }

    fn touch(&mut self, user: &UserId, before: Option<&Arc<Item>>) -> &mut Before {
        self.0.entry(user.clone()).or_insert_with(|| Before {
            item: before.cloned(),
            left: None,
        })
    }
}

#[derive(Debug, Clone)]
struct Member {
    item: Arc<Item>,
    version: Version,
    shard: Shard,
}

#[derive(Debug, Clone, Copy)]
struct Absent {
    version: Version,
    shard: Shard,
    until: u64,
    reason: Option<Reason>,
    last_seen: u64,
}

/// The picture. Users of one shard are told by one source at a time, each shard by its own.
#[derive(Debug)]
pub struct Roster {
    members: HashMap<UserId, Member>,
    /// Versions of those who left, for a while: an older state must not bring them back.
    absent: HashMap<UserId, Absent>,
    leaving: VecDeque<(u64, UserId)>,
    /// Whole parts that were taken: whoever was not in one was absent as of its version.
    whole: HashMap<Shard, Version>,
    absent_ms: u64,
    public: usize,
}

impl Roster {
    /// An empty picture that remembers the absent for `absent_ms`.
    #[must_use]
    pub fn new(absent_ms: u64) -> Self {
        Self {
            members: HashMap::new(),
            absent: HashMap::new(),
            leaving: VecDeque::new(),
            whole: HashMap::new(),
            absent_ms,
            public: 0,
        }
    }

    /// Everybody in the topic.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.members.values().map(|m| &m.item)
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, user: &UserId) -> Option<&Arc<Item>> {
        self.members.get(user).map(|m| &m.item)
    }

    /// Why somebody is not here any more, when they were last, and as of which version; as long
    /// as that is remembered.
    #[must_use]
    pub fn left(&self, user: &UserId) -> Option<(Option<Reason>, u64, Version)> {
        let absent = self.absent.get(user)?;
        Some((absent.reason, absent.last_seen, absent.version))
    }

    /// How many are there, seen or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Nobody is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How many of them everybody may see.
    #[must_use]
    pub const fn public(&self) -> usize {
        self.public
    }

    /// The digest over those that `visible` admits.
    pub fn digest(&self, visible: impl Fn(&Item) -> bool) -> Digest {
        let mut digest = Digest::default();
        self.members()
            .filter(|i| visible(i))
            .for_each(|i| digest.add(&i.user, i.v));
        digest
    }

    /// The epoch of the last whole part that was taken of a shard.
    #[must_use]
    pub fn settled_in(&self, shard: Shard) -> Option<u64> {
        self.whole.get(&shard).map(|at| at.epoch)
    }

    /// How many of the absent are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.absent.len()
    }

    /// Takes one state; one that is not newer than what is known changes nothing.
    pub fn take(
        &mut self,
        shard: Shard,
        user: &UserId,
        presence: Presence,
        version: Version,
        now: u64,
        pending: &mut Pending,
    ) {
        self.forget(now);
        if self
            .known(shard, user)
            .is_some_and(|known| version <= known)
            && !planted(Plant::OlderStateAccepted)
        {
            return;
        }
        match presence {
            Presence::Here(item) => self.here(shard, item, version, pending),
            Presence::Absent { reason, last_seen } => {
                self.gone(shard, user, (reason, last_seen, version), now, pending);
            }
        }
    }

    /// Takes a shard's part whole. A settled one is the truth as of `at`: whoever is missing is
    /// absent. One that settles adds those who are lacking, and brings what changed later than what
    /// is known here: the rest of it may have lost that.
    pub fn take_part(
        &mut self,
        shard: Shard,
        part: Vec<(Arc<Item>, Version)>,
        at: Version,
        settling: bool,
        now: u64,
        pending: &mut Pending,
    ) {
        self.forget(now);
        if self.whole.get(&shard).is_some_and(|known| at < *known) {
            return;
        }
        let missing: Vec<UserId> = if settling {
            Vec::new()
        } else {
            let here: std::collections::HashSet<_> = part.iter().map(|(i, _)| &i.user).collect();
            let ours = self
                .members
                .iter()
                .filter(|(_, m)| m.shard == shard && m.version < at);
            ours.filter(|(u, _)| !here.contains(u))
                .map(|(u, _)| u.clone())
                .collect()
        };
        for user in missing {
            self.gone(shard, &user, (None, 0, at), now, pending);
        }
        for (item, version) in part {
            // The part itself is the newest word on those it names: only a remembered absence
            // can outrank one of them. While it settles, each is as new as its last change.
            let word = if settling { item.v } else { version };
            let absent = self.absent.get(&item.user);
            let outranked = absent.is_some_and(|a| word <= a.version);
            let newer = self.members.get(&item.user).is_none_or(|m| {
                let changed = !settling || item.v > m.item.v;
                changed && version > m.version
            });
            if !outranked && newer {
                self.here(shard, item, version, pending);
            }
        }
        if !settling {
            self.whole.insert(shard, at);
        }
    }

    /// Nothing about this user at or below this version is news. `None`: anything is.
    fn known(&self, shard: Shard, user: &UserId) -> Option<Version> {
        let member = self.members.get(user).map(|m| m.version);
        let absent = self
            .absent
            .get(user)
            .filter(|a| a.shard == shard)
            .map(|a| a.version);
        member.or(absent).max(self.whole.get(&shard).copied())
    }

    fn here(&mut self, shard: Shard, item: Arc<Item>, version: Version, pending: &mut Pending) {
        self.absent.remove(&item.user);
        let known = self.members.get_mut(&item.user);
        if let Some(member) = known {
            member.version = version;
            member.shard = shard;
            if !member.item.looks_like(&item) {
                pending.touch(&item.user, Some(&member.item));
                self.public += usize::from(item.public());
                self.public -= usize::from(member.item.public());
                member.item = item;
            }
            return;
        }
        pending.touch(&item.user, None);
        self.public += usize::from(item.public());
        self.members.insert(
            item.user.clone(),
            Member {
                item,
                version,
                shard,
            },
        );
    }

    fn gone(
        &mut self,
        shard: Shard,
        user: &UserId,
        left: (Option<Reason>, u64, Version),
        now: u64,
        pending: &mut Pending,
    ) {
        let until = now + self.absent_ms;
        self.absent.insert(
            user.clone(),
            Absent {
                version: left.2,
                shard,
                until,
                reason: left.0,
                last_seen: left.1,
            },
        );
        self.leaving.push_back((until, user.clone()));
        if let Some(member) = self.members.remove(user) {
            pending.touch(user, Some(&member.item)).left = Some(left);
            self.public -= usize::from(member.item.public());
        }
    }

    fn forget(&mut self, now: u64) {
        while self.leaving.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, user)) = self.leaving.pop_front() else {
                return;
            };
            // It may have left again since: then a later note takes care of it.
            if self.absent.get(&user).is_some_and(|a| a.until <= now) {
                self.absent.remove(&user);
            }
        }
    }
}
