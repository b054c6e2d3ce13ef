//! The same fan-out at one rate after another, until the service does not keep up: latency against
//! load.

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    args::Spoken,
    fanout::{Crowd, FanoutResult, Scene},
    report,
    stage::Stage,
};

/// What part of what was asked for is as good as all of it.
const KEPT_UP: f64 = 0.95;

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Ladder {
    #[command(flatten)]
    scene: Scene,
    /// Diffs a second, one after another.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "2500,5000,10000,25000,50000,75000,100000,150000,200000"
    )]
    rates: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct LadderResult {
    rooms: usize,
    members: usize,
    encoding: Spoken,
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    rate: f64,
    kept_up: bool,
    #[serde(flatten)]
    fanout: FanoutResult,
}

impl Ladder {
    pub(crate) fn run(mut self) -> Result<()> {
        let first = self.rates.first().copied();
        ensure!(first.is_some(), "no rate");
        self.scene.load.rate = first;
        let Scene {
            target,
            manner,
            load,
        } = &self.scene;
        let stage = Stage::set(target)?;
        let mut crowd = Crowd::gather(&stage, load, manner)?;
        crowd.warm_up(&stage)?;
        let mut steps = Vec::new();
        let bar = report::bar(self.rates.len() as u64, "measuring");
        for rate in &self.rates {
            crowd.at(*rate);
            let fanout = crowd.measure(&stage)?;
            let kept_up = fanout.diffs_per_s >= rate * KEPT_UP;
            steps.push(Step {
                rate: *rate,
                kept_up,
                fanout,
            });
            bar.inc(1);
            if !kept_up {
                break;
            }
        }
        bar.finish_and_clear();
        let result = LadderResult {
            rooms: load.rooms,
            members: load.members,
            encoding: manner.encoding,
            steps,
        };
        report::print(manner.json, &result)
    }
}
