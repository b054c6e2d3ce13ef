//! Consistent hashing: users onto shards, shards onto nodes. The hash is XXH3-64 (seed 0) over
//! explicit bytes, so every node and every release agrees.
//!
//! A ring has 256 points for each of its members; a point is the hash of
//! `<name> 0x1F <number in decimal>`. A key belongs to the first point at or after its own hash.

mod shards;

use std::hash::{BuildHasher, Hash, Hasher};

use hashring::HashRing;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::store::Shard;

pub use shards::ShardRing;

const POINTS: u32 = 256;

/// XXH3-64 of exactly the bytes that were written.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Xxh3;

struct Xxh3Hasher(u64);

impl BuildHasher for Xxh3 {
    type Hasher = Xxh3Hasher;
    fn build_hasher(&self) -> Xxh3Hasher {
        Xxh3Hasher(0)
    }
}

impl Hasher for Xxh3Hasher {
    // Every key here writes its bytes once, so this is the plain hash with seed 0.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes as its bytes and nothing else: std's encoding of `Hash` is not ours to rely on.
struct Bytes<'a>(&'a [u8]);

impl Hash for Bytes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

/// One of a member's points on the ring.
#[derive(Clone, Debug)]
struct Point {
    label: Box<str>,
    member: u16,
}

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.label.as_bytes());
    }
}

/// All points of members with these names.
fn points<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Vec<Point> {
    let of = |(member, name): (u16, N)| {
        (0..POINTS).map(move |n| Point {
            label: format!("{}\u{1f}{n}", name.as_ref()).into(),
            member,
        })
    };
    (0..u16::MAX).zip(names).flat_map(of).collect()
}

/// A ring of named members, which are known by their place in the list.
#[derive(Clone, Debug)]
pub struct Ring {
    ring: HashRing<Point, Xxh3>,
    members: usize,
}

impl Ring {
    /// A ring of these members; their names decide, not their order.
    ///
    /// # Panics
    /// Never with fewer than 65,536 members; more are cut off.
    pub fn new<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        let mut ring = HashRing::with_hasher(Xxh3);
        let points = points(names);
        let members = points.len() / POINTS as usize;
        ring.batch_add(points);
        Self { ring, members }
    }

    /// The member that a key belongs to; `None` on an empty ring.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        self.ring
            .get(&Bytes(key))
            .map(|point| usize::from(point.member))
    }

    /// All members in the order in which they would serve the key: the owner first.
    #[must_use]
    pub fn successors(&self, key: &[u8]) -> Vec<usize> {
        let walk = self.ring.get_with_replicas(&Bytes(key), self.ring.len());
        let mut seen = vec![false; self.members];
        let mut order = Vec::with_capacity(self.members);
        for point in walk.unwrap_or_default() {
            let member = usize::from(point.member);
            if !std::mem::replace(&mut seen[member], true) {
                order.push(member);
            }
        }
        order
    }
}

/// Which node should serve each shard, with bounded loads: nobody above
/// `ceil(1.25 × mean)`; a full node passes to the next on the ring.
#[derive(Clone, Debug)]
pub struct Placement {
    orders: Vec<Vec<usize>>,
    owners: Vec<usize>,
    /// The shards in the order of their hashes, so that none is favoured by its number and a
    /// change of members disturbs few.
    turns: Vec<usize>,
    /// The nodes' hashes: who comes first among equals.
    ties: Vec<u64>,
}

impl Placement {
    /// Places `shards` on nodes with these names. Every node that knows the same names comes
    /// to the same placement.
    pub fn new<N: AsRef<str>>(shards: Shard, names: &[N]) -> Self {
        let ring = Ring::new(names);
        let orders: Vec<_> = (0..shards)
            .map(|s| ring.successors(format!("shard-{s}").as_bytes()))
            .collect();
        let mut turns: Vec<_> = (0..usize::from(shards)).collect();
        turns.sort_unstable_by_key(|s| xxh3_64(format!("shard-{s}").as_bytes()));
        let ties = names.iter().map(|n| xxh3_64(n.as_ref().as_bytes()));
        let mut placement = Self {
            orders,
            owners: Vec::new(),
            turns,
            ties: ties.collect(),
        };
        placement.place();
        placement
    }

    fn place(&mut self) {
        if self.ties.is_empty() {
            return;
        }
        let most = bound(self.orders.len(), self.ties.len());
        let mut load = vec![0; self.ties.len()];
        self.owners = vec![0; self.orders.len()];
        for &shard in &self.turns {
            // The bound is above the mean, so somebody has room.
            let mut order = self.orders[shard].iter().copied();
            let owner = order.find(|&n| load[n] < most).unwrap_or(0);
            load[owner] += 1;
            self.owners[shard] = owner;
        }
    }

