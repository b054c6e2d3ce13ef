//! Joins and leaves in rooms, and how they reach the members. Movers go in and out of a room, each
//! waiting until all members have seen it; members watch. Closed loop: as many movers as the
//! window, as fast as they can. Open loop: at a rate.

mod actor;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use self::actor::{Fan, Role};
use crate::{
    args::{Manner, Spoken, Target, seconds},
    engine::{Engine, Waiting},
    raw::{Bareness, RawResult, Turns},
    report::{self, Spread},
    speech::Hello,
    stage::{Spent, Stage},
};

/// What may take this long is broken.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long deliveries are waited for at the end.
const LAST: Duration = Duration::from_secs(10);
/// Clients that connect at the same time.
const AT_ONCE: usize = 100;
/// How often the service and bare servers take turns, and what each needs to be warm again.
const TURNS: u32 = 4;
const AGAIN_WARM: Duration = Duration::from_secs(1);

/// The shape of the load.
#[derive(Debug, Clone, Args)]
pub(crate) struct Load {
    /// Rooms.
    #[arg(long, default_value_t = 100)]
    pub(crate) rooms: usize,
    /// Members of each, spread over the gateways.
    #[arg(long, default_value_t = 100)]
    pub(crate) members: usize,
    /// Movers that are on their way at the same time.
    #[arg(long, default_value_t = 64)]
    pub(crate) window: usize,
    /// Instead: diffs a second, whatever comes of it.
    #[arg(long, value_name = "DIFFS/S")]
    pub(crate) rate: Option<f64>,
    /// How long to measure.
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "SECONDS")]
    pub(crate) seconds: Duration,
    /// How long to warm up before.
    #[arg(long, value_parser = seconds, default_value = "2", value_name = "SECONDS")]
    pub(crate) warm_up: Duration,
    /// Poll without a pause: costs a core, and takes the generator's own wait out of the times.
    #[arg(long)]
    pub(crate) spin: bool,
}

/// Whom to measure, under what load.
#[derive(Debug, Args)]
pub(crate) struct Scene {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) manner: Manner,
    #[command(flatten)]
    pub(crate) load: Load,
}

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Fanout {
    #[command(flatten)]
    scene: Scene,
    /// Leave out the bare server.
    #[arg(long)]
    no_raw: bool,
}

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Failover {
    #[command(flatten)]
    scene: Scene,
    /// The dispatcher of the own cluster to kill, half-way.
    #[arg(long, default_value = "dispatcher-0")]
    kill: String,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct FanoutResult {
    rooms: usize,
    members: usize,
    encoding: Spoken,
    polling: &'static str,
    pub(crate) diffs_per_s: f64,
    pub(crate) changes_per_s: f64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    /// States in place of diffs, to clients that did not keep up.
    resyncs: u64,
    diffs_per_frame: f64,
    pub(crate) cpu_us_per_diff: f64,
    cpu_us_per_frame: f64,
    pub(crate) redis_cpu_us_per_change: f64,
    /// Until a member has read it.
    latency_ms: Spread,
    /// Until the system had it for the member, in an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    arrival_ms: Option<Spread>,
    /// To the last member.
    last_ms: Spread,
    /// Cores that the generator took, and that nobody of us did.
    generator_cpu: f64,
    pub(crate) foreign_cpu: f64,
    pub(crate) steal: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<RawResult>,
    /// The longest time without any diff.
    gap_ms: f64,
}

impl Fanout {
    pub(crate) fn run(self) -> Result<()> {
        let Scene {
            target,
            manner,
            load,
        } = &self.scene;
        let stage = Stage::set(target)?;
        let mut crowd = Crowd::gather(&stage, load, manner)?;
        crowd.warm_up(&stage)?;
        let result = match self.no_raw {
            true => crowd.measure(&stage)?,
            false => beside_bare(&mut crowd, &stage, target)?,
        };
        report::print(manner.json, &result)
    }
}

/// The service and bare servers in turns: the machine is never the same for long.
fn beside_bare(crowd: &mut Crowd<'_>, stage: &Stage, target: &Target) -> Result<FanoutResult> {
    let (load, manner) = (crowd.load, crowd.manner);
    let mut bare = Turns::start(
        load,
        manner,
        Bareness {
            diffs: crowd.diffs_per_frame().max(1.0),
            servers: stage.servers.len(),
            threads: target.threads(),
        },
    )?;
    let part = load.seconds / TURNS;
    crowd.begin();
    for _ in 0..TURNS {
        crowd.run(AGAIN_WARM)?;
        crowd.stretch(stage, part, || Ok(()))?;
        crowd.finish()?;
        bare.turn(AGAIN_WARM, part)?;
    }
    let mut result = crowd.result();
    result.raw = Some(bare.result());
    Ok(result)
}

impl Failover {
    pub(crate) fn run(self) -> Result<()> {
        let Scene {
            target,
            manner,
            load,
        } = &self.scene;
        let stage = Stage::set(target)?;
        ensure!(
            !self.kill.starts_with("gateway"),
            "the clients of a gateway would be gone with it: see `bench storm`"
        );
        let mut crowd = Crowd::gather(&stage, load, manner)?;
        crowd.warm_up(&stage)?;
        crowd.begin();
        crowd.stretch(&stage, load.seconds, || stage.kill(&self.kill))?;
        crowd.finish()?;
        report::print(manner.json, &crowd.result())
    }
}

/// Members and movers of one service, ready to run.
pub(crate) struct Crowd<'a> {
    load: &'a Load,
    manner: &'a Manner,
    engine: Engine,
    fan: Fan,
    driver: Driver,
    /// For how long it was measured, and what that took.
    measured: Duration,
    spent: Spent,
}

