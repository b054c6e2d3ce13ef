//! Random sequences, applied to each store and to a plain model of `docs/store.md`: every
//! answer, and now and then everything that can be read, must be equal.
//!
//! `ADSUM_SEED` repeats a run; `ADSUM_SEQUENCES` changes how many sequences it has.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests may do what tests may"
)]

#[path = "common/memory.rs"]
mod memory;
#[path = "common/model.rs"]
mod model;
#[path = "common/model_store.rs"]
mod model_store;
#[path = "common/recorded.rs"]
mod recorded;
#[path = "common/redis_lab.rs"]
mod redis_lab;
#[path = "common/steps.rs"]
mod steps;

use std::{cell::RefCell, collections::BTreeMap, env, time::Instant};

use adsum_store::{
    Options,
    conformance::{Lab, Labs, RULES},
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::{
    memory::MemoryLabs,
    model_store::{ModelLab, ModelLabs},
    redis_lab::RedisLabs,
    steps::{Taken, Walk, sequences},
};

/// What must have happened somewhere in a run, or it proved little.
const TOLD: [&str; 16] = [
    "Superseded",
    "Gone",
    "Unknown",
    "Stale",
    "Refused",
    "hole: true",
    "Settled",
    "NodeLost",
    "Disconnect",
    "Timeout",
    "Kicked",
    "Condemned",
    "Draining",
    "next_ms: Some(0)",
    "next_ms: None",
    "frozen_at: 17",
];

type Counts = RefCell<BTreeMap<&'static str, u64>>;

fn setting(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

async fn compare(
    lab: &dyn Lab,
    options: &Options,
    steps: &[Taken],
    counts: &Counts,
) -> Result<(), TestCaseError> {
    let model = ModelLab::new(options.clone());
    let (mut left, mut right) = (Walk::new(lab).await, Walk::new(&model).await);
    for (n, (step, look)) in steps.iter().enumerate() {
        let (store, model) = (left.take(step).await, right.take(step).await);
        count(counts, &model);
        differ(n, &store, &model)?;
        if *look || n + 1 == steps.len() {
            for (store, model) in left.look().await.iter().zip(&right.look().await) {
                count(counts, model);
                differ(n, store, model)?;
            }
        }
    }
    Ok(())
}

fn differ(step: usize, store: &str, model: &str) -> Result<(), TestCaseError> {
    if store == model {
        return Ok(());
    }
    let text = format!("after step {step}\n store: {store}\n model: {model}\n");
    Err(TestCaseError::fail(text))
}

fn count(counts: &Counts, answer: &str) {
    for word in TOLD.iter().filter(|word| answer.contains(**word)) {
        *counts.borrow_mut().entry(word).or_default() += 1;
    }
}

fn run(name: &str, labs: &dyn Labs, sequences_by_default: u64) {
    let cases = setting("ADSUM_SEQUENCES").unwrap_or(sequences_by_default);
    let seed = setting("ADSUM_SEED").unwrap_or_else(rand::random);
    println!("{name}: {cases} sequences with ADSUM_SEED={seed}");
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_time: 60_000,
        max_shrink_iters: u32::MAX,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (start, counts, taken) = (Instant::now(), Counts::default(), RefCell::new(0));
    let equal = |options: &Options, steps: &[Taken]| {
        *taken.borrow_mut() += steps.len();
        runtime.block_on(async {
            let lab = labs.lab(options.clone()).await;
            compare(&*lab, options, steps, &counts).await
        })
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&sequences(), |(options, steps)| equal(&options, &steps));
    println!(
        "{name}: {} steps in {:?}: {:?}",
        taken.borrow(),
        start.elapsed(),
        counts.borrow()
    );
    match result {
        Ok(()) => {}
        Err(TestError::Fail(_, (options, steps))) => {
            let steps = fewest(steps, |steps| equal(&options, steps).is_err());
            let why = equal(&options, &steps).expect_err("it differed before");
            let steps: Vec<_> = steps
                .iter()
                .enumerate()
                .map(|(n, s)| format!("{n} {s:?}"))
                .collect();
            panic!(
                "ADSUM_SEED={seed}: {name} differs {why}{options:?}\n{}",
                steps.join("\n")
            );
        }
        Err(TestError::Abort(why)) => panic!("ADSUM_SEED={seed}: {why}"),
    }
    for word in TOLD.iter().filter(|_| cases >= 2_000) {
        assert!(
            counts.borrow().contains_key(word),
            "no sequence told of {word:?}"
        );
    }
}

/// Leaves out steps as long as it still differs: proptest does not go below the shortest
/// sequence.
fn fewest(mut steps: Vec<Taken>, differs: impl Fn(&[Taken]) -> bool) -> Vec<Taken> {
    let mut n = 0;
    while n < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(n);
        if differs(&fewer) {
            (steps, n) = (fewer, 0);
        } else {
            n += 1;
        }
    }
    steps
}

#[test]
fn memory_equals_the_model() {
    run("memory", &MemoryLabs, 2_000);
}

#[test]
fn redis_equals_the_model() {
    run("redis", &RedisLabs::Server, 300);
}

/// The model is held to the rules too: a model that is wrong in the same way would hide it.
#[tokio::test]
async fn the_model_keeps_the_rules() {
    for (name, rule) in RULES {
        // It pushes nothing, and leaves out where sweeps and preferences come from.
        let left_out = [
            "a_subscriber_hears_every_committed_change",
            "sweeps_and_preferences_carry_their_origin",
        ];
        if !left_out.contains(name) {
            println!("{name}");
            rule(&ModelLabs).await;
        }
    }
}
