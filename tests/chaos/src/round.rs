//! One round: a cast comes on, things break, all calm down, and what everybody saw is judged.

use std::{sync::Arc, time::Duration};

use adsum_tests::{
    checker::{self, Violation},
    history::{Event, History},
};
use anyhow::Result;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    cast::{Cast, Size},
    nemesis::{Deck, Kind, Nemesis, Struck},
    record::Record,
    witness::Witness,
    world::World,
};

/// Between two looks at the dots.
const SAMPLE: Duration = Duration::from_millis(500);

/// What is broken in a round.
#[derive(Debug)]
pub enum Script {
    /// Faults from a deck, for so long.
    Random {
        /// Deals them.
        deck: Box<Deck>,
        /// For so long.
        lasts: Duration,
    },
    /// One step after the other, each after a pause; the faults of a step at once.
    Steps(Vec<(Duration, Vec<Kind>)>),
}

/// What a round is to be.
#[derive(Debug)]
pub struct Round {
    /// What makes it again.
    pub seed: u64,
    /// The tenant of its cast.
    pub tenant: String,
    /// How large the cast is.
    pub size: Size,
    /// What is broken.
    pub script: Script,
    /// How long the cast goes on after the last fault.
    pub after: Duration,
    /// How long all are calm before everything must be right, at least.
    pub quiet: Duration,
}

/// What came of a round.
#[derive(Debug)]
pub struct Outcome {
    /// All that happened.
    pub history: History,
    /// What was broken.
    pub struck: Vec<Struck>,
    /// Faults that could not be made.
    pub failed: Vec<String>,
    /// How many dots were wrong, and when.
    pub wrong: Vec<(u64, usize)>,
    /// How long after the calm all dots were right.
    pub converged_ms: u64,
    /// What did not hold.
    pub violations: Vec<Violation>,
}

impl Round {
    /// Runs it; `tell` hears now and then how it stands.
    pub async fn run(
        self,
        world: &Arc<World>,
        record: &Record,
        tell: impl Fn(&str),
    ) -> Result<Outcome> {
        let Self {
            seed,
            tenant,
            size,
            script,
            after,
            quiet,
        } = self;
        let witness = Witness::start(world, record).await?;
        let cast = Arc::new(Cast::start(world.stage(&tenant), record, size, seed)?);
        let (stop, stopped) = oneshot::channel::<()>();
        let samples = tokio::spawn(sample(cast.clone(), record.clone(), stopped));
        tell("the cast comes on");
        cast.come_on().await?;
        let nemesis = Nemesis::new(world.clone(), record.clone(), cast.clone());
        let (struck, failed) = match script {
            Script::Random { deck, lasts } => random(&nemesis, deck, lasts, seed, &tell).await,
            Script::Steps(steps) => scripted(&nemesis, steps, seed, &tell).await,
        };
        sleep(after).await;
        tell("calm");
        cast.calm_down();
        record.note(Event::Calm);
        let converged_ms = cast.converge(quiet).await;
        record.note(Event::End);
        drop(stop);
        let wrong = samples.await?;
        // Before those who go now leave something behind.
        let sessions = size.clients + size.beaters + size.rude;
        witness.end(world, record, sessions as u64).await?;
        cast.end().await;
        let history = record.take(seed);
        tell("judging");
        let bounds = world.times.bounds();
        let judged = tokio::task::spawn_blocking(move || {
            let violations = checker::check(&history, &bounds);
            (history, violations)
        });
        let (history, violations) = judged.await?;
        Ok(Outcome {
            history,
            struck,
            failed,
            wrong,
            converged_ms,
            violations,
        })
    }
}

/// Counts wrong dots until told to stop.
async fn sample(
    cast: Arc<Cast>,
    record: Record,
    mut stopped: oneshot::Receiver<()>,
) -> Vec<(u64, usize)> {
    let mut wrong = Vec::new();
    while timeout(SAMPLE, &mut stopped).await.is_err() {
        wrong.push((record.now(), cast.truth().wrong().0));
    }
    wrong
}

type Struckout = (Vec<Struck>, Vec<String>);

async fn random(
    nemesis: &Nemesis,
    mut deck: Box<Deck>,
    lasts: Duration,
    seed: u64,
    tell: &impl Fn(&str),
) -> Struckout {
    let mut rng = StdRng::seed_from_u64(!seed);
    let until = Instant::now() + lasts;
    let mut strikes = JoinSet::new();
    let (mut struck, mut failed) = (Vec::new(), Vec::new());
    while Instant::now() < until {
        // Two at once, in different areas, is as bad as it gets.
        while strikes.len() >= 2 {
            note(strikes.join_next().await, &mut struck, &mut failed);
        }
        let Some(kind) = deck.deal() else { break };
        tell(kind.name());
        let (nemesis, lot) = (nemesis.clone(), StdRng::seed_from_u64(rng.random()));
        strikes.spawn(async move { nemesis.strike(kind, lot).await });
        let pause = nemesis_pause(&mut rng);
        sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
    }
    while let Some(done) = strikes.join_next().await {
        note(Some(done), &mut struck, &mut failed);
    }
    (struck, failed)
}

fn nemesis_pause(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(1_000..7_000))
}

type Done = Option<Result<Result<Struck>, tokio::task::JoinError>>;

fn note(done: Done, struck: &mut Vec<Struck>, failed: &mut Vec<String>) {
    match done {
        Some(Ok(Ok(one))) => struck.push(one),
        Some(Ok(Err(error))) => failed.push(format!("{error:#}")),
        Some(Err(error)) => failed.push(error.to_string()),
        None => {}
    }
}

async fn scripted(
    nemesis: &Nemesis,
    steps: Vec<(Duration, Vec<Kind>)>,
    seed: u64,
    tell: &impl Fn(&str),
) -> Struckout {
    let mut rng = StdRng::seed_from_u64(!seed);
    let (mut struck, mut failed) = (Vec::new(), Vec::new());
    for (pause, kinds) in steps {
        sleep(pause).await;
        let strikes = kinds.into_iter().map(|kind| {
            tell(kind.name());
            nemesis.strike(kind, StdRng::seed_from_u64(rng.random()))
        });
        for done in futures::future::join_all(strikes).await {
            note(Some(Ok(done)), &mut struck, &mut failed);
        }
    }
    (struck, failed)
}
