//! The service beside what would be built instead, measured by the same clients in one run: the
//! articles' design, and Socket.IO 4 with its Redis adapter. Writes what was measured as JSON, a
//! table for people, and a picture of latency against load.
//!
//! Usage: `compare --adsum target/measure/adsum --socketio bench/socketio --out docs/performance`

#![allow(clippy::print_stdout, reason = "says what it does")]

mod picture;

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};

#[derive(Parser)]
struct Args {
    /// The binary of the service.
    #[arg(long)]
    adsum: PathBuf,
    /// The articles' server; beside this program if not given.
    #[arg(long)]
    articles: Option<PathBuf>,
    /// The folder of the Socket.IO server, with its packages installed.
    #[arg(long, default_value = "bench/socketio")]
    socketio: PathBuf,
    /// Where `comparison.json`, `comparison.md` and `latency.svg` go.
    #[arg(long, default_value = "docs/performance")]
    out: PathBuf,
    /// How long each step is measured.
    #[arg(long, default_value_t = 6)]
    seconds: u32,
    /// One measurement alone, only printed: memory, "one room", "many rooms", ladder or heartbeats.
    #[arg(long)]
    only: Option<String>,
}

/// One that is measured.
struct Rival {
    name: &'static str,
    /// Where it is, for `adsum bench`.
    target: Vec<String>,
    // Dropped, they end.
    _processes: Vec<Process>,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody is left to hear that it would not.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(only) = &args.only {
        let known = measurements(args.seconds);
        let mut known = known.iter().map(|(what, _)| *what);
        ensure!(known.any(|what| what == only), "there is no {only}");
    }
    fs::create_dir_all(&args.out)?;
    let mut results = Vec::new();
    for start in [
        Rival::adsum,
        Rival::adsum_json,
        Rival::articles,
        Rival::socketio,
    ] {
        let mut measured = serde_json::Map::new();
        let mut name = "";
        for (what, words) in measurements(args.seconds) {
            if args.only.as_ref().is_some_and(|only| only != what) {
                continue;
            }
            // Each begins with an empty Redis.
            let rival = start(&args)?;
            name = rival.name;
            println!("{name}: {what}");
            measured.insert(what.to_owned(), rival.bench(&args.adsum, &words)?);
        }
        results.push((name, Value::from(measured)));
    }
    if args.only.is_some() {
        println!("{}", table(&results));
        return Ok(());
    }
    fs::write(
        args.out.join("comparison.json"),
        serde_json::to_string_pretty(&json!(results.iter().cloned().collect::<BTreeMap<_, _>>()))?,
    )?;
    fs::write(args.out.join("comparison.md"), table(&results))?;
    fs::write(args.out.join("latency.svg"), picture::draw(&results)?)?;
    println!("{}", table(&results));
    Ok(())
}

fn measurements(seconds: u32) -> Vec<(&'static str, Vec<String>)> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    // Of some, Redis feels so little that it takes long to see it.
    let long = seconds * 6;
    vec![
        (
            "memory",
            words("connect --sessions 10000 --hold 2".to_owned()),
        ),
        (
            "one room",
            words(format!(
                "fanout --rooms 1 --members 1000 --window 128 --no-raw --seconds {seconds}"
            )),
        ),
        (
            "many rooms",
            words(format!(
                "fanout --rooms 100 --members 100 --window 400 --no-raw --seconds {seconds}"
            )),
        ),
        (
            "ladder",
            words(format!(
                "ladder --rooms 100 --members 100 --seconds {seconds}"
            )),
        ),
        (
            "heartbeats",
            words(format!("heartbeat --no-http --rate 5000 --seconds {long}")),
        ),
    ]
}

impl Rival {
    fn cluster(name: &'static str, encoding: &str) -> Self {
        let target = ["--cluster", "--encoding", encoding];
        Self {
            name,
            target: target.map(str::to_owned).to_vec(),
            _processes: Vec::new(),
        }
    }

    fn adsum(_: &Args) -> Result<Self> {
        Ok(Self::cluster("Adsum, protobuf", "protobuf"))
    }

    fn adsum_json(_: &Args) -> Result<Self> {
        Ok(Self::cluster("Adsum, JSON", "json"))
    }

    fn articles(args: &Args) -> Result<Self> {
        let program = match &args.articles {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("articles"),
        };
        Self::on_redis("the articles' design", "json", |url, port| {
            let mut command = Command::new(program);
            command.args(["--redis", url, "--listen", &format!("127.0.0.1:{port}")]);
            command
        })
    }

    fn socketio(args: &Args) -> Result<Self> {
        let packages = args.socketio.join("node_modules");
        ensure!(
            packages.exists(),
            "run `npm install` in {} first",
            args.socketio.display()
        );
        Self::on_redis("Socket.IO 4", "socketio", |url, port| {
            let mut command = Command::new("node");
            command.arg(args.socketio.join("server.js")).args([
                "--redis",
                url,
                "--listen",
                &port.to_string(),
            ]);
            command
        })
    }