impl<'a> Crowd<'a> {
    /// Connects everybody.
    pub(crate) fn gather(stage: &Stage, load: &'a Load, manner: &'a Manner) -> Result<Self> {
        ensure!(
            load.rooms > 0 && load.members > 0 && load.window > 0,
            "nothing to do"
        );
        let mut crowd = Self {
            load,
            manner,
            engine: Engine::new(manner.encoding, Waiting::Millisecond)?,
            fan: Fan::new(load)?,
            driver: Driver::new(load),
            measured: Duration::ZERO,
            spent: Spent::default(),
        };
        // In a closed loop it is not time that is measured, and this takes some.
        if load.rate.is_some() {
            crowd.engine.note_arrivals();
        }
        fill(stage, load, &mut crowd.engine, &mut crowd.fan)?;
        Ok(crowd)
    }

    /// From now on at so many diffs a second.
    pub(crate) fn at(&mut self, rate: f64) {
        self.driver.every = every(rate, self.load.members);
    }

    /// Lets time pass: everybody beats.
    pub(crate) fn idle(&mut self, time: Duration) -> Result<()> {
        let failed = |fan: &mut Fan| fan.failed.is_some();
        self.engine.run_until(&mut self.fan, time, failed)?;
        self.fan.check()
    }

    /// Waits until the service has settled, and runs for as long as it takes to be warm.
    pub(crate) fn warm_up(&mut self, stage: &Stage) -> Result<()> {
        while !stage.is_settled()? {
            self.idle(Duration::from_secs(1))?;
        }
        if self.load.spin {
            self.engine.waits(Waiting::Spinning);
        }
        self.fan.clear();
        self.fan.measure(true);
        self.run(self.load.warm_up)?;
        self.fan.measure(false);
        Ok(())
    }

    fn run(&mut self, time: Duration) -> Result<()> {
        self.driver.run(&mut self.engine, &mut self.fan, time)
    }

    /// Runs, and waits for what is on its way.
    pub(crate) fn measure(&mut self, stage: &Stage) -> Result<FanoutResult> {
        self.begin();
        self.stretch(stage, self.load.seconds, || Ok(()))?;
        self.finish()?;
        Ok(self.result())
    }

    fn begin(&mut self) {
        self.fan.clear();
        (self.measured, self.spent) = (Duration::ZERO, Spent::default());
    }

    /// Runs for so long, and adds to what was measured; `half_way` is called once.
    fn stretch(
        &mut self,
        stage: &Stage,
        time: Duration,
        half_way: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.fan.measure(true);
        let (begun, before) = (Instant::now(), stage.look());
        self.run(time / 2)?;
        half_way()?;
        self.run(time / 2)?;
        self.measured += begun.elapsed();
        self.spent += stage.look().since(&before);
        self.fan.measure(false);
        Ok(())
    }

    /// Waits for what is on its way.
    fn finish(&mut self) -> Result<()> {
        self.engine
            .run_until(&mut self.fan, LAST, |fan| fan.is_quiet())?;
        self.fan.check()
    }

    fn diffs_per_frame(&self) -> f64 {
        let counted = &self.fan.counts;
        counted.diffs.max(1) as f64 / counted.frames.max(1) as f64
    }

