//! A node of the service: the real binary as a process, with its own ports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::clock::FakeClock;
use crate::http;
use crate::ports::Ports;
use crate::process::Process;
use crate::wait::{LIMIT, eventually};

/// How to start a [`Node`].
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The binary: `env!("CARGO_BIN_EXE_adsum")` in its own tests.
    pub binary: PathBuf,
    /// Its name in the cluster.
    pub name: String,
    /// What it does, as `--roles` takes it.
    pub roles: String,
    /// Settings, as `("TIMES__POLL_MS", "50")`.
    pub settings: Vec<(String, String)>,
    /// Where its feed listens, if that must be known before it starts.
    pub feed: Option<SocketAddr>,
    /// How other nodes reach its feed, if not directly: a proxy's address.
    pub advertise: Option<SocketAddr>,
    /// Who may come in.
    pub auth: NodeAuth,
    /// A wall clock of its own.
    pub clock: Option<FakeClock>,
}

/// Who may come in at a [`Node`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeAuth {
    /// Everybody on this machine, without a signature: `dev:<tenant>:<user>`.
    #[default]
    Dev,
    /// Tokens signed with this secret, of 32 bytes or more (HS256); nobody else.
    Secret(String),
    /// As the settings say.
    Configured,
}

impl NodeOptions {
    /// A node with these roles, and every time constant ten times faster than the default.
    pub fn fast(binary: impl Into<PathBuf>, name: &str, roles: &str) -> Self {
        let times = [
            ("HEARTBEAT_MS", 1500),
            ("SESSION_TTL_MS", 4500),
            ("LINGER_MS", 1000),
            ("DRAIN_WINDOW_MS", 2000),
            ("EXPIRING_MS", 3000),
            ("HELLO_MS", 1000),
            ("ANSWER_MS", 200),
            ("STUCK_MS", 1000),
            ("WATCH_FILES_MS", 100),
            ("ACK_TIMEOUT_MS", 500),
            ("RENEW_MS", 500),
            ("HOLDER_TTL_MS", 3000),
            ("ALIVE_GAP_MS", 1000),
            ("TOMB_MS", 6000),
            ("SWEEP_MS", 100),
            ("OWNERLESS_MS", 200),
            // etcd counts whole seconds.
            ("LEASE_TTL_MS", 2000),
            ("POLL_MS", 50),
            ("SILENT_MS", 400),
            ("COMPLETE_MS", 100),
            ("UNLOAD_MS", 6000),
        ];
        let settings = times.map(|(key, ms)| (format!("TIMES__{key}"), ms.to_string()));
        Self {
            binary: binary.into(),
            name: name.to_owned(),
            roles: roles.to_owned(),
            settings: settings.into(),
            feed: None,
            advertise: None,
            auth: NodeAuth::default(),
            clock: None,
        }
    }

    /// Only with tokens signed with this secret.
    pub fn with_secret(mut self, secret: &str) -> Self {
        self.auth = NodeAuth::Secret(secret.to_owned());
        self
    }

    /// With one more setting; the last one of a key counts.
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.push((key.to_owned(), value.to_string()));
        self
    }

    /// In this cluster.
    pub fn in_cluster(self, redis: &[String], etcd: &[String]) -> Self {
        let list = |urls: &[String]| format!("[\"{}\"]", urls.join("\",\""));
        self.with("REDIS__URLS", list(redis))
            .with("ETCD__ENDPOINTS", list(etcd))
    }
}

/// A running node. Dropped, it is killed.
#[derive(Debug)]
pub struct Node {
    name: String,
    public: SocketAddr,
    feed: SocketAddr,
    internal: SocketAddr,
    process: Process,
    _ports: Ports,
}

impl Node {
    /// Starts a node, its log in `folder`, and waits until it answers.
    pub async fn start(folder: &Path, options: &NodeOptions) -> Result<Self> {
        let ports = Ports::default();
        let public = SocketAddr::from(([127, 0, 0, 1], ports.take()?));
        let feed = match options.feed {
            Some(feed) => feed,
            None => SocketAddr::from(([127, 0, 0, 1], ports.take()?)),
        };
        let internal = SocketAddr::from(([127, 0, 0, 1], ports.take()?));
        let mut command = Command::new(&options.binary);
        command.args(["serve", "--name", &options.name, "--roles", &options.roles]);
        command.args(["--listen-public", &public.to_string()]);
        command.args(["--listen-feed", &feed.to_string()]);
        command.args(["--listen-internal", &internal.to_string()]);
        if let Some(advertise) = options.advertise {
            command.args(["--advertise", &advertise.to_string()]);
        }
        match &options.auth {
            NodeAuth::Dev => drop(command.arg("--dev")),
            NodeAuth::Secret(secret) => {
                let key = format!("[{{alg=\"HS256\",secret=\"{secret}\"}}]");
                command.env("ADSUM_AUTH__KEYS", key);
            }
            NodeAuth::Configured => {}
        }
        for (key, value) in &options.settings {
            command.env(format!("ADSUM_{key}"), value);
        }
        if let Some(clock) = &options.clock {
            clock.give(&mut command);
        }
        let process = Process::start(folder, &options.name, command)?;
        let name = options.name.clone();
        let node = Self {
            name,
            public,
            feed,
            internal,
            process,
            _ports: ports,
        };
        node.wait_up().await?;
        Ok(node)
    }

    /// Waits until it answers.
    pub async fn wait_up(&self) -> Result<()> {
        let up = eventually("the node answers", LIMIT, || async {
            let (status, _) = http::request(self.internal, "GET", "/healthz", "").await?;
            ensure!(status == 200, "it says {status}");
            Ok(())
        });
        let up = self.process.while_running(up).await;
        up.with_context(|| {
            format!(
                "{}, whose log ends:\n{}",
                self.name,
                self.process.log_tail(10)
            )
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where clients come in, if it is a gateway.
    pub fn public(&self) -> SocketAddr {
        self.public
    }

    /// Where its feed listens.
    pub fn feed(&self) -> SocketAddr {
        self.feed
    }

    /// Where health and admin calls listen.
    pub fn internal(&self) -> SocketAddr {
        self.internal
    }

    /// Its process: to kill, pause, stop or restart.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What `/readyz` says, ready or not.
    pub async fn readyz(&self) -> Result<Value> {
        self.json("/readyz").await
    }

    /// How its shards stand.
    pub async fn shards(&self) -> Result<Value> {
        self.json("/admin/shards").await
    }

    /// All of its metrics.
    pub async fn metrics(&self) -> Result<String> {
        let (_, text) = http::request(self.internal, "GET", "/metrics", "").await?;
        Ok(text)
    }

    /// One of its metrics.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.with_context(|| format!("no metric {name}"))?;
        value
            .trim()
            .parse()
            .with_context(|| format!("{name} is {value}"))
    }

    async fn json(&self, path: &str) -> Result<Value> {
        let (_, body) = http::request(self.internal, "GET", path, "").await?;
        serde_json::from_str(&body).with_context(|| format!("{} says {body}", self.name))
    }
}
