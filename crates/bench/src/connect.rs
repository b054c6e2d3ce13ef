//! Many sessions: opened, held beating, and what each costs.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    args::{Manner, Spoken, Target, seconds},
    report::{self, Spread, Times},
    stage::Stage,
    worker::{Done, Order, Part},
};

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    manner: Manner,
    /// Sessions to open.
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Members of a room; each watches its own.
    #[arg(long, default_value_t = 100)]
    members: usize,
    /// The memory of a connection is the slope from here to all sessions.
    #[arg(long, default_value_t = 1000)]
    from: usize,
    /// Clients in one process; a process may open so many files only.
    #[arg(long, default_value_t = 19_000)]
    per_process: usize,
    /// Over gRPC instead of WebSockets, with so many streams on a connection; a session is a
    /// stream.
    #[arg(long, value_name = "STREAMS")]
    grpc: Option<usize>,
    /// Sessions to open in a second; as fast as they can be without it, some at a time.
    #[arg(long, value_name = "SESSIONS/S")]
    opens: Option<f64>,
    /// How long to hold them.
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "SECONDS")]
    hold: Duration,
    /// Sessions a second that come and go meanwhile.
    #[arg(long, default_value_t = 0.0)]
    churn: f64,
}

#[derive(Debug, Serialize)]
struct ConnectResult {
    sessions: usize,
    encoding: Spoken,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_streams: Option<usize>,
    errors: usize,
    false_offline: usize,
    churned: usize,
    connect_ms: Spread,
    opened_per_s: f64,
    kib_per_connection: f64,
    /// Cores, while they were held.
    service_cpu: f64,
    redis_cpu: f64,
    generator_cpu: f64,
    foreign_cpu: f64,
    steal: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Connect {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(self.sessions > 0 && self.per_process > 0, "nothing to do");
        ensure!(self.grpc != Some(0), "--grpc: at least one stream");
        ensure!(
            self.grpc.is_none() || self.churn == 0.0,
            "--churn is for WebSockets"
        );
        let mut stage = Stage::set(&self.target)?;
        let mut workers = Crew {
            sessions: self.sessions,
            first: 0,
            members: self.members,
            per_process: self.per_process,
            churn: self.churn,
            grpc: self.grpc,
            opens: self.opens,
        }
        .start(&mut stage, &self.manner)?;
        let few = self.from.min(self.sessions / 2).max(1);
        let bar = report::bar(self.sessions as u64, "connecting");
        all(&mut workers, |worker| {
            Some(Order::Open(worker.share(few, self.sessions)))
        })?;
        bar.set_position(few as u64);
        // What a first connection sets up is not a connection's.
        std::thread::sleep(Duration::from_secs(1));
        let (begun, small) = (Instant::now(), stage.look().gateways.rss());
        let opened = all(&mut workers, |worker| Some(Order::Open(worker.count)))?;
        let opening = begun.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let (begun, before) = (Instant::now(), stage.look());
        let hold = self.hold.as_secs_f64();
        let held = all(&mut workers, |_| Some(Order::Churn(hold)))?;
        let after = stage.look();
        let (spent, took) = (after.since(&before), begun.elapsed().as_secs_f64());
        let mut times = Times::new()?;
        for us in opened.iter().flat_map(|done| &done.connect_us) {
            times.add(Duration::from_micros(u64::from(*us)));
        }
        let sum = |of: fn(&Done) -> usize| held.iter().map(of).sum::<usize>();
        let growth = before.gateways.rss().saturating_sub(small) as f64;
        report::print(
            self.manner.json,
            &ConnectResult {
                sessions: sum(|done| done.open),
                encoding: self.manner.encoding,
                grpc_streams: self.grpc,
                errors: sum(|done| done.errors),
                false_offline: sum(|done| done.false_offline),
                churned: sum(|done| done.churned),
                connect_ms: times.spread(),
                opened_per_s: (self.sessions - few) as f64 / opening,
                kib_per_connection: growth / 1024.0 / (self.sessions - few).max(1) as f64,
                service_cpu: spent.service / took,
                redis_cpu: spent.redis / took,
                generator_cpu: spent.generator / took,
                foreign_cpu: spent.foreign / took,
                steal: spent.steal / took,
                why: held.into_iter().find_map(|done| done.why),
            },
        )
    }
}

/// Clients that only stay, spread over as many processes as they need.
pub(crate) struct Crew {
    pub(crate) sessions: usize,
    /// The number of the first one.
    pub(crate) first: usize,
    /// Members of a room.
    pub(crate) members: usize,
    pub(crate) per_process: usize,
    /// Sessions a second that come and go besides.
    pub(crate) churn: f64,
    /// Streams on a connection, if they speak gRPC.
    pub(crate) grpc: Option<usize>,
    /// Sessions to open in a second.
    pub(crate) opens: Option<f64>,
}

impl Crew {
    fn start(&self, stage: &mut Stage, manner: &Manner) -> Result<Vec<Worker>> {
        let count = self.sessions.div_ceil(self.per_process);
        let share = self.sessions.div_ceil(count);
        let firsts = (0..count).map(|n| n * share);
        firsts
            .map(|first| {
                let part = Part {
                    servers: stage.servers.clone(),
                    encoding: manner.encoding,
                    tenant: stage.tenant.clone(),
                    first: self.first + first,
                    members: self.members,
                    churn: self.churn / count as f64,
                    grpc: self.grpc,
                    opens: self.opens.map(|opens| opens / count as f64),
                };
                let worker = Worker::start(&part, share.min(self.sessions - first))?;
                stage.worker(worker.child.id());
                Ok(worker)
            })
            .collect()
    }

    /// Opens all of them. They beat until what is answered is dropped.
    pub(crate) fn open(&self, stage: &mut Stage, manner: &Manner) -> Result<Vec<Worker>> {
        if self.sessions == 0 {
            return Ok(Vec::new());
        }
        let mut workers = self.start(stage, manner)?;
        let opened = all(&mut workers, |worker| Some(Order::Open(worker.count)))?;
        let open: usize = opened.iter().map(|done| done.open).sum();
        let why = opened.into_iter().find_map(|done| done.why);
        ensure!(
            open == self.sessions,
            "only {open} sessions could be opened: {why:?}"
        );
        Ok(workers)
    }
}

/// A process with a part of the clients.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    count: usize,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(part: &Part, count: usize) -> Result<Self> {
        let binary = std::env::current_exe().context("where this binary is")?;
        let mut child = Command::new(binary)
            .args(["bench", "worker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a worker")?;
        let mut orders = child.stdin.take().context("no input")?;
        let answers = BufReader::new(child.stdout.take().context("no output")?).lines();
        writeln!(orders, "{}", serde_json::to_string(part)?)?;
        Ok(Self {
            child,
            orders,
            answers,
            count,
        })
    }

    /// Its part of so many out of all.
    fn share(&self, of: usize, all: usize) -> usize {
        (of * self.count / all).max(1)
    }
}

/// Gives all workers an order, then waits for all answers.
fn all(workers: &mut [Worker], order: impl Fn(&Worker) -> Option<Order>) -> Result<Vec<Done>> {
    for worker in workers.iter_mut() {
        if let Some(order) = order(worker) {
            writeln!(worker.orders, "{}", serde_json::to_string(&order)?)?;
        }
    }
    let answers = workers.iter_mut().map(|worker| {
        let answer = worker.answers.next().context("a worker ended")??;
        serde_json::from_str(&answer).context("what a worker says")
    });
    answers.collect()
}
