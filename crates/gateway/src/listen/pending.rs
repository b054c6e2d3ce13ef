//! Connections that have not sent a whole request yet: counted, and bounded by sending the oldest
//! away.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// All that are pending.
#[derive(Debug)]
pub(super) struct Pending {
    limit: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// In the order of their coming.
    taken: BTreeMap<u64, CancellationToken>,
}

impl Pending {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            places: Mutex::default(),
        }
    }

    /// A place for one more; the oldest loses its own if there are too many.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        let mut places = self.lock();
        while places.taken.len() >= self.limit
            && let Some((_, oldest)) = places.taken.pop_first()
        {
            oldest.cancel();
        }
        let (number, lost) = (places.next, CancellationToken::new());
        places.next += 1;
        places.taken.insert(number, lost.clone());
        Place {
            pending: Arc::clone(self),
            number,
            lost,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the pending, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    pending: Arc<Pending>,
    number: u64,
    lost: CancellationToken,
}

impl Place {
    /// Waits until somebody else needs it.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pending.lock().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_places_are_given_back() {
        let pending = Arc::new(Pending::new(2));
        let (first, second) = (pending.enter(), pending.enter());
        assert!(!first.lost.is_cancelled());
        let third = pending.enter();
        assert!(first.lost.is_cancelled());
        assert!(!second.lost.is_cancelled() && !third.lost.is_cancelled());
        drop((first, second));
        assert_eq!(pending.lock().taken.len(), 1);
        let fourth = pending.enter();
        assert!(!third.lost.is_cancelled());
        drop((third, fourth));
        assert!(pending.lock().taken.is_empty());
    }
}
