//! All clients of a gateway that is killed come back to the others at once. Nobody else is to be
//! told anything of it, and nothing is to be read from Redis for the states that they are shown.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    args::{Manner, Spoken, Target},
    engine::{Actor, Engine, Id, Waiting},
    fanout::{conn_now, room_name},
    report::{self, Spread, Times},
    speech::{Heard, Hello, Line},
    stage::Stage,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// How long those who watch are listened to when all are back: longer than a dead gateway's
/// deadline, after which whoever was lost would be told.
const AFTER: Duration = Duration::from_secs(35);

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct StormOf {
    #[command(flatten)]
    manner: Manner,
    /// Clients of the gateway that is killed.
    #[arg(long, default_value_t = 19_000)]
    clients: usize,
    /// Members of a room; each watches its own.
    #[arg(long, default_value_t = 100)]
    members: usize,
    /// Gateways besides.
    #[arg(long, default_value_t = 2)]
    others: usize,
    /// Clients that connect at the same time.
    #[arg(long, default_value_t = 256)]
    at_once: usize,
}

#[derive(Debug, Serialize)]
struct StormResult {
    clients: usize,
    encoding: Spoken,
    /// From the kill until each had its session and the state of its room again.
    back_ms: Spread,
    /// Until all had.
    all_back_ms: f64,
    /// Lines about them that those who watch from elsewhere were told.
    diffs: u64,
    errors: u64,
    /// Calls of all other nodes to the store meanwhile, by what they ask for.
    store_calls: BTreeMap<String, u64>,
    service_cpu_s: f64,
    redis_cpu_s: f64,
    generator_cpu_s: f64,
}

