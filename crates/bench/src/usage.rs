//! What processes spend, from `/proc`.

use std::{collections::BTreeMap, fs, time::Duration};

use adsum_local::machine::ticks;
use anyhow::{Context, Result};
use rustix::param::page_size;

/// Processor time and memory of a process.
#[derive(Debug, Clone, Copy)]
struct Usage {
    cpu: Duration,
    rss: u64,
}

/// What some processes have used until a moment, of each that runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usages(BTreeMap<u32, Usage>);

impl Usages {
    /// Bytes of all together.
    pub(crate) fn rss(&self) -> u64 {
        self.0.values().map(|usage| usage.rss).sum()
    }

    /// Processor time since then. What was killed meanwhile is left out.
    pub(crate) fn cpu_since(&self, before: &Self) -> Duration {
        let spent = self.0.iter().map(|(pid, usage)| {
            let before = before.0.get(pid).map_or(Duration::ZERO, |usage| usage.cpu);
            usage.cpu.saturating_sub(before)
        });
        spent.sum()
    }
}

/// What these processes have used until now.
pub(crate) fn of(pids: impl IntoIterator<Item = u32>) -> Usages {
    let used = pids.into_iter().map(|pid| (pid, of_one(pid)));
    Usages(
        used.filter_map(|(pid, usage)| Some((pid, usage.ok()?)))
            .collect(),
    )
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
