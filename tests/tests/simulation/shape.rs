//! A run is its seed, and its history survives being written down.

use adsum_tests::{checker::check, history::History, sim};

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 17] {
        let (one, two) = (sim::run(seed), sim::run(seed));
        let differ = one
            .history
            .entries
            .iter()
            .zip(&two.history.entries)
            .find(|(a, b)| a != b);
        assert!(differ.is_none(), "seed {seed}: {differ:?}");
        assert_eq!(one.history.entries.len(), two.history.entries.len());
    }
}

#[test]
fn a_history_can_be_written_and_judged_later() {
    let run = sim::run(5);
    let mut text = Vec::new();
    run.history.write(&mut text).unwrap();
    let read = History::read(&text[..]).unwrap();
    assert_eq!(read, run.history);
    assert_eq!(check(&read, &run.bounds), run.violations);
}