impl StormOf {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(
            self.clients > 0 && self.members > 0 && self.others > 0 && self.at_once > 0,
            "nothing to do"
        );
        let mut target = Target::own(&[]);
        target.gateways = 1 + self.others;
        let stage = Stage::set(&target)?;
        let mut engine = Engine::new(self.manner.encoding, Waiting::Millisecond)?;
        let mut storm = Storm::new()?;
        self.fill(&stage, &mut engine, &mut storm)?;
        while !stage.is_settled()? {
            engine.run_until(&mut storm, Duration::from_secs(1), |_| false)?;
        }
        storm.begin();
        let (calls, before) = (stage.store_calls()?, stage.look());
        stage.kill("gateway-0")?;
        let begun = Instant::now();
        storm.killed = Some(begun);
        self.come_back(&stage, &mut engine, &mut storm)?;
        let (took, after) = (begun.elapsed(), stage.look());
        let calls = stage.store_calls()?.since(&calls);
        engine.run_until(&mut storm, AFTER, |_| false)?;
        let spent = after.since(&before);
        let result = StormResult {
            clients: self.clients,
            encoding: self.manner.encoding,
            back_ms: storm.times.spread(),
            all_back_ms: took.as_secs_f64() * 1000.0,
            diffs: storm.diffs,
            errors: storm.errors,
            store_calls: calls,
            service_cpu_s: spent.service,
            redis_cpu_s: spent.redis,
            generator_cpu_s: spent.generator,
        };
        report::print(self.manner.json, &result)
    }

    /// The clients on the first gateway, and one who watches each room on another.
    fn fill(&self, stage: &Stage, engine: &mut Engine, storm: &mut Storm) -> Result<()> {
        let rooms = self.clients.div_ceil(self.members);
        let bar = report::bar((self.clients + rooms) as u64, "connecting");
        for n in 0..self.clients {
            self.open(stage, engine, storm, n, 0)?;
            bar.inc(1);
            self.wait(engine, storm, |storm| storm.pending < self.at_once)?;
        }
        for room in 0..rooms {
            let hello = Hello {
                conn: conn_now(),
                watch: vec![format!("room:{}", room_name(room))],
                ..Hello::default()
            };
            let token = stage.token(&format!("w{room}"));
            let id = engine.open(self.other(stage, room)?, &token, &hello)?;
            storm.add(id, Who::Watcher);
            bar.inc(1);
            self.wait(engine, storm, |storm| storm.pending < self.at_once)?;
        }
        self.wait(engine, storm, |storm| storm.pending == 0)?;
        bar.finish_and_clear();
        ensure!(storm.errors == 0, "not all could connect");
        Ok(())
    }

    fn other(&self, stage: &Stage, n: usize) -> Result<std::net::SocketAddr> {
        let server = stage.servers.get(1 + n % self.others);
        server.copied().context("no other gateway")
    }

    fn open(
        &self,
        stage: &Stage,
        engine: &mut Engine,
        storm: &mut Storm,
        n: usize,
        life: u64,
    ) -> Result<()> {
        let room = room_name(n / self.members);
        let hello = Hello {
            conn: conn_now() + life,
            watch: vec![format!("room:{room}")],
            rooms: vec![room],
        };
        let server = match life {
            0 => stage.server(0)?,
            _ => self.other(stage, n)?,
        };
        let id = engine.open(server, &stage.token(&format!("m{n}")), &hello)?;
        storm.add(id, Who::Client(n));
        Ok(())
    }

    fn wait(
        &self,
        engine: &mut Engine,
        storm: &mut Storm,
        done: impl Fn(&Storm) -> bool,
    ) -> Result<()> {
        let done = engine.run_until(storm, PATIENCE, |storm| done(storm))?;
        ensure!(done, "the server does not answer");
        Ok(())
    }

    /// Everybody comes back as soon as they notice, so many at once.
    fn come_back(&self, stage: &Stage, engine: &mut Engine, storm: &mut Storm) -> Result<()> {
        let by = Instant::now() + PATIENCE;
        let (mut returned, bar) = (0, report::bar(self.clients as u64, "coming back"));
        while returned < self.clients || storm.pending > 0 {
            ensure!(Instant::now() < by, "only {returned} came back");
            while storm.pending < self.at_once
                && let Some(n) = storm.lost.pop()
            {
                self.open(stage, engine, storm, n, 1)?;
                returned += 1;
                bar.inc(1);
            }
            engine.turn(storm)?;
        }
        bar.finish_and_clear();
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Who {
    Client(usize),
    Watcher,
}

/// Everybody.
struct Storm {
    who: Vec<Option<Who>>,
    /// Who has no session, or has not been shown its room.
    waiting: Vec<bool>,
    pending: usize,
    /// Clients whose gateway is gone.
    lost: Vec<usize>,
    killed: Option<Instant>,
    times: Times,
    diffs: u64,
    errors: u64,
}

impl Storm {
    fn new() -> Result<Self> {
        Ok(Self {
            who: Vec::new(),
            waiting: Vec::new(),
            pending: 0,
            lost: Vec::new(),
            killed: None,
            times: Times::new()?,
            diffs: 0,
            errors: 0,
        })
    }

    fn add(&mut self, id: Id, who: Who) {
        if self.who.len() <= id {
            self.who.resize(id + 1, None);
            self.waiting.resize(id + 1, false);
        }
        (self.who[id], self.waiting[id]) = (Some(who), true);
        self.pending += 1;
    }

    /// From now on it counts.
    fn begin(&mut self) {
        self.diffs = 0;
    }

    fn is_over(&mut self, id: Id) -> bool {
        let waited = std::mem::take(&mut self.waiting[id]);
        self.pending -= usize::from(waited);
        waited
    }
}

impl Actor for Storm {
    fn line(&mut self, id: Id, line: Line<'_>, _: Instant) {
        let (Line::Join(user) | Line::Leave(user) | Line::Update(user)) = line;
        let watches = matches!(self.who.get(id), Some(Some(Who::Watcher)));
        self.diffs += u64::from(watches && user.starts_with('m'));
    }

    fn heard(&mut self, id: Id, heard: Heard, now: Instant) {
        match heard {
            Heard::State { complete, .. } if complete => {
                if self.is_over(id)
                    && let Some(killed) = self.killed
                {
                    self.times.add(now - killed);
                }
            }
            Heard::Error(_) => self.errors += 1,
            _ => {}
        }
    }

    fn closed(&mut self, id: Id, _: String) {
        self.is_over(id);
        match (self.who[id].take(), self.killed) {
            (Some(Who::Client(n)), Some(_)) => self.lost.push(n),
            _ => self.errors += 1,
        }
    }
}
