//! Since when something that a node stands on answers, or does not.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{clock, metrics::metrics};

/// How the shards of a store answer, by the last call to each.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
    /// How many fail; so that success costs a look at one number.
    failing: AtomicUsize,
}

#[derive(Debug)]
struct State {
    failing: HashMap<u16, String>,
    since_ms: u64,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Shards whose last call failed.
    pub shards: usize,
    /// What one of them says.
    pub error: String,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                failing: HashMap::new(),
                since_ms: clock::wall_us() / 1000,
            }),
            failing: AtomicUsize::new(0),
        }
    }
}

impl Health {
    /// How it is, and since when (wall clock, ms).
    #[must_use]
    pub fn now(&self) -> (Option<Trouble>, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = state.failing.iter().min_by_key(|(shard, _)| **shard);
        let trouble = first.map(|(shard, error)| Trouble {
            shards: state.failing.len(),
            error: format!("shard {shard}: {error}"),
        });
        (trouble, state.since_ms)
    }

    pub(super) fn answered(&self, shard: u16) {
        if self.failing.load(Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failing.remove(&shard).is_some() && state.failing.is_empty() {
            state.since_ms = clock::wall_us() / 1000;
        }
        self.count(&state);
    }

    pub(super) fn failed(&self, shard: u16, error: &dyn std::fmt::Display) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failing.is_empty() {
            state.since_ms = clock::wall_us() / 1000;
        }
        state.failing.insert(shard, error.to_string());
        self.count(&state);
    }

    fn count(&self, state: &State) {
        self.failing.store(state.failing.len(), Relaxed);
        metrics().store_failing.set(state.failing.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_well_again_when_every_shard_is() {
        let health = Health::default();
        let (trouble, born) = health.now();
        assert_eq!(trouble, None);
        health.failed(3, &"no answer");
        health.failed(2, &"loading");
        let (trouble, since) = health.now();
        let expected = Trouble {
            shards: 2,
            error: "shard 2: loading".into(),
        };
        assert_eq!(trouble, Some(expected));
        assert!(since >= born);
        health.answered(2);
        health.answered(7);
        assert_eq!(health.now().0.unwrap().shards, 1);
        health.answered(3);
        assert_eq!(health.now().0, None);
    }
}
