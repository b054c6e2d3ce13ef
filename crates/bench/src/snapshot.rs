//! Many subscribe to one large room at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    args::{Manner, Spoken, Target},
    engine::{Actor, Engine, Id, Waiting},
    fanout::conn_now,
    report::{self, Spread, Times},
    speech::{Heard, Hello},
    stage::Stage,
};

const PATIENCE: Duration = Duration::from_secs(120);

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    manner: Manner,
    /// Who is in the room.
    #[arg(long, default_value_t = 10_000)]
    members: usize,
    /// Who subscribes.
    #[arg(long, default_value_t = 1000)]
    subscribers: usize,
}

#[derive(Debug, Serialize)]
struct SnapshotResult {
    members: usize,
    subscribers: usize,
    encoding: Spoken,
    /// Until each had the room.
    state_ms: Spread,
    all_ms: f64,
    members_told: usize,
    service_cpu_s: f64,
    redis_cpu_s: f64,
}

impl Snapshot {
    pub(crate) fn run(self) -> Result<()> {
        let stage = Stage::set(&self.target)?;
        let mut engine = Engine::new(self.manner.encoding, Waiting::Millisecond)?;
        let mut storm = Storm {
            opened: 0,
            failed: None,
            asked: None,
            times: Times::new()?,
            members: 0,
        };
        let bar = report::bar((self.members + self.subscribers) as u64, "connecting");
        let mut subscribers = Vec::new();
        for n in 0..self.members + self.subscribers {
            let is_member = n < self.members;
            let hello = Hello {
                conn: conn_now(),
                rooms: if is_member {
                    vec!["hall".into()]
                } else {
                    Vec::new()
                },
                ..Hello::default()
            };
            let id = engine.open(stage.server(n)?, &stage.token(&format!("m{n}")), &hello)?;
            if !is_member {
                subscribers.push(id);
            }
            bar.inc(1);
            let few = |storm: &mut Storm| storm.opened + 100 > n || storm.failed.is_some();
            ensure!(
                engine.run_until(&mut storm, PATIENCE, few)?,
                "the server does not answer"
            );
            ensure!(
                storm.failed.is_none(),
                "a client was lost: {:?}",
                storm.failed
            );
        }
        bar.finish_and_clear();
        let all = self.members + self.subscribers;
        let ready = engine.run_until(&mut storm, PATIENCE, |storm| storm.opened == all)?;
        ensure!(ready, "not all sessions were opened");
        let (begun, before, frame) = (
            Instant::now(),
            stage.look(),
            engine.speech().watch("room:hall"),
        );
        storm.asked = Some(begun);
        for id in &subscribers {
            engine.send(*id, &frame);
        }
        let count = subscribers.len() as u64;
        let told = engine.run_until(&mut storm, PATIENCE, |storm| storm.times.count() >= count)?;
        let (took, spent) = (begun.elapsed(), stage.look().since(&before));
        ensure!(told, "{} of {count} had the room", storm.times.count());
        report::print(
            self.manner.json,
            &SnapshotResult {
                members: self.members,
                subscribers: self.subscribers,
                encoding: self.manner.encoding,
                state_ms: storm.times.spread(),
                all_ms: took.as_secs_f64() * 1000.0,
                members_told: storm.members,
                service_cpu_s: spent.service,
                redis_cpu_s: spent.redis,
            },
        )
    }
}

struct Storm {
    opened: usize,
    failed: Option<String>,
    asked: Option<Instant>,
    times: Times,
    members: usize,
}

impl Actor for Storm {
    fn opened(&mut self, _: Id, _: Duration) {
        self.opened += 1;
    }

    fn heard(&mut self, _: Id, heard: Heard, now: Instant) {
        match (heard, self.asked) {
            (Heard::State { members, complete }, Some(asked)) if complete => {
                self.times.add(now - asked);
                self.members = self.members.max(members);
            }
            (Heard::Error(code), _) => self.failed = Some(code),
            _ => {}
        }
    }

    fn closed(&mut self, _: Id, why: String) {
        self.failed = Some(why);
    }
}
