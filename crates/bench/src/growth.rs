//! What a change and a diff cost while a cluster grows: the same fan-out, beside ten times the
//! sessions, a hundred times the rooms, on three times the gateways and sixteen times the shards.
//! Both sizes live at the same time, share Redis and etcd, and are measured in turns. Before and
//! after each turn all rest: what that takes, for heartbeats above all, is taken off.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    args::{Manner, Target, seconds},
    connect::{Crew, Worker},
    fanout::{FanoutResult, Load},
    report,
    stage::{Ground, Stage},
    turns::{self, Side, middle},
};

/// Clients of one process.
const PER_PROCESS: usize = 19_000;
/// Numbers of those who only stay begin here.
const BESIDES: usize = 1_000_000;
/// Rooms of the fan-out itself.
const ROOMS: usize = 20;
/// After a turn, before a rest counts: those who waited beat all at once.
const CALM: Duration = Duration::from_millis(500);
/// Those who wait for a longer turn, and for what is late at its end, would be taken for dead.
const LONGEST: Duration = Duration::from_secs(20);

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Growth {
    #[command(flatten)]
    manner: Manner,
    /// Diffs a second in each measurement.
    #[arg(long, default_value_t = 25_000.0, value_name = "DIFFS/S")]
    rate: f64,
    /// Instead: so many movers on their way at the same time, as fast as they can.
    #[arg(long, conflicts_with = "rate", value_parser = clap::value_parser!(u16).range(1..))]
    window: Option<u16>,
    /// Members of a room.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    members: u16,
    /// Turns of each size.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    turns: u16,
    /// How long a turn is, and a rest.
    #[arg(long, value_parser = seconds, default_value = "3", value_name = "SECONDS")]
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
struct GrowthResult {
    turns: u16,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    from: Measured,
    to: Measured,
    /// How many times as much: the middle of all pairs of turns.
    change_ratio: f64,
    diff_ratio: f64,
}

/// The middle of all turns.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    size: Size,
    /// Of the service and of Redis.
    cpu_us_per_change: f64,
    /// Of the service.
    cpu_us_per_diff: f64,
    diffs_per_s: f64,
    /// Cores of the service, without any change.
    idle_cpu: f64,
    foreign_cpu: f64,
    steal: f64,
}

const SMALL: Size = Size {
    sessions: 10_000,
    rooms: 100,
    gateways: 2,
    shards: 64,
};

