//! The cluster that all scenarios share, and how one is run.

use std::{
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use adsum_chaos::{
    Kind, Outcome, Record, Round, Script, Times, World, cast::Size, report::Figures,
};
use anyhow::{Context, Result, ensure};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const CLIENTS: usize = 200;

pub(crate) fn times() -> Times {
    let slow = std::env::var_os("ADSUM_SLOW").is_some();
    Times::faster(if slow { 1 } else { 10 })
}

/// The binary of this build. The tests of another package do not build it by themselves.
fn binary() -> Result<PathBuf> {
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--workspace",
        "--all-features",
        "--bin",
        "adsum",
    ]);
    let built = build.status().context("build the binary")?;
    ensure!(built.success(), "the binary can't be built");
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).context("no target folder")?;
    Ok(folder.join("adsum"))
}

/// One scenario at a time.
pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    pub(crate) async fn new() -> Result<Self> {
        static TURN: Mutex<()> = Mutex::const_new(());
        static WORLD: OnceCell<Arc<World>> = OnceCell::const_new();
        let turn = TURN.lock().await;
        let start =
            || async { Ok::<_, anyhow::Error>(Arc::new(World::start(&binary()?, times()).await?)) };
        let world = WORLD.get_or_try_init(start).await?.clone();
        let begun = Instant::now();
        let healed = world.served().await;
        healed.context("the last scenario left something broken")?;
        println!("all healed after {:.1?}", begun.elapsed());
        Ok(Self { world, _turn: turn })
    }

    /// Lets this happen under a cast, one step after the other, and has it judged.
    pub(crate) async fn plays(&self, name: &str, steps: &[&[Kind]]) -> Result<Played> {
        let pause = Duration::from_millis(800);
        let steps = steps.iter().map(|kinds| (pause, kinds.to_vec())).collect();
        let round = Round {
            seed: 1,
            tenant: name.to_owned(),
            size: Size {
                actions_per_second: 80,
                ..Size::of(CLIENTS)
            },
            script: Script::Steps(steps),
            after: times().of(20_000),
            quiet: Duration::from_millis(times().ttl() + 2_000),
        };
        let (record, begun) = (Record::default(), Instant::now());
        let outcome = round.run(&self.world, &record, |_| {}).await?;
        self.world.check()?;
        let mut figures = Figures::default();
        figures.add(&outcome.history, &outcome.struck, times());
        let played = Played { outcome, figures };
        println!("{name}: {:.1?}, {}", begun.elapsed(), played.tell(&record));
        played.holds()?;
        Ok(played)
    }
}

/// What came of a scenario.
pub(crate) struct Played {
    pub(crate) outcome: Outcome,
    pub(crate) figures: Figures,
}

impl Played {
    fn tell(&self, record: &Record) -> String {
        let (actions, observations) = record.counts();
        let broken: Vec<_> = self
            .outcome
            .struck
            .iter()
            .map(|s| {
                format!(
                    "{} of {} for {} ms",
                    s.kind.name(),
                    s.target,
                    s.end - s.begin
                )
            })
            .collect();
        format!(
            "{actions} actions, {observations} observations, all right {} ms after the calm; {}",
            self.outcome.converged_ms,
            broken.join(", ")
        )
    }

    fn holds(&self) -> Result<()> {
        ensure!(self.outcome.failed.is_empty(), "{:?}", self.outcome.failed);
        let stories: Vec<_> = self
            .outcome
            .violations
            .iter()
            .map(ToString::to_string)
            .collect();
        ensure!(
            stories.is_empty(),
            "{} violations:\n{}",
            stories.len(),
            stories.join("\n")
        );
        Ok(())
    }

    /// Departures of a sort were told, and within so long.
    pub(crate) fn told_within(&self, sort: &str, bound: u64) -> Result<()> {
        let told = self.figures.departures.get(sort);
        let told = told.with_context(|| format!("no departures: {sort}"))?;
        let longest = told.all.iter().max().copied().unwrap_or(0);
        println!(
            "  {sort}: {} told, at most after {longest} ms (bound {bound})",
            told.all.len()
        );
        ensure!(
            longest <= bound,
            "{sort}: {longest} ms are more than {bound}"
        );
        Ok(())
    }

    /// No change took longer than this to any watcher who sees everybody.
    pub(crate) fn delivered_within(&self, bound: u64) -> Result<()> {
        let took = self.figures.deliveries.iter().map(|(_, took)| *took);
        let longest = took.max().context("nothing was delivered")?;
        println!("  the longest delivery took {longest} ms (bound {bound})");
        ensure!(
            longest <= bound,
            "a change took {longest} ms, more than {bound}"
        );
        Ok(())
    }
}