    /// One server with a Redis of its own.
    fn on_redis(
        name: &'static str,
        encoding: &str,
        server: impl FnOnce(&str, u16) -> Command,
    ) -> Result<Self> {
        let (redis_port, port) = (free_port()?, free_port()?);
        let mut redis = Command::new("redis-server");
        redis
            .args(["--port", &redis_port.to_string(), "--save", ""])
            .args(["--appendonly", "no", "--bind", "127.0.0.1"]);
        let redis = start(redis, redis_port)?;
        let server = server(&format!("redis://127.0.0.1:{redis_port}"), port);
        let server = start(server, port)?;
        let target = [
            "--server".to_owned(),
            format!("127.0.0.1:{port}"),
            "--pid".to_owned(),
            server.0.id().to_string(),
            "--redis-pid".to_owned(),
            redis.0.id().to_string(),
            "--encoding".to_owned(),
            encoding.to_owned(),
        ];
        Ok(Self {
            name,
            target: target.to_vec(),
            _processes: vec![server, redis],
        })
    }

    /// One measurement. What a rival can't do at all is part of the result.
    fn bench(&self, adsum: &Path, words: &[String]) -> Result<Value> {
        let output = Command::new(adsum)
            .arg("bench")
            .args(words)
            .args(&self.target)
            .arg("--json")
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("run {}", adsum.display()))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            println!("  {why}");
            return Ok(json!({ "failed": why }));
        }
        serde_json::from_slice(&output.stdout).context("what was measured")
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start(mut command: Command, port: u16) -> Result<Process> {
    let program = command.get_program().to_owned();
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let mut process = Process(child);
    let by = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = process.0.try_wait()? {
            bail!("{} ended with {status}", program.display());
        }
        ensure!(Instant::now() < by, "{} does not listen", program.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(process)
}

/// What was measured, for people: each figure, and how many times as good the first one's is.
fn table(rivals: &[(&str, Value)]) -> String {
    let mut text = String::from("| |");
    for (name, _) in rivals {
        text.push_str(&format!(" {name} |"));
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(rivals.len()));
    text.push('\n');
    for row in ROWS {
        text.push_str(&format!("| {} |", row.title));
        let first = rivals.first().and_then(|(_, measured)| (row.of)(measured));
        for (_, measured) in rivals {
            let cell = match ((row.of)(measured), first) {
                (None, _) => "none".to_owned(),
                // Nothing is no number of times as much as nothing.
                (Some(figure), Some(first)) if figure != first && first > 0.0 => {
                    let ratio = match row.more_is_better {
                        true => first / figure,
                        false => figure / first,
                    };
                    format!("{} ({ratio:.1} ×)", row.figure(figure))
                }
                (Some(figure), _) => row.figure(figure),
            };
            text.push_str(&format!(" {cell} |"));
        }
        text.push('\n');
    }
    text
}

struct Row {
    title: &'static str,
    of: fn(&Value) -> Option<f64>,
    more_is_better: bool,
    decimals: usize,
}

impl Row {
    const fn less(title: &'static str, decimals: usize, of: fn(&Value) -> Option<f64>) -> Self {
        Self {
            title,
            of,
            more_is_better: false,
            decimals,
        }
    }

    const fn more(title: &'static str, of: fn(&Value) -> Option<f64>) -> Self {
        Self {
            title,
            of,
            more_is_better: true,
            decimals: 0,
        }
    }

    fn figure(&self, figure: f64) -> String {
        match self.decimals {
            0 => thousands(figure),
            decimals => format!("{figure:.decimals$}"),
        }
    }
}

/// Of the step at 25,000 diffs/s, if it was kept up with.
fn at_25_000(measured: &Value, which: &str) -> Option<f64> {
    let mut steps = measured["ladder"]["steps"].as_array()?.iter();
    let step = steps.find(|step| step["rate"] == 25_000.0 && step["kept_up"] == true)?;
    step["latency_ms"][which].as_f64()
}

const ROWS: &[Row] = &[
    Row::less("KiB of the server per connection, rooms of 100", 1, |m| {
        m["memory"]["kib_per_connection"].as_f64()
    }),
    Row::more("diffs/s, 1 room × 1,000", |m| {
        m["one room"]["diffs_per_s"].as_f64()
    }),
    Row::less("µs of the server per diff, 1 × 1,000", 2, |m| {
        m["one room"]["cpu_us_per_diff"].as_f64()
    }),
    Row::more("diffs/s, 100 rooms × 100", |m| {
        m["many rooms"]["diffs_per_s"].as_f64()
    }),
    Row::less("µs of the server per diff, 100 × 100", 1, |m| {
        m["many rooms"]["cpu_us_per_diff"].as_f64()
    }),
    Row::less("p50 at 25,000 diffs/s, ms", 1, |m| at_25_000(m, "p50")),
    Row::less("p99 at 25,000 diffs/s, ms", 1, |m| at_25_000(m, "p99")),
    Row::less("server CPU s per million heartbeats", 1, |m| {
        m["heartbeats"]["server_cpu_s_per_million"].as_f64()
    }),
    Row::less("Redis CPU s per million heartbeats", 2, |m| {
        m["heartbeats"]["redis_cpu_s_per_million"].as_f64()
    }),
];

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