/// What grows, from where, and how far.
fn rows() -> [(&'static str, Size, Size); 4] {
    [
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
    ]
}

impl Growth {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(
            !self.seconds.is_zero() && self.seconds <= LONGEST,
            "--seconds: a turn takes up to {} s",
            LONGEST.as_secs()
        );
        let only = self.only.as_deref().unwrap_or_default();
        let rows = rows().into_iter().filter(|(what, ..)| what.contains(only));
        let rows = rows
            .map(|(what, from, to)| self.row(what, from, to))
            .collect::<Result<Vec<_>>>()?;
        ensure!(!rows.is_empty(), "no row is named so");
        let turns = self.turns;
        report::print(self.manner.json, &GrowthResult { turns, rows })
    }

    fn row(&self, what: &'static str, from: Size, to: Size) -> Result<Row> {
        let ground = Ground::lay()?;
        // All who beat by themselves come first: opening them takes longer than others may wait.
        let mut small = self.start(&ground, "from", from)?;
        let mut large = self.start(&ground, "to", to)?;
        small.stage.knows(&large.stage);
        large.stage.knows(&small.stage);
        let load = self.load();
        let mut sides = [
            Side::gather("from", &small.stage, &load, &self.manner)?,
            Side::gather("to", &large.stage, &load, &self.manner)?,
        ];
        turns::warm_up(&mut sides)?;
        let [of_small, of_large] = self.take_turns(&mut sides)?;
        let ratio = |of: fn(&Cost) -> f64| {
            let pairs = of_small.iter().zip(&of_large);
            middle(pairs.map(|(small, large)| of(large) / of(small)))
        };
        let [small, large] = &sides;
        Ok(Row {
            what,
            change_ratio: ratio(|cost| cost.change),
            diff_ratio: ratio(|cost| cost.diff),
            from: measured(from, small, &of_small),
            to: measured(to, large, &of_large),
        })
    }

    /// A cluster, with all on it who only stay.
    fn start(&self, ground: &Rc<Ground>, name: &str, size: Size) -> Result<Cluster> {
        let mut target = Target::own(&[]);
        (target.gateways, target.shards) = (size.gateways, size.shards);
        let mut stage = Stage::start(ground, name, &target)?;
        let besides = size
            .sessions
            .saturating_sub(ROOMS * usize::from(self.members));
        let crew = Crew {
            sessions: besides,
            first: BESIDES,
            members: (besides / (size.rooms - ROOMS)).max(1),
            per_process: PER_PROCESS,
            churn: 0.0,
            grpc: None,
            opens: None,
        };
        let crew = crew.open(&mut stage, &self.manner)?;
        Ok(Cluster { _crew: crew, stage })
    }

    fn load(&self) -> Load {
        Load {
            rooms: ROOMS,
            members: usize::from(self.members),
            // Of no effect beside a rate.
            window: self.window.map_or(1, usize::from),
            rate: self.window.is_none().then_some(self.rate),
            seconds: self.seconds,
            warm_up: Duration::from_secs(2),
            spin: false,
        }
    }

    /// What each turn of each side cost.
    fn take_turns(&self, sides: &mut [Side<'_>; 2]) -> Result<[Vec<Cost>; 2]> {
        let mut costs = [Vec::new(), Vec::new()];
        let bar = report::bar(2 * u64::from(self.turns), "measuring");
        let mut before = self.rest(sides)?;
        for turn in 0..self.turns.into() {
            for at in turns::order(turn, sides.len()) {
                sides[at].turn()?;
                let after = self.rest(sides)?;
                let idle = before[at].between(after[at]);
                costs[at].extend(sides[at].turns.last().map(|turn| Cost::of(turn, idle)));
                before = after;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(costs)
    }

    /// What each spends while nobody moves on either.
    fn rest(&self, sides: &mut [Side<'_>; 2]) -> Result<[Idle; 2]> {
        turns::rest(sides, CALM)?;
        let begun = Instant::now();
        let before = sides.each_ref().map(|side| side.stage.look());
        turns::rest(sides, self.seconds)?;
        let after = sides.each_ref().map(|side| side.stage.look());
        let took = begun.elapsed().as_secs_f64();
        Ok([0, 1].map(|at| {
            let spent = after[at].since(&before[at]);
            Idle {
                service: spent.service / took,
                redis: spent.redis / took,
            }
        }))
    }
}

/// A cluster and all on it who only stay: they beat by themselves.
struct Cluster {
    // Before the stage: clients go first.
    _crew: Vec<Worker>,
    stage: Stage,
}

/// Cores, without any change: of a service, and of the Redis that both use.
#[derive(Debug, Clone, Copy)]
struct Idle {
    service: f64,
    redis: f64,
}

impl Idle {
    /// As if the machine had changed evenly from one to the other.
    fn between(self, other: Self) -> Self {
        Self {
            service: f64::midpoint(self.service, other.service),
            redis: f64::midpoint(self.redis, other.redis),
        }
    }
}

/// What a turn cost, less what would have been spent without it.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Processor time of the service and of Redis, µs.
    change: f64,
    /// Of the service.
    diff: f64,
    idle: Idle,
}

impl Cost {
    fn of(turn: &FanoutResult, idle: Idle) -> Self {
        let diff = turn.cpu_us_per_diff - idle.service * 1e6 / turn.diffs_per_s;
        let redis = turn.redis_cpu_us_per_change - idle.redis * 1e6 / turn.changes_per_s;
        let diffs_per_change = turn.diffs_per_s / turn.changes_per_s;
        Self {
            change: diff * diffs_per_change + redis,
            diff,
            idle,
        }
    }
}

fn measured(size: Size, side: &Side<'_>, costs: &[Cost]) -> Measured {
    let cost = |of: fn(&Cost) -> f64| middle(costs.iter().map(of));
    Measured {
        size,
        cpu_us_per_change: cost(|cost| cost.change),
        cpu_us_per_diff: cost(|cost| cost.diff),
        diffs_per_s: side.middle(|turn| turn.diffs_per_s),
        idle_cpu: cost(|cost| cost.idle.service),
        foreign_cpu: side.middle(|turn| turn.foreign_cpu),
        steal: side.middle(|turn| turn.steal),
    }
}
