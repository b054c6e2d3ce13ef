//! Breaks a real cluster for some minutes under thousands of clients, and says what it found.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is what it is for"
)]

use std::{
    fs::File,
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use adsum_chaos::{
    Kind, Record, Round, Script, Times, World,
    cast::Size,
    nemesis::Deck,
    report::{self, Run},
};
use adsum_tests::{checker::check, history::History};
use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// Faults of one round last about so long: then all calm down, and everything must be right.
const ROUND: Duration = Duration::from_secs(150);

#[derive(Parser)]
#[command(
    name = "chaos",
    about = "Break a real cluster, and judge what everybody saw"
)]
struct Options {
    /// The binary to break.
    #[arg(long, default_value = "adsum")]
    binary: PathBuf,
    /// Break nothing, and judge this kept history.
    #[arg(long)]
    judge: Option<PathBuf>,
    /// Draws the faults and the clients; without one, at random.
    #[arg(long)]
    seed: Option<u64>,
    /// For how long things break at random, after a round in which they break one by one.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Clients at a time.
    #[arg(long, default_value_t = 2_000)]
    clients: usize,
    /// How many times faster than the defaults.
    #[arg(long, default_value_t = 5)]
    scale: u32,
    /// Only these faults, separated by commas.
    #[arg(long)]
    only: Option<String>,
    /// The last line is one JSON object.
    #[arg(long)]
    json: bool,
    /// Where to write the report.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Keep the history of every round here. Without it those with a violation are kept, in the
    /// folder for temporary files.
    #[arg(long)]
    keep: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if let Some(file) = &options.judge {
        return judge(file, Times::faster(options.scale));
    }
    let seed = options
        .seed
        .unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let run = break_it(&options, seed).await?;
    let times = Times::faster(options.scale);
    if let Some(folder) = &options.report {
        report::write(folder, &run, times)?;
        println!(
            "report: {}",
            folder.join(format!("run-{seed}.md")).display()
        );
    }
    tell(&run, times);
    if options.json {
        let json = serde_json::json!({
            "seed": seed, "minutes": options.minutes, "clients": options.clients,
            "faults": run.faults(), "actions": run.actions,
            "observations": run.observations, "violations": run.violations.len(),
        });
        println!("{json}");
    }
    Ok(match run.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn judge(file: &Path, times: Times) -> Result<ExitCode> {
    let history = History::read(BufReader::new(File::open(file)?))?;
    let violations = check(&history, &times.bounds());
    violations
        .iter()
        .for_each(|violation| println!("{violation}"));
    println!(
        "{} entries, {} violations",
        history.entries.len(),
        violations.len()
    );
    Ok(ExitCode::SUCCESS)
}

fn kinds(options: &Options, world: &World) -> Vec<Kind> {
    let only = options.only.as_deref();
    let wanted = |kind: &Kind| only.is_none_or(|only| only.split(',').any(|o| o == kind.name()));
    let all = Kind::ALL.iter().copied();
    all.filter(wanted)
        .filter(|kind| world.can_cut() || !kind.is_cut())
        .collect()
}

/// Above the bar; where there is none, because nobody looks, as a line.
fn say(bar: &ProgressBar, text: &str) {
    if bar.is_hidden() {
        eprintln!("{text}");
    } else {
        bar.println(text);
    }
}

/// The first round breaks one thing at a time and waits in between, so that what is measured is
/// one fault's doing.
fn one_by_one(times: Times) -> Script {
    // Longer than anything takes to be told.
    let alone = Duration::from_millis(times.ttl() + times.holder() + 2_000);
    // Long enough for what was broken last to be felt no more, as far as it is measured.
    let soon = Duration::from_secs(5);
    let again = |pause, kind, times| std::iter::repeat_n((pause, kind), times);
    let kinds = again(alone, Kind::GatewayKilled, 3)
        .chain(again(soon, Kind::DispatcherKilled, 10))
        .chain(again(
            Duration::from_millis(times.ttl()),
            Kind::MasterKilled,
            8,
        ));
    Script::Steps(kinds.map(|(pause, kind)| (pause, vec![kind])).collect())
}

async fn break_it(options: &Options, seed: u64) -> Result<Run> {
    let bar = ProgressBar::new(options.minutes * 60);
    let style = "{elapsed_precise} [{bar:40}] {pos}/{len} s  {msg}";
    bar.set_style(ProgressStyle::with_template(style)?.progress_chars("=> "));
    bar.set_message("a cluster starts");
    let times = Times::faster(options.scale);
    let binary = std::path::absolute(&options.binary)?;
    let world = Arc::new(World::start(&binary, times).await?);
    if !world.can_cut() {
        say(&bar, "no packet filter here: network cuts are left out");
    }
    let record = Record::default();
    let mut run = Run {
        seed,
        minutes: options.minutes,
        clients: options.clients,
        ..Run::default()
    };
    let kinds = kinds(options, &world);
    let mut left = Duration::from_secs(options.minutes * 60);
    let mut failed = 0;
    let mut first = options.only.is_none().then(|| one_by_one(times));
    while left > Duration::ZERO || first.is_some() {
        let round = run.rounds as u64;
        let lasts = if first.is_some() {
            Duration::ZERO
        } else {
            ROUND.min(left)
        };
        left -= lasts;
        let random = || Script::Random {
            deck: Box::new(Deck::new(seed.wrapping_add(round), kinds.clone())),
            lasts,
        };
        let plan = Round {
            seed: seed ^ (round << 32),
            tenant: format!("t{round}"),
            size: Size::of(options.clients),
            script: first.take().unwrap_or_else(random),
            after: Duration::from_secs(1),
            quiet: Duration::from_millis(times.quiet()),
        };
        let begun = Instant::now();
        let tell = |what: &str| {
            let done = options.minutes * 60 - left.as_secs() - lasts.as_secs();
            bar.set_position(done + begun.elapsed().min(lasts).as_secs());
            let (actions, observations) = record.counts();
            let what = format!("round {round}: {what}, {actions} done, {observations} seen");
            if bar.is_hidden() {
                eprintln!("{:6.1} s  {what}", record.now() as f64 / 1e3);
            }
            bar.set_message(what);
        };
        let outcome = plan.run(&world, &record, tell).await?;
        run.rounds += 1;
        failed += outcome.failed.len();
        for error in &outcome.failed {
            say(&bar, &format!("not done: {error}"));
        }
        for violation in &outcome.violations {
            say(&bar, &violation.to_string());
            run.violations.push(violation.to_string());
        }
        if options.keep.is_some() || !outcome.violations.is_empty() {
            let folder = options.keep.clone().unwrap_or_else(std::env::temp_dir);
            std::fs::create_dir_all(&folder)?;
            let file = folder.join(format!("history-{seed}-{round}.jsonl"));
            outcome
                .history
                .write(BufWriter::new(File::create(&file)?))?;
            say(&bar, &format!("history: {}", file.display()));
        }
        run.figures.add(&outcome.history, &outcome.struck, times);
        run.struck.extend(outcome.struck);
        run.wrong.extend(outcome.wrong);
        run.converged_ms.push(outcome.converged_ms);
        world.check().context("a node did not survive")?;
        world.served().await.context("the cluster did not heal")?;
    }
    (run.actions, run.observations) = record.counts();
    bar.finish_with_message(format!(
        "{} rounds, {failed} faults could not be made",
        run.rounds
    ));
    Ok(run)
}

fn tell(run: &Run, times: Times) {
    println!("seed {}: {} faults", run.seed, run.struck.len());
    for (fault, count) in run.faults() {
        println!("  {count:4} {fault}");
    }
    println!("{} actions, {} observations", run.actions, run.observations);
    println!("{}", report::latencies(&run.figures, times));
    println!("{}", report::sizes(&run.figures));
    println!("{} sweeps checked", run.figures.sweeps);
    println!("{} violations", run.violations.len());
}
