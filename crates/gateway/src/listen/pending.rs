//! Connections that have not sent a whole request yet: counted, and bounded by breaking off the
//! oldest.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::places::{Place as Held, Places};

/// All that are pending.
#[derive(Debug)]
pub(super) struct Pending {
    limit: usize,
    places: Arc<Places<CancellationToken>>,
}

impl Pending {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            places: Arc::default(),
        }
    }

    /// A place for one more; the oldest loses its own if there are too many.
    pub(super) fn enter(&self) -> Place {
        let lost = CancellationToken::new();
        let (held, oldest) = self.places.enter(lost.clone(), self.limit);
        if let Some(oldest) = oldest {
            oldest.cancel();
        }
        Place { lost, _held: held }
    }
}

/// A place among the pending, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    lost: CancellationToken,
    _held: Held<CancellationToken>,
}

impl Place {
    /// Waits until somebody else needs it.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_told() {
        let pending = Pending::new(2);
        let [first, second, third] = [(); 3].map(|()| pending.enter());
        assert!(first.lost.is_cancelled());
        assert!(!second.lost.is_cancelled() && !third.lost.is_cancelled());
    }
}
