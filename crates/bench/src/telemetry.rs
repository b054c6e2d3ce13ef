//! What telemetry costs: the same fan-out without it, with metrics, and with metrics and traces of
//! some changes, in turns on three clusters that share Redis and etcd. Each is compared with the
//! turn without telemetry beside it.

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
    fanout::Load,
    report,
    stage::{Ground, Stage},
    turns::{self, Side, middle},
};

/// Between two turns: those who waited beat.
const BETWEEN: Duration = Duration::from_millis(30);

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
        let stages = ways
            .iter()
            .map(|(name, settings)| Stage::start(&ground, name, &Target::own(settings)))
            .collect::<Result<Vec<_>>>()?;
        let mut sides = ways
            .iter()
            .zip(&stages)
            .map(|((name, _), stage)| Side::gather(name, stage, &self.load, &self.manner))
            .collect::<Result<Vec<_>>>()?;
        turns::warm_up(&mut sides)?;
        let bar = report::bar((self.turns * sides.len()) as u64, "measuring");
        for turn in 0..self.turns {
            for at in turns::order(turn, sides.len()) {
                sides[at].turn()?;
                turns::rest(&mut sides, BETWEEN)?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let [off, metrics, sampled] = &sides[..] else {
            anyhow::bail!("three ways")
        };
        let result = TelemetryResult {
            rooms: self.load.rooms,
            members: self.load.members,
            turns: self.turns,
            sample_rate: self.sample_rate,
            off: plain(off),
            metrics: beside(metrics, off),
            sampled: beside(sampled, off),
            exports: sink.answered(),
        };
        ensure!(result.exports > 0, "no trace was ever sent");
        report::print(self.manner.json, &result)
    }
}

fn plain(side: &Side<'_>) -> Plain {
    Plain {
        diffs_per_s: side.middle(|turn| turn.diffs_per_s),
        cpu_us_per_diff: side.middle(|turn| turn.cpu_us_per_diff),
    }
}

fn beside(side: &Side<'_>, off: &Side<'_>) -> Compared {
    let pairs = || side.turns.iter().zip(&off.turns);
    let slower = pairs().map(|(with, off)| 1.0 - with.diffs_per_s / off.diffs_per_s);
    let dearer = pairs().map(|(with, off)| with.cpu_us_per_diff / off.cpu_us_per_diff - 1.0);
    let plain = plain(side);
    Compared {
        diffs_per_s: plain.diffs_per_s,
        cpu_us_per_diff: plain.cpu_us_per_diff,
        slower_percent: 100.0 * middle(slower),
        dearer_percent: 100.0 * middle(dearer),
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
