//! What heartbeats cost, over connections and over HTTP: what the service and Redis spend while
//! there are beats, less what they spend without.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::{
    args::{Manner, Spoken, Target, seconds},
    engine::{Actor, Engine, Id, Waiting},
    fanout::conn_now,
    report,
    speech::{Heard, Hello},
    stage::{Spent, Stage},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Heartbeat {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    manner: Manner,
    /// Sessions that beat.
    #[arg(long, default_value_t = 1000)]
    sessions: usize,
    /// Beats a second, of all together.
    #[arg(long, default_value_t = 20_000.0)]
    rate: f64,
    /// Leave out beats over HTTP.
    #[arg(long)]
    no_http: bool,
    /// Beats in one HTTP request.
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// How long to measure each.
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "SECONDS")]
    seconds: Duration,
}

/// Seconds of processor time per million beats.
#[derive(Debug, Serialize)]
struct Cost {
    beats: u64,
    server_cpu_s_per_million: f64,
    redis_cpu_s_per_million: f64,
}

#[derive(Debug, Serialize)]
struct HeartbeatResult {
    sessions: usize,
    encoding: Spoken,
    #[serde(flatten)]
    connections: Cost,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<Cost>,
}

impl Heartbeat {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(self.sessions > 0 && self.batch > 0, "nothing to do");
        let stage = Stage::set(&self.target)?;
        let mut engine = Engine::new(self.manner.encoding, Waiting::Millisecond)?;
        let mut beats = Beats::default();
        for n in 0..self.sessions {
            let hello = Hello {
                conn: conn_now(),
                rooms: vec![format!("r{}", n / 100)],
                ..Hello::default()
            };
            let id = engine.open(stage.server(n)?, &stage.token(&format!("h{n}")), &hello)?;
            beats.ids.push(id);
            let few = |beats: &mut Beats| beats.opened + 100 > n || beats.failed.is_some();
            ensure!(
                engine.run_until(&mut beats, PATIENCE, few)?,
                "the server does not answer"
            );
        }
        let all = |beats: &mut Beats| beats.opened == beats.ids.len() || beats.failed.is_some();
        ensure!(
            engine.run_until(&mut beats, PATIENCE, all)?,
            "not all sessions were opened"
        );
        ensure!(
            beats.failed.is_none(),
            "a client was lost: {:?}",
            beats.failed
        );
        let idle = self.spend(&stage, || {
            engine
                .run_until(&mut beats, self.seconds, |_| false)
                .map(|_| 0)
        })?;
        let busy = self.spend(&stage, || self.beat(&mut engine, &mut beats))?;
        let http = match self.no_http {
            true => None,
            false => {
                let mut poster = Poster::new(&self, stage.server(0)?)?;
                // The first beat of a session opens it.
                poster.post(self.sessions as u64)?;
                Some(self.spend(&stage, || self.post(&mut poster))?)
            }
        };
        // Not before: what becomes of sessions whose connections break is not to be counted.
        drop(engine);
        report::print(
            self.manner.json,
            &HeartbeatResult {
                sessions: self.sessions,
                encoding: self.manner.encoding,
                connections: cost(&busy, &idle),
                http: http.map(|http| cost(&http, &idle)),
            },
        )
    }

    fn spend(&self, stage: &Stage, work: impl FnOnce() -> Result<u64>) -> Result<(u64, Spent)> {
        let before = stage.look();
        let beats = work()?;
        // What a beat sets off comes a little later.
        std::thread::sleep(Duration::from_millis(100));
        Ok((beats, stage.look().since(&before)))
    }

    fn beat(&self, engine: &mut Engine, beats: &mut Beats) -> Result<u64> {
        let (begun, before, frame) = (Instant::now(), beats.acks, engine.speech().heartbeat());
        let mut sent = 0;
        while begun.elapsed() < self.seconds {
            let due = (begun.elapsed().as_secs_f64() * self.rate) as usize;
            while sent < due {
                engine.send(beats.ids[sent % beats.ids.len()], &frame);
                sent += 1;
            }
            engine.turn(beats)?;
            ensure!(
                beats.failed.is_none(),
                "a client was lost: {:?}",
                beats.failed
            );
        }
        let all = before + sent as u64;
        let answered = engine.run_until(beats, PATIENCE, |beats| beats.acks >= all)?;
        ensure!(
            answered,
            "{} of {sent} beats were answered",
            beats.acks - before
        );
        Ok(sent as u64)
    }

    fn post(&self, poster: &mut Poster<'_>) -> Result<u64> {
        let (begun, before) = (Instant::now(), poster.sent);
        while begun.elapsed() < self.seconds {
            let due = (begun.elapsed().as_secs_f64() * self.rate) as u64;
            if before + due < poster.sent {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            poster.post(poster.sent + 1)?;
        }
        Ok(poster.sent - before)
    }
}

