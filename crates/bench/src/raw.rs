//! The limit of the machine. Bare tokio servers, as many as there were gateways and with as many
//! threads, write the same diffs to as many sockets, with as many lines in a frame and as many on
//! their way as the service had, and do nothing else; and bare Redis carries small messages by
//! sharded pub/sub.

mod redis;
mod server;

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    ops::AddAssign,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use self::redis::RedisResult;
pub(crate) use self::server::Server;
use crate::{
    args::{Manner, Spoken},
    engine::{Actor, Engine, Id, Waiting},
    fanout::Load,
    report,
    speech::{Heard, Hello, Line},
    usage::{self, Usages},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Frames that are on their way at least: with fewer, servers would wait for clients.
const LEAST: usize = 2;

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Raw {
    #[command(flatten)]
    manner: Manner,
    #[command(flatten)]
    load: Load,
    /// Lines in a frame, on average.
    #[arg(long, default_value_t = 1.0)]
    diffs: f64,
    /// Servers, each with a part of every room.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    servers: u16,
    /// Threads of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Measure when told to on standard input; not for people.
    #[arg(long, hide = true)]
    in_turns: bool,
}

/// What the servers are like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bareness {
    /// Lines in a frame, on average.
    pub(crate) diffs: f64,
    pub(crate) servers: usize,
    pub(crate) threads: u16,
}

/// Lines in the frames of one room, so that over all rooms there are as many as asked for.
fn lines_in(diffs: f64, room: usize) -> usize {
    let sum = |rooms: usize| (diffs * rooms as f64).round() as usize;
    (sum(room + 1) - sum(room)).max(1)
}

/// What a bare server does.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct RawResult {
    pub(crate) diffs_per_s: f64,
    pub(crate) diffs_per_frame: f64,
    pub(crate) cpu_us_per_diff: f64,
    pub(crate) cpu_us_per_frame: f64,
}

#[derive(Debug, Serialize)]
struct Both {
    sockets: RawResult,
    redis: RedisResult,
}

/// What was measured in one turn.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Turn {
    lines: f64,
    took_s: f64,
    cpu_s: f64,
}

impl AddAssign for Turn {
    fn add_assign(&mut self, more: Self) {
        self.lines += more.lines;
        self.took_s += more.took_s;
        self.cpu_s += more.cpu_s;
    }
}

impl Turn {
    fn result(self, diffs: f64) -> RawResult {
        let cpu_us_per_diff = self.cpu_s * 1e6 / self.lines.max(1.0);
        RawResult {
            diffs_per_s: self.lines / self.took_s.max(1e-9),
            diffs_per_frame: diffs,
            cpu_us_per_diff,
            cpu_us_per_frame: cpu_us_per_diff * diffs,
        }
    }
}

impl Raw {
    pub(crate) fn run(self) -> Result<()> {
        let bareness = Bareness {
            diffs: self.diffs.max(1.0),
            servers: self.servers.into(),
            threads: self.threads,
        };
        let mut bench = Bench::set(&self.load, self.manner.encoding, bareness)?;
        if self.in_turns {
            report::say("ready");
            for line in std::io::stdin().lock().lines() {
                let (warm_up, time): (f64, f64) = serde_json::from_str(&line?)?;
                let seconds = Duration::try_from_secs_f64;
                let turn = bench.turn(seconds(warm_up)?, seconds(time)?)?;
                report::say(&serde_json::to_string(&turn)?);
            }
            return Ok(());
        }
        let turn = bench.turn(self.load.warm_up, self.load.seconds)?;
        drop(bench);
        let (sockets, redis) = (
            turn.result(bareness.diffs),
            redis::measure(self.load.seconds)?,
        );
        report::print(self.manner.json, &Both { sockets, redis })
    }
}

/// A process that measures bare servers when it is told to: it has as many clients as the one
/// beside which it is measured, and no process may have so many sockets.
pub(crate) struct Turns {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    diffs: f64,
    sum: Turn,
}

