//! Connections that have not said hello. Nobody knows whose they are, so they are counted for the
//! node alone; where it has too many, the oldest of them makes room.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use adsum_core::hold::Word;

use crate::outbox::Outbox;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// In the order of their coming.
    taken: BTreeMap<u64, Weak<Outbox>>,
}

impl Strangers {
    /// One more, beside `known` connections that have said hello, of `limit` in all.
    pub(crate) fn enter(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        known: usize,
        limit: usize,
    ) -> Stranger {
        let mut waiting = self.lock();
        let full = known.saturating_add(waiting.taken.len()) >= limit;
        let oldest = full.then(|| waiting.taken.pop_first()).flatten();
        let number = waiting.next;
        waiting.next += 1;
        waiting.taken.insert(number, Arc::downgrade(outbox));
        drop(waiting);
        if let Some(oldest) = oldest.and_then(|(_, outbox)| outbox.upgrade()) {
            oldest.word(Word::Away);
        }
        Stranger {
            all: Arc::clone(self),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    all: Arc<Strangers>,
    number: u64,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.lock().taken.remove(&self.number);
    }
}
