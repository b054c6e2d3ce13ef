//! What happened in a run, in order and with monotonic times: what clients did, what was true in
//! the servers, what was broken, and what watchers were told. The checker reads nothing else, so
//! a simulation and a cluster of real processes are judged alike.
//!
//! As text it is one JSON object a line.

mod event;

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

pub use event::{Event, Fault, Gone, Leaving, Said, Seen, Setting, View};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in ms since the run began.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct History {
    /// What makes the run again.
    pub seed: u64,
    /// In the order of their times.
    pub entries: Vec<Entry>,
}

impl History {
    /// An empty one.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let entries = Vec::new();
        Self { seed, entries }
    }

    /// Notes what happened now.
    pub fn note(&mut self, at: u64, event: Event) {
        self.entries.push(Entry { at, event });
    }

    /// Writes it, the seed first.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut to, &serde_json::json!({ "seed": self.seed }))?;
        writeln!(to)?;
        for entry in &self.entries {
            serde_json::to_writer(&mut to, entry)?;
            writeln!(to)?;
        }
        to.flush()
    }

    /// Reads what [`write`](Self::write) wrote. Entries of several writers may be mixed: they
    /// are sorted by time.
    ///
    /// # Errors
    /// When a line makes no sense.
    pub fn read(from: impl BufRead) -> io::Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            seed: u64,
        }
        let mut lines = from.lines();
        let head = lines.next().transpose()?.unwrap_or_default();
        let head: Head = serde_json::from_str(&head)?;
        let mut history = Self::new(head.seed);
        for line in lines {
            history.entries.push(serde_json::from_str(&line?)?);
        }
        history.entries.sort_by_key(|entry| entry.at);
        Ok(history)
    }
}
