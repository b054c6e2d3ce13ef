//! What happened, noted by everybody at once. Times are monotonic, in ms since the run began; a
//! client's hello is noted when its connection stands, under the time at which it began.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use adsum_tests::history::{Entry, Event, History};
use tokio::time::Instant;

/// A shared history under way.
#[derive(Debug, Clone)]
pub struct Record(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    wall_start: u64,
    entries: Mutex<Vec<Entry>>,
    actions: AtomicU64,
    observations: AtomicU64,
}

fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

impl Default for Record {
    fn default() -> Self {
        // Both clocks begin with a whole ms: a hello, which brings the time of day, must not be
        // noted after what came of it.
        let before = wall_ms();
        while wall_ms() == before {
            std::hint::spin_loop();
        }
        Self(Arc::new(Inner {
            start: Instant::now(),
            wall_start: wall_ms(),
            entries: Mutex::default(),
            actions: AtomicU64::new(0),
            observations: AtomicU64::new(0),
        }))
    }
}

/// Within one ms, what a device did comes before what was seen of it.
const fn is_deed(event: &Event) -> bool {
    matches!(
        event,
        Event::Hello { .. } | Event::Change { .. } | Event::Gone { .. }
    )
}

impl Record {
    /// Now, in ms since the run began.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The time of a connection's number, which is the clock when it said hello.
    #[must_use]
    pub fn of_conn(&self, conn: u64) -> u64 {
        conn.saturating_sub(self.0.wall_start).min(self.now())
    }

    /// A number for a connection that begins now.
    #[must_use]
    pub fn conn(&self) -> u64 {
        self.0.wall_start + self.now()
    }

    /// Notes what happened now.
    pub fn note(&self, event: Event) {
        self.note_at(self.now(), event);
    }

    /// Notes what happened then.
    pub fn note_at(&self, at: u64, event: Event) {
        let counter = match &event {
            Event::Hello { .. }
            | Event::Change { .. }
            | Event::Gone { .. }
            | Event::Asked { .. } => Some((&self.0.actions, 1)),
            Event::State { members, .. } => Some((&self.0.observations, members.len())),
            Event::Diff {
                joins,
                updates,
                leaves,
                ..
            } => Some((
                &self.0.observations,
                joins.len() + updates.len() + leaves.len(),
            )),
            _ => None,
        };
        if let Some((counter, count)) = counter {
            counter.fetch_add(count as u64, Relaxed);
        }
        let mut entries = self
            .0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { at, event });
    }

    /// What clients did, and what watchers were told of others, since the run began.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let (actions, observations) = (&self.0.actions, &self.0.observations);
        (actions.load(Relaxed), observations.load(Relaxed))
    }

    /// Everything noted since the last time, in the order of time.
    #[must_use]
    pub fn take(&self, seed: u64) -> History {
        let mut entries = self
            .0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut history = History::new(seed);
        history.entries = std::mem::take(&mut *entries);
        history.entries.sort_by_key(|e| (e.at, !is_deed(&e.event)));
        history
    }
}
