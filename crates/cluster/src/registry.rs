//! What etcd holds of one cluster, as this node knows it: a copy of the keys, and what they say.
//! No IO: `mirror` feeds it.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use adsum_core::NodeId;
use adsum_core::membership::{Member, Members, Owners};
use tokio::time::Instant;

use crate::keys::{Key, Keys};

/// A key and its value, as etcd gave them.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) mod_revision: i64,
}

/// What tells two states of the keys apart without reading them: a put raises the last revision,
/// a deletion alone lowers the count.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) count: usize,
    pub(crate) last: i64,
}

struct Entry {
    mod_revision: i64,
    record: Record,
}

enum Record {
    Member(Arc<Member>),
    Owner(u16, NodeId),
    /// Of a later release, or not ours: it counts, and says nothing.
    Other,
}

/// The copy.
pub(crate) struct Registry {
    keys: Keys,
    entries: BTreeMap<Vec<u8>, Entry>,
    revision: i64,
    /// etcd can't be reached.
    pub(crate) away: bool,
    /// Members that an etcd without memory does not know yet, and until when to wait for them.
    remembered: BTreeMap<NodeId, Arc<Member>>,
    remember_until: Instant,
    patience: Duration,
}

impl Registry {
    /// An empty copy. After etcd has lost its memory, members are remembered for `patience`.
    pub(crate) fn new(keys: Keys, patience: Duration) -> Self {
        Self {
            keys,
            entries: BTreeMap::new(),
            revision: 0,
            away: true,
            remembered: BTreeMap::new(),
            remember_until: Instant::now(),
            patience,
        }
    }

    /// The revision up to which everything is known.
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// Puts a complete list in the place of everything. A revision lower than the known one
    /// means that etcd was wiped or restored: its list is short because nobody had the time to
    /// return to it, not because everybody died.
    pub(crate) fn replace<'a>(&mut self, revision: i64, items: impl Iterator<Item = Item<'a>>) {
        if revision < self.revision {
            tracing::warn!(
                was = self.revision,
                is = revision,
                "etcd has lost its memory"
            );
            for member in listed(&self.entries) {
                self.remembered
                    .insert(member.node.clone(), Arc::clone(member));
            }
            self.remember_until = Instant::now() + self.patience;
        }
        self.entries.clear();
        for item in items {
            self.put(&item);
        }
        self.revision = revision;
        self.away = false;
    }

    pub(crate) fn put(&mut self, item: &Item<'_>) {
        let entry = Entry {
            mod_revision: item.mod_revision,
            record: self.read(item),
        };
        self.entries.insert(item.key.to_vec(), entry);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.entries.remove(key);
    }

    /// Everything up to `revision` has been told.
    pub(crate) fn advance(&mut self, revision: i64) {
        self.revision = self.revision.max(revision);
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let revisions = self.entries.values().map(|entry| entry.mod_revision);
        Fingerprint {
            count: self.entries.len(),
            last: revisions.max().unwrap_or(0),
        }
    }

    /// The members, with those still remembered.
    pub(crate) fn members(&mut self) -> Members {
        if Instant::now() >= self.remember_until {
            self.remembered.clear();
        }
        let listed: Vec<_> = listed(&self.entries).cloned().collect();
        // A node that is back has another id, and its address.
        let back: BTreeSet<&str> = listed
            .iter()
            .map(|member| member.address.as_str())
            .collect();
        self.remembered
            .retain(|_, member| !back.contains(member.address.as_str()));
        let all = self.remembered.values().cloned().chain(listed);
        Members {
            nodes: all.map(|member| (member.node.clone(), member)).collect(),
            stale: self.away || !self.remembered.is_empty(),
        }
    }

    pub(crate) fn owners(&self) -> Owners {
        let owner = |entry: &Entry| match &entry.record {
            Record::Owner(shard, node) => Some((*shard, node.clone())),
            _ => None,
        };
        self.entries.values().filter_map(owner).collect()
    }

    fn read(&self, item: &Item<'_>) -> Record {
        let record = match self.keys.parse(item.key) {
            Some(Key::Node(node)) => serde_json::from_slice::<Member>(item.value)
                .ok()
                .filter(|member| member.node == node)
                .map(|member| Record::Member(Arc::new(member))),
            Some(Key::Reaper(shard)) => std::str::from_utf8(item.value)
                .ok()
                .and_then(|node| NodeId::new(node).ok())
                .map(|node| Record::Owner(shard, node)),
            None => None,
        };
        record.unwrap_or_else(|| {
            tracing::warn!(key = %item.key.escape_ascii(), "ignoring an entry of the registry");
            Record::Other
        })
    }
}

