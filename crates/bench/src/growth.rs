//! What a change and a diff cost while a cluster grows: the same fan-out, beside ten times the
//! sessions, a hundred times the rooms, on three times the gateways and sixteen times the shards.
//! What the service spends without any change, on heartbeats above all, is measured before and
//! taken off.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    args::{Manner, Target, seconds},
    connect::Crew,
    fanout::{Crowd, Load},
    report,
    stage::Stage,
};

/// Clients of one process.
const PER_PROCESS: usize = 19_000;
/// Numbers of those who only stay begin here.
const BESIDES: usize = 1_000_000;

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Growth {
    #[command(flatten)]
    manner: Manner,
    /// Diffs a second in each measurement.
    #[arg(long, default_value_t = 25_000.0)]
    rate: f64,
    /// Members of a room.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    members: u16,
    /// How long to measure each.
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "SECONDS")]
    seconds: Duration,
    /// Only rows whose name has this in it.
    #[arg(long)]
    only: Option<String>,
}

/// A cluster and who is on it.
#[derive(Debug, Clone, Copy, Serialize)]
struct Size {
    sessions: usize,
    rooms: usize,
    gateways: usize,
    shards: u16,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    from: Measured,
    to: Measured,
    /// How many times as much.
    change_ratio: f64,
    diff_ratio: f64,
}

#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    size: Size,
    /// Of the service and of Redis.
    cpu_us_per_change: f64,
    /// Of the service.
    cpu_us_per_diff: f64,
    /// Cores, without any change.
    idle_cpu: f64,
    foreign_cpu: f64,
}

#[derive(Debug, Serialize)]
struct GrowthResult {
    rows: Vec<Row>,
}

/// Rooms of the fan-out itself.
const ROOMS: usize = 20;

const SMALL: Size = Size {
    sessions: 10_000,
    rooms: 100,
    gateways: 2,
    shards: 64,
};

impl Growth {
    pub(crate) fn run(self) -> Result<()> {
        let rows = [
            (
                "sessions",
                // A process may open 20,000 files here.
                Size {
                    gateways: 6,
                    ..SMALL
                },
                Size {
                    sessions: 100_000,
                    gateways: 6,
                    ..SMALL
                },
            ),
            (
                "rooms",
                // Enough for somebody to be in each.
                Size {
                    sessions: 12_000,
                    ..SMALL
                },
                Size {
                    sessions: 12_000,
                    rooms: 10_000,
                    ..SMALL
                },
            ),
            (
                "gateways",
                SMALL,
                Size {
                    gateways: 6,
                    ..SMALL
                },
            ),
            (
                "shards",
                Size {
                    shards: 16,
                    ..SMALL
                },
                Size {
                    shards: 256,
                    ..SMALL
                },
            ),
        ];
        let only = self.only.as_deref().unwrap_or_default();
        let rows = rows.into_iter().filter(|(what, ..)| what.contains(only));
        let mut result = GrowthResult { rows: Vec::new() };
        for (what, from, to) in rows {
            let (from, to) = (self.measure(from)?, self.measure(to)?);
            result.rows.push(Row {
                what,
                change_ratio: to.cpu_us_per_change / from.cpu_us_per_change,
                diff_ratio: to.cpu_us_per_diff / from.cpu_us_per_diff,
                from,
                to,
            });
        }
        ensure!(!result.rows.is_empty(), "no row is named so");
        report::print(self.manner.json, &result)
    }

    fn measure(&self, size: Size) -> Result<Measured> {
        let mut target = Target::own(&[]);
        (target.gateways, target.shards) = (size.gateways, size.shards);
        let mut stage = Stage::set(&target)?;
        let members = usize::from(self.members);
        let besides = size.sessions.saturating_sub(ROOMS * members);
        let crew = Crew {
            sessions: besides,
            first: BESIDES,
            members: (besides / (size.rooms - ROOMS)).max(1),
            per_process: PER_PROCESS,
            churn: 0.0,
            grpc: None,
            opens: None,
        };
        let _crew = crew.open(&mut stage, &self.manner)?;
        let load = Load {
            rooms: ROOMS,
            members,
            window: 64,
            rate: Some(self.rate),
            seconds: self.seconds,
            warm_up: Duration::from_secs(2),
            spin: false,
        };
        let mut crowd = Crowd::gather(&stage, &load, &self.manner)?;
        crowd.warm_up(&stage)?;
        let (service, redis) = crowd.rest(&stage, self.seconds)?;
        let result = crowd.measure(&stage)?;
        ensure!(
            result.lost == 0 && result.duplicated == 0,
            "{} lost, {} twice",
            result.lost,
            result.duplicated
        );
        let of_change = |idle: f64| idle * 1e6 / result.changes_per_s;
        let of_diff = |idle: f64| idle * 1e6 / result.diffs_per_s;
        let diffs_per_change = result.diffs_per_s / result.changes_per_s;
        let cpu_us_per_diff = result.cpu_us_per_diff - of_diff(service);
        let redis_cpu = result.redis_cpu_us_per_change - of_change(redis);
        Ok(Measured {
            size,
            cpu_us_per_change: cpu_us_per_diff * diffs_per_change + redis_cpu,
            cpu_us_per_diff,
            idle_cpu: service,
            foreign_cpu: result.foreign_cpu,
        })
    }
}
