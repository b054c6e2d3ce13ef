//! Lists of contacts, by user and version. Bounded: a list that had to go means "nobody", which
//! hides somebody and shows nobody.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use adsum_core::{UserId, UserKey};

use super::{lock, metrics::FeedMetrics};

/// A list keeps its place for the version before it too: the person who carries the newer one may
/// still be under way.
const VERSIONS: usize = 2;

pub(super) type List = Arc<HashSet<UserId>>;

#[derive(Debug)]
pub(super) struct Contacts {
    lists: Mutex<Lists>,
    max: usize,
}

#[derive(Debug, Default)]
struct Lists {
    users: HashMap<UserKey, Entry>,
    ids: usize,
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// Newest first.
    versions: Vec<(u64, List)>,
    used: u64,
}

impl Entry {
    /// An empty list takes room too.
    fn weight(&self) -> usize {
        self.versions.iter().map(|(_, list)| list.len() + 1).sum()
    }
}

impl Contacts {
    pub(super) fn new(max: usize) -> Self {
        Self {
            lists: Mutex::default(),
            max,
        }
    }

    /// The list, if it is here in just this version.
    pub(super) fn get(&self, user: &UserKey, version: u64) -> Option<List> {
        let mut lists = lock(&self.lists);
        lists.clock += 1;
        let clock = lists.clock;
        let entry = lists.users.get_mut(user)?;
        entry.used = clock;
        let found = entry.versions.iter().find(|(v, _)| *v == version);
        found.map(|(_, list)| Arc::clone(list))
    }

    /// Keeps a list; `false` if it was known.
    pub(super) fn put(
        &self,
        user: UserKey,
        version: u64,
        list: HashSet<UserId>,
        metrics: &FeedMetrics,
    ) -> bool {
        let mut lists = lock(&self.lists);
        lists.clock += 1;
        let clock = lists.clock;
        let entry = lists.users.entry(user).or_default();
        let before = entry.weight();
        let place = entry.versions.iter().position(|(v, _)| *v <= version);
        let place = place.unwrap_or(entry.versions.len());
        let known = entry
            .versions
            .get(place)
            .is_some_and(|(v, _)| *v == version);
        if known || place >= VERSIONS {
            return false;
        }
        entry.versions.insert(place, (version, Arc::new(list)));
        entry.versions.truncate(VERSIONS);
        entry.used = clock;
        let after = entry.weight();
        lists.ids = lists.ids + after - before;
        if lists.ids > self.max {
            let gone = lists.evict(self.max);
            metrics.contacts_evicted.add(gone);
            tracing::warn!(
                lists = gone,
                "contact lists dropped: their users are hidden"
            );
        }
        metrics.contacts.set(lists.ids);
        true
    }
}

impl Lists {
    /// Drops those that were asked for longest ago, with some room to spare: this looks at all.
    fn evict(&mut self, max: usize) -> usize {
        let mut by_use: Vec<_> = self
            .users
            .iter()
            .map(|(u, e)| (e.used, u.clone()))
            .collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        let before = self.users.len();
        for (_, user) in by_use {
            if self.ids <= max - max / 8 {
                break;
            }
            if let Some(entry) = self.users.remove(&user) {
                self.ids -= entry.weight();
            }
        }
        before - self.users.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adsum_core::TenantId;

    fn user(n: usize) -> UserKey {
        let tenant = TenantId::new("t").unwrap();
        UserKey::new(tenant, UserId::new(format!("u{n}")).unwrap())
    }

    fn list(len: usize) -> HashSet<UserId> {
        (0..len).map(|n| user(n).user).collect()
    }

    #[test]
    fn only_the_version_asked_for() {
        let (contacts, metrics) = (Contacts::new(1000), FeedMetrics::default());
        assert!(contacts.put(user(1), 7, list(3), &metrics));
        assert!(!contacts.put(user(1), 7, list(3), &metrics), "known");
        assert!(contacts.put(user(1), 9, list(2), &metrics));
        assert_eq!(contacts.get(&user(1), 7).unwrap().len(), 3);
        assert_eq!(contacts.get(&user(1), 9).unwrap().len(), 2);
        assert!(contacts.get(&user(1), 8).is_none() && contacts.get(&user(2), 7).is_none());
        assert!(contacts.put(user(1), 10, list(1), &metrics));
        assert!(
            contacts.get(&user(1), 7).is_none(),
            "two versions are enough"
        );
        assert!(
            !contacts.put(user(1), 6, list(1), &metrics),
            "older than both"
        );
        assert_eq!(metrics.contacts.get(), 2 + 3);
    }

    #[test]
    fn bounded_and_the_least_used_go_first() {
        let (contacts, metrics) = (Contacts::new(800), FeedMetrics::default());
        for n in 0..1000 {
            contacts.put(user(n), 1, list(9), &metrics);
            assert!(contacts.get(&user(0), 1).is_some(), "in use");
            assert!(metrics.contacts.get() <= 800);
        }
        assert!(contacts.get(&user(1), 1).is_none());
        assert!(contacts.get(&user(999), 1).is_some());
        assert!(metrics.contacts_evicted.get() >= 920);
    }
}
