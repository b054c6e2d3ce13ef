//! Where things stand in etcd: `/adsum/<cluster>/nodes/<node>` and
//! `/adsum/<cluster>/reapers/<shard>`.

use adsum_core::NodeId;

/// The keys of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

/// What a key is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The entry of a member.
    Node(NodeId),
    /// The elected reaper of a shard.
    Reaper(u16),
}

impl Keys {
    pub(crate) fn new(cluster: &str) -> Self {
        Self {
            prefix: format!("/adsum/{cluster}/"),
        }
    }

    /// What all keys of the cluster start with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn node(&self, node: &NodeId) -> String {
        format!("{}nodes/{node}", self.prefix)
    }

    pub(crate) fn reaper(&self, shard: u16) -> String {
        format!("{}reapers/{shard}", self.prefix)
    }

    /// What a key of the cluster is for; `None` for one that this release does not know.
    pub(crate) fn parse(&self, key: &[u8]) -> Option<Key> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        match rest.split_once('/')? {
            ("nodes", node) => Some(Key::Node(NodeId::new(node).ok()?)),
            ("reapers", shard) => Some(Key::Reaper(shard.parse().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let keys = Keys::new("main");
        let node = NodeId::new("gw-1").unwrap();
        assert_eq!(keys.node(&node), "/adsum/main/nodes/gw-1");
        assert_eq!(
            keys.parse(keys.node(&node).as_bytes()),
            Some(Key::Node(node))
        );
        assert_eq!(keys.parse(keys.reaper(7).as_bytes()), Some(Key::Reaper(7)));
        for other in [
            "/adsum/main/reapers/x",
            "/adsum/main/new/1",
            "/adsum/mai",
            "/x",
        ] {
            assert_eq!(keys.parse(other.as_bytes()), None, "{other}");
        }
    }
}
