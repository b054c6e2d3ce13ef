//! A deck of faults: every sort comes before any comes again too often, in an order that the
//! seed makes.

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};

use super::Kind;

/// Deals faults without end.
#[derive(Debug)]
pub struct Deck {
    rng: StdRng,
    kinds: Vec<Kind>,
    cards: Vec<Kind>,
}

impl Deck {
    /// A deck of these sorts.
    #[must_use]
    pub fn new(seed: u64, kinds: Vec<Kind>) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            kinds,
            cards: Vec::new(),
        }
    }

    /// The next fault.
    pub fn deal(&mut self) -> Option<Kind> {
        if self.cards.is_empty() {
            let cards = self.kinds.iter();
            let cards = cards.flat_map(|kind| std::iter::repeat_n(*kind, kind.weight()));
            self.cards = cards.collect();
            self.cards.shuffle(&mut self.rng);
        }
        self.cards.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_makes_the_order_and_nothing_is_left_out() {
        let deal = |seed| {
            let mut deck = Deck::new(seed, Kind::ALL.to_vec());
            let all: usize = Kind::ALL.iter().map(|k| k.weight()).sum();
            (0..all).filter_map(|_| deck.deal()).collect::<Vec<_>>()
        };
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
        assert!(Kind::ALL.iter().all(|kind| deal(1).contains(kind)));
    }
}
