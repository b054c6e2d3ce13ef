//! A set of shards, as bits.

use adsum_core::store::Shard;

#[derive(Debug, Clone)]
pub(super) struct ShardSet {
    words: Box<[u64]>,
    len: usize,
}

impl ShardSet {
    pub(super) fn new(shards: Shard) -> Self {
        let words = vec![0; usize::from(shards).div_ceil(64)].into();
        Self { words, len: 0 }
    }

    /// `true` if it was not in the set.
    pub(super) fn insert(&mut self, shard: Shard) -> bool {
        let Some(word) = self.words.get_mut(usize::from(shard / 64)) else {
            return false;
        };
        let bit = 1 << (shard % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.len += usize::from(new);
        new
    }

    /// `true` if it was in the set.
    pub(super) fn remove(&mut self, shard: Shard) -> bool {
        let was = self.contains(shard);
        if let Some(word) = self.words.get_mut(usize::from(shard / 64)) {
            *word &= !(1 << (shard % 64));
        }
        self.len -= usize::from(was);
        was
    }

    pub(super) fn contains(&self, shard: Shard) -> bool {
        let word = self.words.get(usize::from(shard / 64));
        word.is_some_and(|w| w & (1 << (shard % 64)) != 0)
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_inside() {
        let mut set = ShardSet::new(100);
        assert!(set.insert(0) && set.insert(99) && !set.insert(99));
        assert!(!set.insert(200), "no such shard");
        assert_eq!(
            (set.len(), set.contains(99), set.contains(98)),
            (2, true, false)
        );
        assert!(set.remove(99) && !set.remove(99) && !set.remove(200));
        assert!(set.remove(0) && set.is_empty());
    }
}
