//! Users onto shards. Every operation asks for it, and a ring of 64 shards has 16,384 points: a
//! search through all of them reads a dozen places in memory, most of which are not in the cache.
//! So hashes lie close together here, and the first bits of one tell where to begin.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{Point, points};
use crate::{UserKey, store::Shard};

/// So many points have their first bits in common, on average: a line of the cache.
const POINTS_TOGETHER: usize = 8;

/// Users onto shards; a copy shares all it has with the first.
#[derive(Clone, Debug)]
pub struct ShardRing(Arc<Table>);

/// The points of a [`Ring`](super::Ring), in its order.
#[derive(Debug)]
struct Table {
    hashes: Box<[u64]>,
    shards: Box<[Shard]>,
    /// For each beginning of a hash, the place of the first point that does not begin lower.
    first: Box<[u32]>,
    /// Bits that are not part of the beginning.
    rest: u32,
}

impl ShardRing {
    /// The ring of `shards` shards, named by their numbers.
    #[must_use]
    pub fn new(shards: Shard) -> Self {
        let points = points((0..shards).map(|s| format!("shard-{s}")));
        let hash = |point: &Point| xxh3_64(point.label.as_bytes());
        let mut points: Vec<_> = points.iter().map(|p| (hash(p), p.member)).collect();
        points.sort_unstable();
        Self(Arc::new(Table::of(&points)))
    }

    /// The shard of a user: by `tenant 0x1F user`.
    #[must_use]
    pub fn shard_of(&self, user: &UserKey) -> Shard {
        user.with_bytes(|key| self.0.get(xxh3_64(key)))
    }
}

impl Table {
    /// Of points in the order of their hashes.
    fn of(points: &[(u64, Shard)]) -> Self {
        let beginnings = (points.len() / POINTS_TOGETHER).next_power_of_two().max(2);
        let rest = u64::BITS - beginnings.ilog2();
        let first = |beginning: usize| {
            let place = points.partition_point(|(hash, _)| hash >> rest < beginning as u64);
            u32::try_from(place).unwrap_or(u32::MAX)
        };
        Self {
            hashes: points.iter().map(|(hash, _)| *hash).collect(),
            shards: points.iter().map(|(_, shard)| *shard).collect(),
            first: (0..beginnings).map(first).collect(),
            rest,
        }
    }

    /// Whose the first point at or after a hash is; past the last it is the first of all.
    fn get(&self, hash: u64) -> Shard {
        let beginning = usize::try_from(hash >> self.rest).unwrap_or(usize::MAX);
        let first = self.first.get(beginning).copied().unwrap_or(0) as usize;
        let later = self.hashes.get(first..).unwrap_or_default();
        let place = first + later.iter().take_while(|point| **point < hash).count();
        let shard = self.shards.get(place).or(self.shards.first());
        shard.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TenantId, UserId, ring::Ring};

    #[test]
    fn every_key_belongs_where_the_ring_says() {
        for shards in [0, 1, 2, 3, 16, 64, 300] {
            let ring = Ring::new((0..shards).map(|s| format!("shard-{s}")));
            let table = ShardRing::new(shards);
            for n in 0..5000 {
                let tenant = TenantId::new(format!("t{}", n % 7)).unwrap();
                let user = UserKey::new(tenant, UserId::new(format!("user-{n}")).unwrap());
                let there = ring.get(user.encode().as_bytes()).unwrap_or_default();
                assert_eq!(usize::from(table.shard_of(&user)), there, "{shards} {n}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_ring_and_its_points_themselves() {
        let Table { hashes, shards, .. } = &*ShardRing::new(64).0;
        let table = ShardRing::new(64).0;
        let (last, all) = (hashes.len() - 1, hashes.len());
        assert!(hashes.is_sorted());
        assert_eq!(table.get(0), shards[0]);
        assert_eq!(table.get(u64::MAX), shards[0], "past the last");
        assert_eq!(table.get(hashes[last]), shards[last]);
        for place in 0..all {
            assert_eq!(table.get(hashes[place]), shards[place], "at a point");
            let next = shards[(place + 1) % all];
            assert_eq!(table.get(hashes[place] + 1), next, "behind it");
        }
    }

    #[test]
    fn the_longest_ids_are_whole() {
        let long = |letter: &str| letter.repeat(128);
        let tenant = TenantId::new(long("t")).unwrap();
        let user = UserKey::new(tenant, UserId::new(long("u")).unwrap());
        user.with_bytes(|bytes| assert_eq!(bytes, user.encode().as_bytes()));
    }
}
