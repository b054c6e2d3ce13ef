//! What the whole machine has spent, and what was taken from it: a virtual machine whose host has
//! other guests stands still at times, and whatever is timed on it stands still, too.

use std::{fs, time::Duration};

use rustix::param::clock_ticks_per_second;

/// What all processors together have spent until a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine {
    /// Time in which a processor ran something.
    pub busy: Duration,
    /// Time in which a processor had something to do and the host ran somebody else.
    pub steal: Duration,
}

impl Machine {
    /// Until now. Nothing where the system does not tell.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// What was stolen since then: nothing can have been late by more because of it.
    #[must_use]
    pub fn stolen_since(&self, before: &Self) -> Duration {
        self.steal.saturating_sub(before.steal)
    }

    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let fields = line.split_whitespace().skip(1);
        let fields: Vec<u64> = fields.map(|n| n.parse().unwrap_or_default()).collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        // user, nice, system, irq, softirq; guests are counted in user.
        Self {
            busy: ticks(field(0) + field(1) + field(2) + field(5) + field(6)),
            steal: ticks(field(7)),
        }
    }
}

/// Time that the kernel counts in ticks.
#[must_use]
pub fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_neither_spent_nor_stolen() {
        let machine = Machine::parse("cpu  1 2 4 800 1600 8 16 32 0 0\ncpu0 9 9 9\n");
        assert_eq!(machine.busy, ticks(1 + 2 + 4 + 8 + 16));
        assert_eq!(machine.steal, ticks(32));
    }

    #[test]
    fn a_system_that_tells_nothing_has_stolen_nothing() {
        assert_eq!(Machine::parse("").steal, Duration::ZERO);
    }
}