impl Drop for Turns {
    fn drop(&mut self) {
        // Nobody is left to hear that it would not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Turns {
    pub(crate) fn start(load: &Load, manner: &Manner, like: Bareness) -> Result<Self> {
        let binary = std::env::current_exe().context("where this binary is")?;
        let encoding = bare_encoding(manner.encoding)?;
        let mut command = Command::new(binary);
        command
            .args(["bench", "raw", "--in-turns", "--encoding", encoding])
            .args(["--rooms", &load.rooms.to_string()])
            .args(["--members", &load.members.to_string()])
            .args(["--window", &load.window.to_string()])
            .args(["--diffs", &like.diffs.to_string()])
            .args(["--servers", &like.servers.to_string()])
            .args(["--threads", &like.threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if load.spin {
            command.arg("--spin");
        }
        let mut child = command.spawn().context("start bare servers")?;
        let mut turns = Self {
            orders: child.stdin.take().context("no input")?,
            answers: BufReader::new(child.stdout.take().context("no output")?),
            child,
            diffs: like.diffs,
            sum: Turn::default(),
        };
        ensure!(turns.answer()? == "ready", "bare servers did not start");
        Ok(turns)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    pub(crate) fn turn(&mut self, warm_up: Duration, time: Duration) -> Result<()> {
        let order = (warm_up.as_secs_f64(), time.as_secs_f64());
        writeln!(self.orders, "{}", serde_json::to_string(&order)?)?;
        let turn: Turn = serde_json::from_str(&self.answer()?).context("bare servers ended")?;
        self.sum += turn;
        Ok(())
    }

    pub(crate) fn result(&self) -> RawResult {
        self.sum.result(self.diffs)
    }
}

/// Bare servers and the clients of one load.
struct Bench {
    servers: Servers,
    engine: Engine,
    rooms: Rooms,
    spin: bool,
}

impl Bench {
    fn set(load: &Load, spoken: Spoken, like: Bareness) -> Result<Self> {
        ensure!(load.rooms > 0 && load.members > 0, "nothing to do");
        let servers = Servers::start(load, spoken, like)?;
        let mut engine = Engine::new(spoken, Waiting::Millisecond)?;
        let mut rooms = Rooms {
            opened: 0,
            failed: None,
            lines: vec![0; load.rooms],
            whole: (0..load.rooms)
                .map(|room| load.members * lines_in(like.diffs, room))
                .collect(),
            all: 0,
        };
        let all = load.rooms * load.members;
        for n in 0..all {
            engine.open(servers.address(n), "", &Hello::default())?;
            let few = |rooms: &mut Rooms| rooms.opened + 100 > n || rooms.failed.is_some();
            ensure!(
                engine.run_until(&mut rooms, PATIENCE, few)?,
                "the bare server hangs"
            );
        }
        ensure!(
            engine.run_until(&mut rooms, PATIENCE, |rooms| rooms.opened == all)?,
            "the bare server hangs: {:?}",
            rooms.failed
        );
        Ok(Self {
            servers,
            engine,
            rooms,
            spin: load.spin,
        })
    }

    /// Warms up, measures, and waits until nothing is on its way.
    fn turn(&mut self, warm_up: Duration, time: Duration) -> Result<Turn> {
        let Self {
            servers,
            engine,
            rooms,
            spin,
        } = self;
        if *spin {
            engine.waits(Waiting::Spinning);
        }
        servers.run(engine, rooms, warm_up)?;
        let (before, begun, lines) = (servers.usage(), Instant::now(), rooms.all);
        servers.run(engine, rooms, time)?;
        let turn = Turn {
            lines: (rooms.all - lines) as f64,
            took_s: begun.elapsed().as_secs_f64(),
            cpu_s: servers.usage().cpu_since(&before).as_secs_f64(),
        };
        engine.waits(Waiting::Millisecond);
        ensure!(
            engine.run_until(rooms, PATIENCE, |rooms| servers.on_their_way(rooms) == 0)?,
            "the bare server hangs"
        );
        Ok(turn)
    }
}

/// All bare servers, and what they are told to write.
struct Servers {
    all: Vec<Bare>,
    /// Frames that each room was sent.
    sent: Vec<usize>,
    /// Whose turn it is.
    next: usize,
    /// Frames that may be on their way.
    most: usize,
}

impl Servers {
    fn start(load: &Load, spoken: Spoken, like: Bareness) -> Result<Self> {
        let start = |nth| Bare::start(load, spoken, like, nth);
        Ok(Self {
            all: (0..like.servers).map(start).collect::<Result<_>>()?,
            sent: vec![0; load.rooms],
            next: 0,
            most: ((load.window as f64 / like.diffs) as usize).max(LEAST),
        })
    }

    /// The server of the n-th client: neighbours in a room are on different ones.
    fn address(&self, n: usize) -> SocketAddr {
        self.all[n % self.all.len()].address
    }

    fn usage(&self) -> Usages {
        usage::of(self.all.iter().map(|server| server.child.id()))
    }

    /// Frames that not everybody has.
    fn on_their_way(&self, rooms: &Rooms) -> usize {
        let done: usize = (0..self.sent.len()).map(|room| rooms.done(room)).sum();
        self.sent.iter().sum::<usize>() - done
    }

    /// Rooms are written to in turn.
    fn run(&mut self, engine: &mut Engine, rooms: &mut Rooms, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let on_their_way = self.on_their_way(rooms);
            let mut orders = String::new();
            for _ in on_their_way..self.most {
                self.sent[self.next] += 1;
                orders.push_str(&self.next.to_string());
                orders.push('\n');
                self.next = (self.next + 1) % self.sent.len();
            }
            for server in &mut self.all {
                server.orders.write_all(orders.as_bytes())?;
            }
            engine.turn(rooms)?;
            ensure!(rooms.failed.is_none(), "the bare server hung up");
        }
        Ok(())
    }
}

/// The bare server as a process.
struct Bare {
    child: Child,
    /// Each line is a room to write to.
    orders: ChildStdin,
    address: SocketAddr,
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It ends with its orders; nobody is left to hear that it would not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bare {
    fn start(load: &Load, spoken: Spoken, like: Bareness, nth: usize) -> Result<Self> {
        let binary = std::env::current_exe().context("where this binary is")?;
        let encoding = bare_encoding(spoken)?;
        let mut child = Command::new(binary)
            .args(["bench", "raw-server", "--encoding", encoding])
            .args(["--members", &load.members.to_string()])
            .args(["--diffs", &like.diffs.to_string()])
            .args(["--servers", &like.servers.to_string()])
            .args(["--nth", &nth.to_string()])
            .args(["--threads", &like.threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the bare server")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Self {
            orders: child.stdin.take().context("no input")?,
            address: line.trim().parse().context("the bare server's address")?,
            child,
        })
    }
}

fn bare_encoding(spoken: Spoken) -> Result<&'static str> {
    match spoken {
        Spoken::Json => Ok("json"),
        Spoken::Protobuf => Ok("protobuf"),
        Spoken::Socketio => bail!("the bare server does not speak Socket.IO; try --no-raw"),
    }
}

/// What the clients of bare servers have heard.
struct Rooms {
    opened: usize,
    failed: Option<String>,
    lines: Vec<usize>,
    /// Lines that all of a room have of one frame.
    whole: Vec<usize>,
    all: u64,
}

impl Rooms {
    /// Frames that all of a room have.
    fn done(&self, room: usize) -> usize {
        self.lines[room] / self.whole[room]
    }
}

impl Actor for Rooms {
    fn opened(&mut self, _: Id, _: Duration) {
        self.opened += 1;
    }

    fn line(&mut self, _: Id, line: Line<'_>, _: Instant) {
        let Line::Join(user) = line else { return };
        let room = user.strip_prefix('x').and_then(|n| n.parse::<usize>().ok());
        if let Some(lines) = room.and_then(|room| self.lines.get_mut(room)) {
            *lines += 1;
            self.all += 1;
        }
    }

    fn heard(&mut self, _: Id, _: Heard, _: Instant) {}

    fn closed(&mut self, _: Id, why: String) {
        self.failed = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_as_many_lines_as_asked_for() {
        for (diffs, rooms) in [(1.0, 7), (2.4, 100), (2.567, 100), (3.0, 1)] {
            let lines: usize = (0..rooms).map(|room| lines_in(diffs, room)).sum();
            let asked = diffs * rooms as f64;
            assert!((lines as f64 - asked).abs() <= 0.5, "{lines} not {asked}");
            assert!((0..rooms).all(|room| lines_in(diffs, room).abs_diff(diffs as usize) <= 1));
        }
    }
}
