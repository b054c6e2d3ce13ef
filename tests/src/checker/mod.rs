//! Judges a history by the eight invariants of the design, within the bounds that the design
//! promises for each fault. It knows nothing of how the run was made.
//!
//! Where faults overlap it gives the benefit of the doubt: a violation is one whatever else was
//! broken at the time.

mod bounds;
mod device;
mod judge;
mod settings;
mod story;
mod trouble;
mod verdicts;
mod watcher;

use std::fmt;

pub use bounds::Bounds;

use crate::history::History;

/// What must hold in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// When nothing moves, every watcher's picture equals the truth.
    Converge,
    /// Nobody whose client is well is reported offline.
    NoFalseOffline,
    /// Who is gone is reported in time.
    BoundedSilence,
    /// One departure, one leave; one arrival, one join.
    Once,
    /// No older state after a newer one, and no number for two changes.
    Order,
    /// Nobody sees what visibility forbids.
    Private,
    /// No sweep is accepted from a fence lower than the highest.
    SingleReaper,
    /// Nothing grows beyond its limit.
    Bounded,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Converge => "Converge",
            Self::NoFalseOffline => "No false offline",
            Self::BoundedSilence => "Bounded silence",
            Self::Once => "Once",
            Self::Order => "Order",
            Self::Private => "Private",
            Self::SingleReaper => "Single reaper",
            Self::Bounded => "Bounded",
        })
    }
}

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When it was noticed, ms.
    pub at: u64,
    /// Who, what was true, and what was seen.
    pub what: String,
    /// What led to it, shortened.
    pub story: Vec<String>,
    /// What makes the run again.
    pub seed: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = story::seconds(self.at);
        writeln!(
            f,
            "{} violated at {at} (seed {})",
            self.invariant, self.seed
        )?;
        writeln!(f, "  {}", self.what)?;
        self.story
            .iter()
            .try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// Judges a run; the first violations of each invariant, in the order of time.
#[must_use]
pub fn check(history: &History, bounds: &Bounds) -> Vec<Violation> {
    judge::Judge::new(history, bounds).run()
}