    /// Places the shards anew, and leaves them where they are as far as possible: what has no
    /// node goes to whoever has the fewest, and then only as many move as it takes for nobody to
    /// be above the bound, or below the mean rounded down. So one node more or less moves its
    /// share, whatever the names; the ring alone can't promise that. Every node that knows the
    /// same names and the same `current` nodes comes to the same placement; a placement that is
    /// good is left as it is, and one that is half carried out leads to the same end.
    pub fn keep(&mut self, current: impl Fn(Shard) -> Option<usize>) {
        let nodes = self.ties.len();
        if nodes == 0 {
            return;
        }
        let (most, least) = (bound(self.orders.len(), nodes), self.orders.len() / nodes);
        let mut load = vec![0; nodes];
        let known = |s: usize| current(Shard::try_from(s).ok()?).filter(|n| *n < nodes);
        let mut owners: Vec<_> = (0..self.orders.len()).map(known).collect();
        owners.iter().flatten().for_each(|n| load[*n] += 1);
        for &shard in &self.turns {
            if owners[shard].is_none() {
                let by_load = |n: &&usize| load[**n];
                // The first of those with the fewest, in the order of the ring.
                let owner = self.orders[shard].iter().min_by_key(by_load).copied();
                owners[shard] = owner;
                owner.into_iter().for_each(|n| load[n] += 1);
            }
        }
        loop {
            let by_load = |n: &usize| (load[*n], self.ties[*n]);
            let (poor, rich) = (
                (0..nodes).min_by_key(by_load),
                (0..nodes).max_by_key(by_load),
            );
            let (Some(poor), Some(rich)) = (poor, rich) else {
                break;
            };
            if load[rich] <= most && load[poor] >= least {
                break;
            }
            // Of what the rich has, that for which the poor comes first on the ring.
            let rank = |s: &&usize| self.orders[**s].iter().position(|n| *n == poor);
            let theirs = self.turns.iter().filter(|s| owners[**s] == Some(rich));
            let Some(&shard) = theirs.min_by_key(rank) else {
                break;
            };
            owners[shard] = Some(poor);
            load[rich] -= 1;
            load[poor] += 1;
        }
        self.owners = owners.into_iter().map(Option::unwrap_or_default).collect();
    }

    /// The node that should serve the shard; `None` if there are no nodes.
    #[must_use]
    pub fn owner(&self, shard: Shard) -> Option<usize> {
        self.owners.get(usize::from(shard)).copied()
    }

    /// The owner, then all others in the order of the ring: whom to try next.
    pub fn order(&self, shard: Shard) -> impl Iterator<Item = usize> {
        let owner = self.owner(shard);
        let ring = self
            .orders
            .get(usize::from(shard))
            .into_iter()
            .flatten()
            .copied();
        owner
            .into_iter()
            .chain(ring.filter(move |n| Some(*n) != owner))
    }
}

