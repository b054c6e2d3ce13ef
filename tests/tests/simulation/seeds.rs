//! Many seeds, no violation.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use adsum_tests::sim;

/// Runs, unless told otherwise.
const RUNS: u64 = 2_000;
/// Bad seeds after which there is no need to look for more.
const ENOUGH: usize = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A failed run: the fewest faults that still make it fail, and its story.
fn failure(seed: u64) -> String {
    let (kept, run) = sim::shrink(seed);
    let first = run.violations.first();
    format!(
        "ADSUM_SEED={seed} repeats this run; of its faults {kept:?} are enough for {} of these:\n{}",
        run.violations.len(),
        first.map(ToString::to_string).unwrap_or_default()
    )
}

/// The seeds among these whose runs go wrong, and how many events there were.
fn search(first: u64, runs: u64) -> (Vec<u64>, u64) {
    let (next, events) = (AtomicU64::new(first), AtomicU64::new(0));
    let work = || {
        let mut bad = Vec::new();
        while bad.len() < ENOUGH {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + runs {
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
    let mut bad: Vec<u64> = std::thread::scope(|scope| {
        let workers = [(); 2].map(|()| scope.spawn(work));
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap_or_default())
            .collect()
    });
    bad.sort_unstable();
    (bad, events.into_inner())
}

#[test]
fn nothing_is_violated() {
    let only = number("ADSUM_SEED");
    if let Some(seed) = only
        && std::env::var_os("ADSUM_HISTORY").is_some()
    {
        sim::run(seed).history.write(std::io::stdout()).unwrap();
    }
    let first = only.or(number("ADSUM_FIRST")).unwrap_or(0);
    let runs = only.map_or(number("ADSUM_RUNS").unwrap_or(RUNS), |_| 1);
    let began = Instant::now();
    let (bad, events) = search(first, runs);
    if let Some(seed) = bad.first() {
        panic!("bad seeds: {bad:?}\n{}", failure(*seed));
    }
    let took = began.elapsed().as_secs_f64();
    let rate = runs as f64 / took * 60.0;
    println!("{runs} runs, {events} events, {took:.1} s: {rate:.0} runs a minute");
}
