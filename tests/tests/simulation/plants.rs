//! Every planted bug is found: in which run, and by which invariant.

use adsum_core::plant::{Plant, sow};
use adsum_tests::{
    checker::Invariant::{self, *},
    sim,
};

/// Seeds to try before a bug counts as not found.
const SEEDS: u64 = 400;

/// Tries seeds until the checker notices, and says after how many. The bug is planted in this
/// thread alone, so the other tests go on without it.
fn found(plant: Plant, by: &[Invariant]) -> Result<String, String> {
    sow(Some(plant));
    let run = (0..SEEDS).map(sim::run).find(|run| {
        let mut violations = run.violations.iter();
        violations.any(|v| by.contains(&v.invariant))
    });
    sow(None);
    let name = plant.name();
    let run = run.ok_or_else(|| format!("{name}: not found in {SEEDS} runs"))?;
    // The very same run is good without the bug.
    if let Some(violation) = sim::run(run.history.seed).violations.first() {
        return Err(violation.to_string());
    }
    let mut violated: Vec<_> = run.violations.iter().map(|v| v.invariant).collect();
    violated.dedup();
    let seeds = run.history.seed + 1;
    Ok(format!(
        "{name}: found after {seeds} seeds, by {violated:?}"
    ))
}

#[test]
fn a_reaper_without_fence() {
    println!(
        "{}",
        found(Plant::ReaperWithoutFence, &[SingleReaper]).unwrap()
    );
}

#[test]
fn a_close_without_the_conn_check() {
    println!(
        "{}",
        found(Plant::CloseWithoutConn, &[NoFalseOffline]).unwrap()
    );
}

#[test]
fn no_settling_after_a_new_epoch() {
    println!("{}", found(Plant::NoSettling, &[NoFalseOffline]).unwrap());
}

#[test]
fn a_seq_reused_after_a_failover() {
    println!("{}", found(Plant::SeqReused, &[Order]).unwrap());
}

#[test]
fn a_lost_last_push_never_polled() {
    println!(
        "{}",
        found(Plant::LostLastPush, &[Converge, BoundedSilence]).unwrap()
    );
}

#[test]
fn dropped_states() {
    println!(
        "{}",
        found(Plant::DroppedStates, &[Converge, BoundedSilence]).unwrap()
    );
}

#[test]
fn an_older_state_accepted() {
    println!(
        "{}",
        found(
            Plant::OlderStateAccepted,
            &[Order, Once, Converge, NoFalseOffline],
        )
        .unwrap()
    );
}

#[test]
fn a_leaky_privacy_filter() {
    println!("{}", found(Plant::LeakyPrivacy, &[Private]).unwrap());
}
