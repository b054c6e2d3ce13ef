//! A part of the clients of `connect`, in a process of its own: a process may open so many files
//! only. Orders come as lines on standard input, answers go as lines to standard output.

use std::{
    io::BufRead,
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    args::Spoken,
    engine::{Actor, Engine, Id, Waiting},
    fanout::{conn_now, room_name},
    report,
    speech::{Heard, Hello, Line},
};

/// Sessions that are being opened at the same time.
const AT_ONCE: usize = 64;

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
    let (orders, waiting) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if let Ok(order) = serde_json::from_str(&line)
                && orders.send(order).is_err()
            {
                return;
            }
        }
    });
    let mut engine = Engine::new(part.encoding, Waiting::Millisecond)?;
    let mut crowd = Crowd::default();
    let mut clients = Clients { part, opened: 0 };
    loop {
        match waiting.try_recv() {
            Ok(Order::Open(count)) => clients.open(&mut engine, &mut crowd, count)?,
            Ok(Order::Churn(seconds)) => {
                clients.churn(&mut engine, &mut crowd, Duration::from_secs_f64(seconds))?;
            }
            Err(mpsc::TryRecvError::Empty) => {
                engine.turn(&mut crowd)?;
                continue;
            }
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
        report::say(&serde_json::to_string(&crowd.done)?);
        crowd.done.connect_us.clear();
    }
}

struct Clients {
    part: Part,
    opened: usize,
}

impl Clients {
    fn open_one(&self, engine: &mut Engine, user: &str, n: usize) -> Result<Id> {
        let room = room_name(n / self.part.members.max(1));
        let hello = Hello {
            conn: conn_now(),
            watch: vec![format!("room:{room}")],
            rooms: vec![room],
        };
        let servers = &self.part.servers;
        let server = servers.get(n % servers.len().max(1)).context("no server")?;
        let token = format!("dev:{}:{user}", self.part.tenant);
        engine.open(*server, &token, &hello)
    }

    fn open(&mut self, engine: &mut Engine, crowd: &mut Crowd, count: usize) -> Result<()> {
        while self.opened < count {
            let n = self.part.first + self.opened;
            self.open_one(engine, &format!("m{n}"), n)?;
            self.opened += 1;
            crowd.pending += 1;
            while crowd.pending >= AT_ONCE {
                engine.turn(crowd)?;
            }
        }
        while crowd.pending > 0 {
            engine.turn(crowd)?;
        }
        Ok(())
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
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.done.connect_us.push(us);
        if !self.passing.iter().any(|(passing, _)| *passing == id) {
            self.done.open += 1;
        }
    }

    fn line(&mut self, _: Id, line: Line<'_>, _: Instant) {
        if matches!(line, Line::Leave(user) if user.starts_with('m')) {
            self.done.false_offline += 1;
        }
    }

    fn heard(&mut self, _: Id, heard: Heard, _: Instant) {
        if let Heard::Error(code) = heard {
            self.done.errors += 1;
            self.done.why = Some(code);
        }
    }

    fn closed(&mut self, id: Id, why: String) {
        self.pending = self.pending.saturating_sub(1);
        if self.passing.iter().any(|(passing, _)| *passing == id) {
            self.passing.retain(|(passing, _)| *passing != id);
        }
        self.done.errors += 1;
        self.done.why = Some(why);
    }
}
