//! A part of the clients of `connect`, in a process of its own: a process may open so many files
//! only. Orders come as lines on standard input, answers go as lines to standard output.

mod grpc;

use std::{
    io::BufRead,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::{
    args::Spoken,
    engine::{Actor, Engine, Id, Waiting},
    fanout::{conn_now, room_name},
    report,
    speech::{Heard, Hello, Line},
};

/// Sessions that are being opened at the same time.
const AT_ONCE: usize = 64;
/// What may take this long is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who the clients of a worker are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) encoding: Spoken,
    pub(crate) tenant: String,
    /// The number of the first one.
    pub(crate) first: usize,
    /// Members of a room.
    pub(crate) members: usize,
    /// Sessions a second that come and go besides.
    pub(crate) churn: f64,
    /// Streams on a connection, if they speak gRPC.
    pub(crate) grpc: Option<usize>,
    /// Sessions to open in a second.
    pub(crate) opens: Option<f64>,
}

impl Part {
    /// What the n-th client is to be.
    fn hello(&self, n: usize) -> Hello {
        let room = room_name(n / self.members.max(1));
        Hello {
            conn: conn_now(),
            watch: vec![format!("room:{room}")],
            rooms: vec![room],
        }
    }

    fn server(&self, n: usize) -> Result<SocketAddr> {
        let count = self.servers.len().max(1);
        self.servers.get(n % count).copied().context("no server")
    }

    fn token(&self, user: &str) -> String {
        format!("dev:{}:{user}", self.tenant)
    }

    /// How many of those to come may be there so long after the first of them.
    fn due(&self, since: Duration) -> usize {
        self.opens.map_or(usize::MAX, |opens| {
            (since.as_secs_f64() * opens) as usize + 1
        })
    }
}

/// What a worker is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Have so many sessions open, then answer.
    Open(usize),
    /// Let others come and go for so many seconds, then answer.
    Churn(f64),
}

/// What a worker answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) open: usize,
    pub(crate) errors: usize,
    /// Members that were told as gone.
    pub(crate) false_offline: usize,
    pub(crate) churned: usize,
    /// How long each session took since the last answer, µs.
    pub(crate) connect_us: Vec<u32>,
    pub(crate) why: Option<String>,
}

/// Serves until standard input ends.
pub(crate) fn run() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let part = lines.next().context("no part")??;
    let part: Part = serde_json::from_str(&part)?;
    drop(lines);
    let (orders, mut waiting) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if let Ok(order) = serde_json::from_str(&line)
                && orders.send(order).is_err()
            {
                return;
            }
        }
    });
    if let Some(streams) = part.grpc {
        return grpc::run(part, streams, waiting);
    }
    let mut engine = Engine::new(part.encoding, Waiting::Millisecond)?;
    let mut crowd = Crowd::default();
    let mut clients = Clients { part, opened: 0 };
    loop {
        match waiting.try_recv() {
            Ok(Order::Open(count)) => clients.open(&mut engine, &mut crowd, count)?,
            Ok(Order::Churn(seconds)) => {
                clients.churn(&mut engine, &mut crowd, Duration::from_secs_f64(seconds))?;
            }
            Err(TryRecvError::Empty) => {
                engine.turn(&mut crowd)?;
                continue;
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        crowd.done.say()?;
    }
}

impl Done {
    /// Answers.
    fn say(&mut self) -> Result<()> {
        report::say(&serde_json::to_string(self)?);
        self.connect_us.clear();
        Ok(())
    }

    fn opened(&mut self, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.connect_us.push(us);
    }

    fn heard(&mut self, line: Line<'_>) {
        if matches!(line, Line::Leave(user) if user.starts_with('m')) {
            self.false_offline += 1;
        }
    }

    fn failed(&mut self, why: String) {
        self.errors += 1;
        self.why = Some(why);
    }
}

struct Clients {
    part: Part,
    opened: usize,
}

fn settle(engine: &mut Engine, crowd: &mut Crowd, done: fn(&mut Crowd) -> bool) -> Result<()> {
    let done = engine.run_until(crowd, PATIENCE, done)?;
    ensure!(done, "{} sessions are not answered", crowd.pending);
    Ok(())
}

impl Clients {
    fn open_one(&self, engine: &mut Engine, user: &str, n: usize) -> Result<Id> {
        let (server, token) = (self.part.server(n)?, self.part.token(user));
        engine.open(server, &token, &self.part.hello(n))
    }

    fn open(&mut self, engine: &mut Engine, crowd: &mut Crowd, count: usize) -> Result<()> {
        let (begun, before) = (Instant::now(), self.opened);
        while self.opened < count {
            if self.opened - before >= self.part.due(begun.elapsed()) {
                engine.turn(crowd)?;
                continue;
            }
            let n = self.part.first + self.opened;
            self.open_one(engine, &format!("m{n}"), n)?;
            self.opened += 1;
            crowd.pending += 1;
            settle(engine, crowd, |crowd| crowd.pending < AT_ONCE)?;
        }
        settle(engine, crowd, |crowd| crowd.pending == 0)
    }

    fn churn(&self, engine: &mut Engine, crowd: &mut Crowd, time: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut coming = 0;
        while begun.elapsed() < time {
            let due = (begun.elapsed().as_secs_f64() * self.part.churn) as usize;
            while coming < due {
                let n = self.part.first + coming % self.opened.max(1);
                let id = self.open_one(engine, &format!("c{n}"), n)?;
                crowd.passing.push((id, Instant::now()));
                crowd.pending += 1;
                coming += 1;
            }
            // Each stays for a second.
            let over = |(_, since): &(Id, Instant)| since.elapsed() >= Duration::from_secs(1);
            for (id, _) in crowd.passing.extract_if(.., |passing| over(passing)) {
                engine.drop_client(id);
                crowd.done.churned += 1;
            }
            engine.turn(crowd)?;
        }
        for (id, _) in crowd.passing.drain(..) {
            engine.drop_client(id);
            crowd.done.churned += 1;
        }
        crowd.pending = 0;
        Ok(())
    }
}

/// What the clients hear.
#[derive(Default)]
struct Crowd {
    pending: usize,
    /// Clients that come and go.
    passing: Vec<(Id, Instant)>,
    done: Done,
}

impl Actor for Crowd {
    fn opened(&mut self, id: Id, took: Duration) {
        self.pending = self.pending.saturating_sub(1);
        self.done.opened(took);
        if !self.passing.iter().any(|(passing, _)| *passing == id) {
            self.done.open += 1;
        }
    }

    fn line(&mut self, _: Id, line: Line<'_>, _: Instant) {
        self.done.heard(line);
    }

    fn heard(&mut self, _: Id, heard: Heard, _: Instant) {
        if let Heard::Error(code) = heard {
            self.done.failed(code);
        }
    }

    fn closed(&mut self, id: Id, why: String) {
        self.pending = self.pending.saturating_sub(1);
        if self.passing.iter().any(|(passing, _)| *passing == id) {
            self.passing.retain(|(passing, _)| *passing != id);
        }
        self.done.failed(why);
    }
}