fn listed(entries: &BTreeMap<Vec<u8>, Entry>) -> impl Iterator<Item = &Arc<Member>> {
    entries.values().filter_map(|entry| match &entry.record {
        Record::Member(member) => Some(member),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn entry(node: &str, address: &str) -> (Vec<u8>, Vec<u8>) {
        let value = format!(r#"{{"node":"{node}","address":"{address}","roles":[]}}"#);
        (
            format!("/adsum/main/nodes/{node}").into_bytes(),
            value.into_bytes(),
        )
    }

    fn list(registry: &mut Registry, revision: i64, entries: &[(Vec<u8>, Vec<u8>)]) {
        let item = |(key, value)| Item {
            key,
            value,
            mod_revision: revision,
        };
        let items = entries.iter().map(|(key, value)| item((key, value)));
        registry.replace(revision, items);
    }

    fn nodes(registry: &mut Registry) -> Vec<String> {
        registry
            .members()
            .nodes
            .keys()
            .map(ToString::to_string)
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_etcd_without_memory_does_not_empty_the_cluster() {
        let mut registry = Registry::new(Keys::new("main"), PATIENCE);
        list(
            &mut registry,
            50,
            &[
                entry("a-1", "a:1"),
                entry("b-1", "b:1"),
                entry("c-1", "c:1"),
            ],
        );
        assert!(!registry.members().stale);

        list(&mut registry, 3, &[entry("a-2", "a:1")]);
        assert_eq!(
            nodes(&mut registry),
            ["a-2", "b-1", "c-1"],
            "a is back, the others will be"
        );
        assert!(registry.members().stale);

        list(
            &mut registry,
            4,
            &[entry("a-2", "a:1"), entry("b-2", "b:1")],
        );
        assert_eq!(nodes(&mut registry), ["a-2", "b-2", "c-1"]);

        tokio::time::advance(PATIENCE).await;
        assert_eq!(nodes(&mut registry), ["a-2", "b-2"], "c had its time");
        assert!(!registry.members().stale);
    }

    #[tokio::test]
    async fn a_shorter_list_of_a_later_revision_is_believed() {
        let mut registry = Registry::new(Keys::new("main"), PATIENCE);
        list(
            &mut registry,
            50,
            &[entry("a-1", "a:1"), entry("b-1", "b:1")],
        );
        list(&mut registry, 51, &[entry("a-1", "a:1")]);
        assert_eq!(nodes(&mut registry), ["a-1"]);
    }

    #[tokio::test]
    async fn fingerprints_tell_puts_and_deletions() {
        let mut registry = Registry::new(Keys::new("main"), PATIENCE);
        let empty = registry.fingerprint();
        let reaper = Item {
            key: b"/adsum/main/reapers/7",
            value: b"a-1",
            mod_revision: 9,
        };
        registry.put(&reaper);
        let first = registry.fingerprint();
        registry.put(&Item {
            mod_revision: 10,
            ..reaper
        });
        let second = registry.fingerprint();
        assert!(empty != first && first != second);
        assert_eq!(registry.owners().len(), 1);
        registry.delete(b"/adsum/main/reapers/7");
        assert_eq!(registry.fingerprint(), empty);
        assert!(registry.owners().is_empty());
    }

    #[tokio::test]
    async fn entries_that_make_no_sense_count_and_say_nothing() {
        let mut registry = Registry::new(Keys::new("main"), PATIENCE);
        let (_, value) = entry("a-1", "a:1");
        let keys =
            ["nodes/b-1", "reapers/x", "later/thing"].map(|key| format!("/adsum/main/{key}"));
        for key in &keys {
            registry.put(&Item {
                key: key.as_bytes(),
                value: &value,
                mod_revision: 2,
            });
        }
        assert!(registry.members().nodes.is_empty() && registry.owners().is_empty());
        assert_eq!(registry.fingerprint().count, 3);
    }
}
