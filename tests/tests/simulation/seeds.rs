//! Many seeds, no violation.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use adsum_tests::sim;

/// Runs without a word from outside.
const RUNS: u64 = 2_000;

/// Bad seeds after which there is no need to look for more.
const ENOUGH: usize = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Prints a failed run: the fewest faults that still make it fail, and the story.
fn fail(seed: u64) -> ! {
    let (kept, run) = sim::shrink(seed);
    let first = run.violations.first();
    panic!(
        "ADSUM_SEED={seed} repeats this run; of its faults {kept:?} are enough, for {} violations:\n{}",
        run.violations.len(),
        first.map(ToString::to_string).unwrap_or_default()
    );
}

#[test]
fn nothing_is_violated() {
    if let Some(seed) = number("ADSUM_SEED") {
        let run = sim::run(seed);
        if std::env::var_os("ADSUM_HISTORY").is_some() {
            run.history.write(std::io::stdout()).unwrap();
        }
        if !run.violations.is_empty() {
            fail(seed);
        }
        return;
    }
    let runs = number("ADSUM_RUNS").unwrap_or(RUNS);
    let (next, events, began) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let bad: Vec<u64> = std::thread::scope(|scope| {
        let work = || {
            let mut bad = Vec::new();
            while bad.len() < ENOUGH {
                let seed = next.fetch_add(1, Relaxed);
                if seed >= runs {
                    break;
                }
                let run = sim::run(seed);
                events.fetch_add(run.history.entries.len() as u64, Relaxed);
                if !run.violations.is_empty() {
                    bad.push(seed);
                }
            }
            bad
        };
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        let bad = workers.into_iter().flat_map(|w| w.join().unwrap());
        bad.collect()
    });
    if let Some(seed) = bad.first() {
        println!("bad seeds: {bad:?}");
        fail(*seed);
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{runs} runs, {} events, {took:.1} s: {:.0} runs a minute",
        events.load(Relaxed),
        runs as f64 / took * 60.0
    );
}
