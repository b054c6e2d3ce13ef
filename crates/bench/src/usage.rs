//! What processes and the machine spend, from `/proc`.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use rustix::param::{clock_ticks_per_second, page_size};

/// Processor time and memory of some processes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) rss: u64,
}

impl Usage {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            rss: self.rss + other.rss,
        }
    }
}

/// What processes have used until now. One that is gone has used nothing.
pub(crate) fn of(pids: &[u32]) -> Usage {
    let mut all = Usage::default();
    for pid in pids {
        if let Ok(usage) = of_one(*pid) {
            all.cpu += usage.cpu;
            all.rss += usage.rss;
        }
    }
    all
}

/// What this process has used.
pub(crate) fn own() -> Usage {
    of(&[std::process::id()])
}

fn of_one(pid: u32) -> Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name before it may have spaces and brackets.
    let fields = stat.rsplit_once(')').context("no name")?.1;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let field = |at: usize| -> Result<u64> { Ok(fields.get(at).context("short")?.parse()?) };
    Ok(Usage {
        cpu: ticks(field(11)? + field(12)?),
        rss: field(21)? * page_size() as u64,
    })
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / clock_ticks_per_second() as f64)
}

/// What the whole machine has spent until now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Machine {
    pub(crate) busy: Duration,
    pub(crate) steal: Duration,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
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