/// Beats of sessions without a connection, many in a request, by a service.
struct Poster<'a> {
    of: &'a Heartbeat,
    server: SocketAddr,
    stream: TcpStream,
    conn: u64,
    sent: u64,
    answer: Vec<u8>,
}

impl<'a> Poster<'a> {
    fn new(of: &'a Heartbeat, server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            of,
            server,
            stream,
            conn: conn_now(),
            sent: 0,
            answer: vec![0; 1 << 20],
        })
    }

    /// Posts whole requests until so many beats were sent; every one of them must be taken.
    fn post(&mut self, until: u64) -> Result<()> {
        let token = json!({
            "tenant": self.of.target.tenant, "role": "service", "join": ["*"], "rooms": ["*"],
        });
        while self.sent < until {
            let beats: Vec<_> = (0..self.of.batch)
                .map(|n| (self.sent as usize + n) % self.of.sessions)
                .map(|n| json!({ "user": format!("p{n}"), "device": "d", "conn": self.conn, "rooms": ["r0"] }))
                .collect();
            let body = json!({ "beats": beats }).to_string();
            let head = format!(
                "POST /v1/heartbeat HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                self.server,
                body.len()
            );
            self.stream.write_all(head.as_bytes())?;
            self.stream.write_all(body.as_bytes())?;
            read_answer(&mut self.stream, &mut self.answer)?;
            self.sent += self.of.batch as u64;
        }
        Ok(())
    }
}

fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
    let mut have = 0;
    loop {
        let count = stream.read(buffer.get_mut(have..).context("a long answer")?)?;
        ensure!(count > 0, "the server hung up");
        have += count;
        let text = String::from_utf8_lossy(&buffer[..have]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let first = head.lines().next().unwrap_or_default();
        ensure!(first.starts_with("HTTP/1.1 2"), "{first}: {body}");
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_it = name.eq_ignore_ascii_case("content-length");
            is_it.then(|| value.trim().parse::<usize>().ok()).flatten()
        });
        if body.len() >= length.context("an answer without a length")? {
            let refused = body.find("\"error\"").and_then(|at| body.get(at..));
            return match refused {
                Some(error) => bail!("a beat was refused: {error:.200}"),
                None => Ok(()),
            };
        }
    }
}

fn cost((beats, busy): &(u64, Spent), (_, idle): &(u64, Spent)) -> Cost {
    let per_million = |busy: f64, idle: f64| (busy - idle).max(0.0) * 1e6 / (*beats).max(1) as f64;
    Cost {
        beats: *beats,
        server_cpu_s_per_million: per_million(busy.service, idle.service),
        redis_cpu_s_per_million: per_million(busy.redis, idle.redis),
    }
}

#[derive(Default)]
struct Beats {
    ids: Vec<Id>,
    opened: usize,
    acks: u64,
    failed: Option<String>,
}

impl Actor for Beats {
    fn opened(&mut self, _: Id, _: Duration) {
        self.opened += 1;
    }

    fn heard(&mut self, _: Id, heard: Heard, _: Instant) {
        match heard {
            Heard::Ack => self.acks += 1,
            Heard::Error(code) => self.failed = Some(code),
            _ => {}
        }
    }

    fn closed(&mut self, _: Id, why: String) {
        self.failed = Some(why);
    }
}
