//! The page of a run, in Markdown, beside its picture.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result};

use super::{
    figures::{BROKEN, Figures, GRACEFUL, KILLED, SILENT},
    picture,
};
use crate::{nemesis::Struck, times::Times};

/// A run, as it is told.
#[derive(Debug, Default)]
pub struct Run {
    /// What makes it again.
    pub seed: u64,
    /// How long faults went on.
    pub minutes: u64,
    /// Clients at a time.
    pub clients: usize,
    /// Rounds.
    pub rounds: usize,
    /// What was broken.
    pub struck: Vec<Struck>,
    /// What clients did.
    pub actions: u64,
    /// What watchers were told of others.
    pub observations: u64,
    /// What did not hold, told in full.
    pub violations: Vec<String>,
    /// How many dots were wrong, and when.
    pub wrong: Vec<(u64, usize)>,
    /// How long after the calm of each round all dots were right.
    pub converged_ms: Vec<u64>,
    /// Latencies.
    pub figures: Figures,
}

impl Run {
    /// Faults by sort.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<&'static str, usize> {
        let mut faults = BTreeMap::new();
        for one in &self.struck {
            *faults.entry(one.kind.name()).or_default() += 1;
        }
        faults
    }
}

/// The value below which so many per mille of them are.
pub(super) fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * per_mille / 1000).copied().unwrap_or(0)
}

fn row(name: &str, values: &[u64], bound: &str) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    if sorted.is_empty() {
        return format!("| {name} | 0 | – | – | – | {bound} |\n");
    }
    let [p50, p99] = [500, 990].map(|p| percentile(&sorted, p));
    let max = sorted.last().copied().unwrap_or(0);
    format!(
        "| {name} | {} | {p50} | {p99} | {max} | {bound} |\n",
        sorted.len()
    )
}

/// The latencies as a table.
#[must_use]
pub fn latencies(figures: &Figures, times: Times) -> String {
    let mut text = String::from(
        "| ms from … to the watchers | samples | p50 | p99 | max | bound |\n\
         |---|---|---|---|---|---|\n",
    );
    let bounds = [
        (GRACEFUL, "at once".to_owned()),
        (BROKEN, format!("linger {} + 1,000", times.linger())),
        (SILENT, format!("ttl {} + 1,000", times.ttl())),
        (KILLED, format!("deadline {} + 1,000", times.holder())),
    ];
    for (sort, bound) in &bounds {
        let known = figures.departures.get(sort).cloned().unwrap_or_default();
        text += &row(&format!("{sort}, nothing else broken"), &known.clean, bound);
        text += &row(
            &format!("{sort}, under all faults"),
            &known.all,
            "by the fault",
        );
    }
    let took: Vec<_> = figures.deliveries.iter().map(|(_, took)| *took).collect();
    text += &row("a change, under all faults", &took, "by the fault");
    let silence = format!("silence {} + 1,000", times.silent());
    let gaps = [
        ("dispatcher killed", silence.as_str()),
        (
            "Redis master killed",
            "failover of Redis (2,000 to 4,200) + 1,000",
        ),
    ];
    for (fault, bound) in gaps {
        let known = figures.gaps.get(fault).cloned().unwrap_or_default();
        let name = format!("longest delivery after: {fault}");
        text += &row(&format!("{name}, nothing else broken"), &known.clean, bound);
        text += &row(
            &format!("{name}, under all faults"),
            &known.all,
            "by the fault",
        );
    }
    text
}

/// How large things grew, as a table.
#[must_use]
pub fn sizes(figures: &Figures) -> String {
    let mut text =
        String::from("## Sizes\n\n| the most that was ever seen | | limit |\n|---|---|---|\n");
    for (what, (size, limit)) in &figures.sizes {
        text += &format!("| {what} | {size} | {limit} |\n");
    }
    text
}

fn page(run: &Run, times: Times) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# A run under fire: seed {}\n", run.seed)?;
    writeln!(
        text,
        "Six Redis, three etcd, three gateways, three dispatchers and two reapers as processes of one\n\
         machine; {} clients over all transports; times {} times faster than the defaults. {} minutes\n\
         of faults in {} rounds, each of which ends in calm. `make chaos SEED={} MINUTES={} CLIENTS={}`\n\
         draws the same faults and the same clients again.\n",
        run.clients,
        times.scale(),
        run.minutes,
        run.rounds,
        run.seed,
        run.minutes,
        run.clients
    )?;
    writeln!(
        text,
        "![faults, delivery latency and wrong dots over time](run-{}.svg)\n",
        run.seed
    )?;
    writeln!(text, "| | |\n|---|---|")?;
    writeln!(text, "| faults | {} |", run.struck.len())?;
    writeln!(text, "| things that clients did | {} |", run.actions)?;
    writeln!(text, "| observations checked | {} |", run.observations)?;
    writeln!(text, "| sweeps checked | {} |", run.figures.sweeps)?;
    writeln!(text, "| violations | {} |", run.violations.len())?;
    let converged: Vec<_> = run
        .converged_ms
        .iter()
        .map(|ms| format!("{:.1}", *ms as f64 / 1e3))
        .collect();
    writeln!(
        text,
        "| all dots right, s after the calm of each round | {} |\n",
        converged.join(", ")
    )?;
    writeln!(text, "## Latencies\n\n{}", latencies(&run.figures, times))?;
    writeln!(text, "{}", sizes(&run.figures))?;
    writeln!(text, "## Faults\n\n| fault | times |\n|---|---|")?;
    for (fault, count) in run.faults() {
        writeln!(text, "| {} | {count} |", fault.replace('_', " "))?;
    }
    if !run.violations.is_empty() {
        writeln!(text, "\n## Violations\n\n```")?;
        run.violations
            .iter()
            .try_for_each(|v| writeln!(text, "{v}"))?;
        writeln!(text, "```")?;
    }
    Ok(text)
}

/// Writes the page and the picture into a folder.
pub fn write(folder: &Path, run: &Run, times: Times) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    fs::write(
        folder.join(format!("run-{}.md", run.seed)),
        page(run, times)?,
    )?;
    let svg = picture::draw(run)?;
    fs::write(folder.join(format!("run-{}.svg", run.seed)), svg)?;
    Ok(())
}