    fn result(&self) -> FanoutResult {
        let (load, fan, spent) = (self.load, &self.fan, self.spent);
        let (counted, took) = (&fan.counts, self.measured.as_secs_f64());
        let diffs = counted.diffs.max(1) as f64;
        let frames = counted.frames.max(1) as f64;
        FanoutResult {
            rooms: load.rooms,
            members: load.members,
            encoding: self.manner.encoding,
            polling: if load.spin { "spinning" } else { "1 ms" },
            diffs_per_s: counted.diffs as f64 / took,
            changes_per_s: counted.changes as f64 / took,
            lost: fan.missing(),
            duplicated: counted.duplicated,
            resyncs: counted.resyncs,
            diffs_per_frame: diffs / frames,
            cpu_us_per_diff: spent.service * 1e6 / diffs,
            cpu_us_per_frame: spent.service * 1e6 / frames,
            redis_cpu_us_per_change: spent.redis * 1e6 / counted.changes.max(1) as f64,
            latency_ms: fan.latency.spread(),
            arrival_ms: (fan.arrival.count() > 0).then(|| fan.arrival.spread()),
            last_ms: fan.last.spread(),
            generator_cpu: spent.generator / took,
            foreign_cpu: spent.foreign / took,
            steal: spent.steal / took,
            raw: None,
            gap_ms: fan.gap.as_secs_f64() * 1000.0,
        }
    }
}

/// Connects everybody, and waits until all members know their room.
fn fill(stage: &Stage, load: &Load, engine: &mut Engine, fan: &mut Fan) -> Result<()> {
    let conn = conn_now();
    let members = (0..load.rooms * load.members).map(|n| {
        // Neighbours in a room are on different gateways.
        let room = n / load.members;
        (format!("m{n}"), Role::Member { room, place: n }, n)
    });
    let movers = (0..fan.movers.len()).map(|n| (format!("x{n}"), Role::Mover(n), n));
    let all: Vec<_> = members.chain(movers).collect();
    let bar = report::bar(all.len() as u64, "connecting");
    for (user, role, n) in all {
        let mut hello = Hello {
            conn,
            ..Hello::default()
        };
        if let Role::Member { room, .. } = &role {
            hello.rooms = vec![room_name(*room)];
            hello.watch = vec![format!("room:{}", room_name(*room))];
        }
        let id = engine.open(stage.server(n)?, &stage.token(&user), &hello)?;
        fan.add(id, role);
        bar.inc(1);
        let few = |fan: &mut Fan| fan.connecting() < AT_ONCE || fan.failed.is_some();
        ensure!(
            engine.run_until(fan, PATIENCE, few)?,
            "the server does not answer"
        );
        fan.check()?;
    }
    let ready = |fan: &mut Fan| fan.is_ready() || fan.failed.is_some();
    ensure!(
        engine.run_until(fan, PATIENCE, ready)?,
        "not all sessions were opened"
    );
    bar.finish_and_clear();
    fan.check()
}

pub(crate) fn room_name(room: usize) -> String {
    format!("r{room}")
}

/// A connection number: the clock, as clients use.
pub(crate) fn conn_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Between two changes, if each is so many diffs.
fn every(rate: f64, members: usize) -> Option<Duration> {
    let changes = rate / members as f64;
    Some(Duration::from_secs_f64(1.0 / changes.max(1e-3)))
}

/// Sends movers on their way.
struct Driver {
    /// Between two changes; `None` in a closed loop.
    every: Option<Duration>,
    next: Instant,
    idle: VecDeque<usize>,
}

impl Driver {
    fn new(load: &Load) -> Self {
        Self {
            every: load.rate.and_then(|rate| every(rate, load.members)),
            next: Instant::now(),
            idle: VecDeque::new(),
        }
    }

    fn run(&mut self, engine: &mut Engine, fan: &mut Fan, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        self.next = self.next.max(Instant::now());
        while Instant::now() < until {
            self.idle.extend(fan.idle.drain(..));
            self.go(engine, fan)?;
            engine.turn(fan)?;
            fan.check()?;
        }
        Ok(())
    }

    fn go(&mut self, engine: &mut Engine, fan: &mut Fan) -> Result<()> {
        let now = Instant::now();
        while let Some(mover) = self.idle.front().copied() {
            if let Some(every) = self.every {
                if self.next > now {
                    return Ok(());
                }
                self.next += every;
            }
            self.idle.pop_front();
            let (id, joins, room) = fan.go(mover).context("a mover is gone")?;
            let (speech, room) = (engine.speech(), room_name(room));
            let frame = if joins {
                speech.join(&room)
            } else {
                speech.part(&room)
            };
            engine.send(id, &frame);
        }
        Ok(())
    }
}
