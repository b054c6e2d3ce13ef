//! The command line.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use adsum_proto::client::Encoding;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use crate::{connect, fanout, growth, heartbeat, ladder, raw, snapshot, storm, telemetry, worker};

/// Measure a service: one that runs, or with --cluster one that is started for it.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Open sessions and hold them: how long that takes, what each costs, who is lost.
    Connect(connect::Connect),
    /// Joins and leaves in rooms: how many diffs are delivered, how fast, at what cost.
    Fanout(fanout::Fanout),
    /// What a change and a diff cost while sessions, rooms, gateways and shards grow.
    Growth(growth::Growth),
    /// What heartbeats cost the service and Redis.
    Heartbeat(heartbeat::Heartbeat),
    /// A fan-out at one rate after another, until the service does not keep up.
    Ladder(ladder::Ladder),
    /// Many subscribe to a large room at once: how long until all have it.
    Snapshot(snapshot::Snapshot),
    /// Kill a process during a fan-out: how long nothing is delivered.
    Failover(fanout::Failover),
    /// Kill a gateway of many clients: how long until all are back, and who hears of it.
    Storm(storm::StormOf),
    /// A fan-out without telemetry, with metrics, and with traces of some changes: what they cost.
    Telemetry(telemetry::Telemetry),
    /// The limit of the machine: bare sockets that are written to, bare Redis.
    Raw(raw::Raw),
    /// A part of the clients of `connect`; not for people.
    #[command(hide = true)]
    Worker,
    /// The bare server of `raw`; not for people.
    #[command(hide = true)]
    RawServer(raw::Server),
}

impl Bench {
    /// Measures.
    ///
    /// # Errors
    /// One sentence that says what to do.
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Connect(connect) => connect.run()?,
            What::Fanout(fanout) => fanout.run()?,
            What::Growth(growth) => growth.run()?,
            What::Heartbeat(heartbeat) => heartbeat.run()?,
            What::Ladder(ladder) => ladder.run()?,
            What::Snapshot(snapshot) => snapshot.run()?,
            What::Failover(failover) => failover.run()?,
            What::Storm(storm) => storm.run()?,
            What::Telemetry(telemetry) => telemetry.run()?,
            What::Raw(raw) => raw.run()?,
            What::Worker => worker::run()?,
            What::RawServer(server) => server.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whom to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Public addresses of running gateways; clients are spread over them.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) server: Vec<SocketAddr>,
    /// Processes of that service, for what they spend.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Processes of its Redis.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) redis_pid: Vec<u32>,
    /// Start a cluster on this machine instead: a real Redis Cluster, etcd, gateways, dispatchers.
    #[arg(long, conflicts_with_all = ["server", "pid", "redis_pid"])]
    pub(crate) cluster: bool,
    /// Gateways of that cluster.
    #[arg(long, default_value_t = 2, requires = "cluster")]
    pub(crate) gateways: usize,
    /// Dispatchers of that cluster, each with a reaper.
    #[arg(long, default_value_t = 1, requires = "cluster")]
    pub(crate) dispatchers: usize,
    /// Shards of that cluster.
    #[arg(long, default_value_t = 64, requires = "cluster")]
    pub(crate) shards: u16,
    /// Threads of each of its nodes; without this they share the cores out.
    #[arg(long, requires = "cluster", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Settings of that cluster's nodes, as TIMES__WINDOW_MS=20.
    #[arg(long, value_name = "KEY=VALUE", requires = "cluster")]
    pub(crate) set: Vec<String>,
    /// Settings of that cluster's Redis, as hz=1.
    #[arg(long, value_name = "NAME=VALUE", requires = "cluster")]
    pub(crate) redis: Vec<String>,
    /// Unsigned identities of this tenant are used, which servers in development take.
    #[arg(long, default_value = "bench")]
    pub(crate) tenant: String,
}

impl Target {
    /// Threads of each node: one per core of them all.
    pub(crate) fn threads(&self) -> u16 {
        let shared = || {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let nodes = (self.gateways + self.dispatchers).max(1);
            u16::try_from(cores / nodes).unwrap_or(u16::MAX).max(1)
        };
        self.threads.unwrap_or_else(shared)
    }

    /// A cluster of two gateways and one dispatcher with these settings.
    pub(crate) fn own(settings: &[String]) -> Self {
        Self {
            server: Vec::new(),
            pid: Vec::new(),
            redis_pid: Vec::new(),
            cluster: true,
            gateways: 2,
            dispatchers: 1,
            shards: 64,
            threads: None,
            set: settings.to_vec(),
            redis: Vec::new(),
            tenant: "bench".to_owned(),
        }
    }
}

/// What clients speak, and how results are printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct Manner {
    /// What clients speak.
    #[arg(long, value_enum, default_value_t = Spoken::Protobuf)]
    pub(crate) encoding: Spoken,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Spoken {
    Json,
    Protobuf,
    /// Of `bench/socketio`, to compare with.
    Socketio,
}

impl Spoken {
    /// The encoding of our own protocol.
    pub(crate) fn encoding(self) -> Result<Encoding> {
        match self {
            Self::Json => Ok(Encoding::Json),
            Self::Protobuf => Ok(Encoding::Protobuf),
            Self::Socketio => bail!("Socket.IO has another protocol"),
        }
    }
}

/// Reads a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().context("not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).context("not a number of seconds")
}