/// `ceil(1.25 × mean)`.
fn bound(shards: usize, nodes: usize) -> usize {
    (5 * shards).div_ceil(4 * nodes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TenantId, UserId, UserKey};

    fn users(n: usize) -> impl Iterator<Item = UserKey> {
        let tenant = TenantId::new("acme").unwrap();
        (0..n).map(move |i| UserKey::new(tenant.clone(), UserId::new(format!("user-{i}")).unwrap()))
    }

    #[test]
    fn a_million_users_spread_evenly_over_64_shards() {
        let ring = ShardRing::new(64);
        let mut load = [0_u32; 64];
        users(1_000_000).for_each(|u| load[usize::from(ring.shard_of(&u))] += 1);
        let fullest = f64::from(*load.iter().max().unwrap()) / (1_000_000.0 / 64.0);
        println!("fullest shard: {fullest:.3} of the mean");
        assert!(fullest <= 1.25, "{fullest}");
    }

    #[test]
    fn one_more_shard_moves_little_more_than_its_share() {
        let (before, after) = (ShardRing::new(64), ShardRing::new(65));
        let moved = users(200_000)
            .filter(|u| before.shard_of(u) != after.shard_of(u))
            .count();
        let share = moved as f64 / 200_000.0;
        println!("moved {share:.4}, fair share {:.4}", 1.0 / 65.0);
        assert!(share <= 1.5 / 65.0, "{share}");
        let elsewhere = users(20_000)
            .filter(|u| before.shard_of(u) != after.shard_of(u))
            .filter(|u| after.shard_of(u) != 64);
        assert_eq!(elsewhere.count(), 0, "only the new shard gains");
    }

    #[test]
    fn the_hash_is_fixed() {
        // Pinned: a release that answers otherwise would scatter everybody's sessions.
        let ring = ShardRing::new(64);
        let placed: Vec<_> = users(8).map(|u| ring.shard_of(&u)).collect();
        assert_eq!(placed, PINNED);
        assert_eq!(xxh3_64(b"adsum"), ADSUM);
    }

    const PINNED: [Shard; 8] = [32, 6, 22, 2, 56, 29, 42, 34];
    const ADSUM: u64 = 0x3b44_593b_cf6d_3f1c;

    #[test]
    fn successors_name_everyone_once_owner_first() {
        let ring = Ring::new(["a", "b", "c", "d"]);
        for key in ["x", "y", "z"] {
            let order = ring.successors(key.as_bytes());
            assert_eq!(order.first().copied(), ring.get(key.as_bytes()));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert_eq!(Ring::new::<&str>([]).get(b"x"), None);
    }

    fn owners_by_name<'a>(names: &[&'a str]) -> Vec<&'a str> {
        let placement = Placement::new(64, names);
        (0..64)
            .map(|s| names[placement.owner(s).unwrap()])
            .collect()
    }

    #[test]
    fn placement_is_bounded_and_a_change_moves_little() {
        let all = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];
        for count in 1..all.len() {
            let before = owners_by_name(&all[..count]);
            let after = owners_by_name(&all[..=count]);
            let most = before
                .iter()
                .map(|n| before.iter().filter(|m| m == &n).count())
                .max();
            assert!(most.unwrap() <= bound(64, count));
            let moved = before.iter().zip(&after).filter(|(b, a)| b != a).count();
            let share = 64.0 / (count + 1) as f64;
            println!(
                "{count} to {} nodes: {moved} shards move, share {share:.1}",
                count + 1
            );
            assert!(moved as f64 <= share + 16.0, "{count}: {moved}");
        }
    }

    /// Shards kept where they are, by name.
    fn kept(names: &[String], of: &Placement, current: &[Option<String>]) -> Vec<Option<String>> {
        let mut placement = of.clone();
        let place = |name: &String| names.iter().position(|n| n == name);
        placement.keep(|s| place(current[usize::from(s)].as_ref()?));
        (0..64)
            .map(|s| Some(names[placement.owner(s)?].clone()))
            .collect()
    }

    /// Numbers that look random and are the same on every run.
    fn noise(seed: u64, n: u64) -> u64 {
        xxh3_64_with_seed(&n.to_le_bytes(), seed)
    }

    #[test]
    fn what_is_kept_is_even_and_one_node_more_or_less_moves_its_share() {
        let mut worst = [0; 11];
        for seed in 0..30 {
            let (mut names, mut current) = (Vec::new(), vec![None; 64]);
            for step in 0..14 {
                // A walk between one and ten nodes, each with a name of its own.
                let (random, before) = (noise(seed, step), names.len());
                if before < 2 || (before < 10 && random % 3 > 0) {
                    names.push(format!("reaper-{}-{random:016x}", before % 3));
                } else {
                    names.remove(usize::try_from(random / 3 % before as u64).unwrap());
                }
                let placement = Placement::new(64, &names);
                let next = kept(&names, &placement, &current);
                let moved = current.iter().zip(&next).filter(|(b, a)| b != a).count();
                let (larger, after) = (before.max(names.len()), names.len());
                if before > 0 {
                    assert!(moved <= bound(64, larger), "{before} to {after}: {moved}");
                    worst[larger] = moved.max(worst[larger]);
                }
                for name in &names {
                    let load = next.iter().flatten().filter(|n| *n == name).count();
                    let even = 64 / after..=bound(64, after);
                    assert!(even.contains(&load), "{load} of {even:?}");
                }
                let again = kept(&names, &placement, &next);
                assert_eq!(again, next, "what is good is left alone");
                current = next;
            }
        }
        for (nodes, most) in worst.iter().enumerate().skip(2) {
            let limit = bound(64, nodes);
            println!("{nodes} nodes, or one less: at most {most} shards moved, limit {limit}");
        }
    }

    #[test]
    fn a_placement_that_is_half_carried_out_leads_to_the_same_end() {
        for seed in 0..20 {
            let mut names: Vec<_> = (0..3).map(|n| format!("n{:x}", noise(seed, n))).collect();
            let before = kept(&names, &Placement::new(64, &names), &vec![None; 64]);
            names.push(format!("n{:x}", noise(seed, 9)));
            let placement = Placement::new(64, &names);
            let end = kept(&names, &placement, &before);
            let mut now = before.clone();
            for shard in (0..64).filter(|s| before[*s] != end[*s]) {
                // Given up by one, and then taken by the other.
                now[shard] = None;
                assert_eq!(kept(&names, &placement, &now), end, "{shard} is free");
                now[shard].clone_from(&end[shard]);
                assert_eq!(kept(&names, &placement, &now), end, "{shard} is taken");
            }
        }
    }

    #[test]
    fn placement_does_not_depend_on_the_order_of_names() {
        let forward = owners_by_name(&["a", "b", "c"]);
        let backward = owners_by_name(&["c", "b", "a"]);
        assert_eq!(forward, backward);
    }
}
