//! The same fan-out at one rate after another, until the service does not keep up: latency against
//! load. The highest rate that it keeps up with is its saturation; at half of that it is measured
//! once more.

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
        default_value = "2500,5000,10000,25000,50000,75000,100000,125000,150000,200000,250000,300000"
    )]
    rates: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct LadderResult {
    rooms: usize,
    members: usize,
    encoding: Spoken,
    steps: Vec<Step>,
    /// The highest rate that was kept up with.
    saturation: Option<f64>,
    /// At half of it.
    half: Option<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    rate: f64,
    kept_up: bool,
    #[serde(flatten)]
    fanout: FanoutResult,
}

impl Step {
    fn take(crowd: &mut Crowd<'_>, stage: &Stage, rate: f64) -> Result<Self> {
        crowd.at(rate);
        let fanout = crowd.measure(stage)?;
        Ok(Self {
            rate,
            kept_up: fanout.diffs_per_s >= rate * KEPT_UP,
            fanout,
        })
    }
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
            let step = Step::take(&mut crowd, &stage, *rate)?;
            bar.inc(1);
            let kept_up = step.kept_up;
            steps.push(step);
            if !kept_up {
                break;
            }
        }
        let kept_up = steps.iter().filter(|step| step.kept_up);
        let saturation = kept_up.map(|step| step.rate).max_by(f64::total_cmp);
        let half = saturation.map(|rate| Step::take(&mut crowd, &stage, rate / 2.0));
        let half = half.transpose()?;
        bar.finish_and_clear();
        let result = LadderResult {
            rooms: load.rooms,
            members: load.members,
            encoding: manner.encoding,
            steps,
            saturation,
            half,
        };
        report::print(manner.json, &result)
    }
}
