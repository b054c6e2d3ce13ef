//! The process as the system sees it. Elsewhere than on Linux these stay 0.

use std::fs;

use super::{Metrics, Point, Value};

/// Clock ticks in a second, as Linux shows them to everybody.
const TICKS: f64 = 100.0;

pub(super) fn look(metrics: &Metrics) {
    if let Some(bytes) = resident() {
        metrics.process_memory.set(bytes);
    }
    if let Some(seconds) = cpu() {
        metrics
            .process_cpu
            .replace(vec![Point::of(Value::Sum(seconds))]);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        metrics.process_files.set(files.count());
    }
}

fn resident() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn cpu() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may have anything in it but ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}
