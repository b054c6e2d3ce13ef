//! What telemetry costs: the same fan-out without it, with metrics, and with metrics and traces of
//! some changes, in turns on three clusters that share Redis and etcd. Each is compared with the
//! turn without telemetry beside it, and of these pairs the middle one counts: what the machine
//! does to one turn it does to its neighbour.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use axum::{Router, body::Bytes, http::StatusCode};
use clap::Args;
use serde::Serialize;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    args::{Manner, Target},
    fanout::{Crowd, Load},
    report,
    stage::{Ground, Stage},
};

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Telemetry {
    #[command(flatten)]
    manner: Manner,
    #[command(flatten)]
    load: Load,
    /// Turns of each.
    #[arg(long, default_value_t = 9)]
    turns: usize,
    /// The part of all changes that are traced.
    #[arg(long, default_value_t = 0.01)]
    sample_rate: f64,
}

/// One way to run the service.
struct Way<'a> {
    name: &'static str,
    // Before the stage: clients go first.
    crowd: Crowd<'a>,
    stage: Stage,
    /// Diffs a second and processor time of a diff, turn by turn.
    turns: Vec<(f64, f64)>,
}

#[derive(Debug, Serialize)]
struct TelemetryResult {
    rooms: usize,
    members: usize,
    turns: usize,
    sample_rate: f64,
    /// Without telemetry.
    off: Plain,
    metrics: Compared,
    sampled: Compared,
    /// Requests of the exporters that were answered.
    exports: u64,
}

#[derive(Debug, Serialize)]
struct Plain {
    diffs_per_s: f64,
    cpu_us_per_diff: f64,
}

/// Beside the same without telemetry: the middle of all pairs.
#[derive(Debug, Serialize)]
struct Compared {
    diffs_per_s: f64,
    cpu_us_per_diff: f64,
    /// How much fewer diffs a second, and how much more processor time each.
    slower_percent: f64,
    dearer_percent: f64,
}

impl Telemetry {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(self.turns > 0, "nothing to do");
        let ground = Ground::lay()?;
        let sink = Sink::start(&ground.runtime)?;
        let traces = [
            format!("TELEMETRY__ENDPOINT=http://{}", sink.address),
            "TELEMETRY__SIGNALS=[\"traces\"]".to_owned(),
            format!("TELEMETRY__SAMPLE_RATE={}", self.sample_rate),
        ];
        let off = ["TELEMETRY__METRICS=false".to_owned()];
        let ways: [(&str, &[String]); 3] = [("off", &off), ("metrics", &[]), ("sampled", &traces)];
        let mut ways = ways
            .into_iter()
            .map(|(name, settings)| {
                let stage = Stage::start(&ground, name, &Target::own(settings))?;
                Ok(Way {
                    name,
                    crowd: Crowd::gather(&stage, &self.load, &self.manner)?,
                    stage,
                    turns: Vec::new(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        // All of them beat meanwhile.
        while !all_settled(&ways)? {
            rest(&mut ways, Duration::from_secs(1))?;
        }
        for way in &mut ways {
            way.crowd.warm_up(&way.stage)?;
        }
        let bar = report::bar((self.turns * ways.len()) as u64, "measuring");
        for turn in 0..self.turns {
            for n in 0..ways.len() {
                // Nobody is always the first.
                let at = (turn + n) % ways.len();
                ways[at].measure()?;
                rest(&mut ways, Duration::from_millis(10))?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let [off, metrics, sampled] = &ways[..] else {
            anyhow::bail!("three ways")
        };
        let result = TelemetryResult {
            rooms: self.load.rooms,
            members: self.load.members,
            turns: self.turns,
            sample_rate: self.sample_rate,
            off: off.plain(),
            metrics: metrics.beside(off),
            sampled: sampled.beside(off),
            exports: sink.answered(),
        };
        ensure!(result.exports > 0, "no trace was ever sent");
        report::print(self.manner.json, &result)
    }
}

fn all_settled(ways: &[Way<'_>]) -> Result<bool> {
    for way in ways {
        if !way.stage.is_settled()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lets everybody beat who is due.
fn rest(ways: &mut [Way<'_>], time: Duration) -> Result<()> {
    ways.iter_mut().try_for_each(|way| way.crowd.idle(time))
}

impl Way<'_> {
    fn measure(&mut self) -> Result<()> {
        let result = self.crowd.measure(&self.stage)?;
        let (lost, twice) = (result.lost, result.duplicated);
        ensure!(
            lost == 0 && twice == 0,
            "{}: {lost} lost, {twice} twice",
            self.name
        );
        self.turns
            .push((result.diffs_per_s, result.cpu_us_per_diff));
        Ok(())
    }

    fn plain(&self) -> Plain {
        Plain {
            diffs_per_s: middle(self.turns.iter().map(|turn| turn.0)),
            cpu_us_per_diff: middle(self.turns.iter().map(|turn| turn.1)),
        }
    }

    fn beside(&self, off: &Self) -> Compared {
        let pairs = || self.turns.iter().zip(&off.turns);
        let plain = self.plain();
        Compared {
            diffs_per_s: plain.diffs_per_s,
            cpu_us_per_diff: plain.cpu_us_per_diff,
            slower_percent: 100.0 * middle(pairs().map(|(with, off)| 1.0 - with.0 / off.0)),
            dearer_percent: 100.0 * middle(pairs().map(|(with, off)| with.1 / off.1 - 1.0)),
        }
    }
}

/// The middle one.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        0 => (values[half - 1] + values[half]) / 2.0,
        _ => values[half],
    }
}

/// Takes whatever exporters send, and throws it away.
struct Sink {
    address: SocketAddr,
    answered: Arc<AtomicU64>,
}

impl Sink {
    fn start(runtime: &Runtime) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let (address, answered) = (listener.local_addr()?, Arc::default());
        let count: Arc<AtomicU64> = Arc::clone(&answered);
        let take = move |_: Bytes| {
            count.fetch_add(1, Relaxed);
            async { StatusCode::OK }
        };
        let router = Router::new().fallback(take);
        // It ends with the runtime.
        runtime.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, answered })
    }

    fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }
}
