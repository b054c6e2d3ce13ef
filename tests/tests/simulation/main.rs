//! Runs of the simulation: many seeds without a violation, and every planted bug found.
//!
//! `ADSUM_SEED=…` repeats one run and prints its whole history with `ADSUM_HISTORY=1`;
//! `ADSUM_RUNS=…` sets how many there are.

mod regressions;
mod seeds;
mod shape;

#[cfg(debug_assertions)]
mod plants;
