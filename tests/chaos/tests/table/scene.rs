//! The cluster that all scenarios share, and how one is run.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use adsum_chaos::{
    Kind, Outcome, Record, Round, Script, Struck, Times, World, cast::Size, report::Figures,
};
use adsum_core::store::{Fence, Store, Swept};
use adsum_tests::history::Event;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const CLIENTS: usize = 200;

/// Numbers of fences by shard.
pub(crate) type Fences = BTreeMap<u16, u64>;

pub(crate) fn times() -> Times {
    let slow = std::env::var_os("ADSUM_SLOW").is_some();
    Times::faster(if slow { 1 } else { 10 })
}

/// The binary of this build, or one that `CHAOS_BINARY` names. The tests of another package do not
/// build it by themselves.
fn binary() -> Result<PathBuf> {
    if let Some(built) = std::env::var_os("CHAOS_BINARY") {
        return Ok(built.into());
    }
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

    /// The fences with which each reaper sweeps, by shard.
    pub(crate) async fn fences(&self) -> Result<BTreeMap<String, Fences>> {
        let mut all = BTreeMap::new();
        for part in &self.world.reapers {
            let shards = part.node.shards().await?;
            let shards = shards.as_object().context("no shards")?;
            let fence = |(shard, line): (&String, &Value)| {
                Some((shard.parse().ok()?, line["reaper"]["fence"].as_u64()?))
            };
            all.insert(part.name(), shards.iter().filter_map(fence).collect());
        }
        Ok(all)
    }

    /// Sweeps with these fences are refused, in every shard.
    pub(crate) async fn refuses(&self, fences: &Fences) -> Result<()> {
        let store = self.world.store().await?;
        for (shard, number) in fences {
            let position = store.log(*shard, 0, 0).await?.position;
            let fence = Fence {
                epoch: position.context("a shard was not born")?.epoch,
                number: *number,
            };
            let answer = store.sweep(*shard, fence, 10).await?.value;
            ensure!(answer == Swept::Refused, "{shard}: {answer:?}");
        }
        println!("  refused in {} shards", fences.len());
        Ok(())
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

    /// What was broken, the first of its sort.
    pub(crate) fn struck(&self, kind: Kind) -> Result<&Struck> {
        let mut struck = self.outcome.struck.iter();
        let found = struck.find(|s| s.kind == kind);
        found.with_context(|| format!("no {} happened", kind.name()))
    }

    /// All these shards were claimed by somebody else before a reaper was awake again.
    pub(crate) fn taken_over(&self, sleeper: &Struck, fences: &Fences) -> Result<()> {
        ensure!(!fences.is_empty(), "{} swept nothing", sleeper.target);
        let slept = sleeper.begin..=sleeper.end;
        let entries = self.outcome.history.entries.iter();
        let claimed: BTreeSet<_> = entries
            .filter(|entry| slept.contains(&entry.at))
            .filter_map(|entry| match &entry.event {
                Event::Claimed { shard, reaper, .. } => {
                    (*reaper != sleeper.target).then_some(*shard)
                }
                _ => None,
            })
            .collect();
        let left: Vec<_> = fences.keys().filter(|s| !claimed.contains(s)).collect();
        ensure!(left.is_empty(), "nobody took {left:?} over");
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
