//! Where this node stands: who it is, whom it talks to, where it listens.

use std::{fmt, net::SocketAddr, path::PathBuf};

use adsum_core::membership::Role;
use serde::{Deserialize, Serialize};

use super::section::section;

/// A text that must not be shown: a password, or a URL that may carry one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

section! {
    /// This node.
    pub(crate) struct Node {
        /// Its name, unique in the cluster; empty for the host's name.
        name: String = String::new(),
        /// Where it stands: shown to others, and in telemetry.
        zone: String = String::new(),
        /// What it does: any of `gateway`, `dispatcher` and `reaper`.
        roles: Vec<Role> = vec![Role::Gateway, Role::Dispatcher, Role::Reaper],
        /// Threads that do its work; 0 for one per core that it may use: of its CPU limit, or of the
        /// whole machine if it has none.
        threads: u16 = 0,
        /// How many times in a millisecond each of them may go to sleep. One that would do so more
        /// often waits for its next turn, with 2 half a millisecond at most, and deals with all that
        /// has come meanwhile at once: waking up costs more than most of what it is for. One that
        /// has to do with heartbeats above all waits four times as long. 0 for as often as it takes.
        sleeps_per_ms: u16 = 2,
        /// For development: callers on this machine may say who they are without a signature
        /// (`dev:<tenant>:<user>`), and the public port answers them on `/readyz`, `/metrics` and
        /// `/admin` as well.
        dev: bool = false,
    }
}

section! {
    /// What all nodes must agree on.
    pub(crate) struct Cluster {
        /// The name in Redis and etcd.
        name: String = "adsum".to_owned(),
        /// The layout of keys.
        layout: u32 = 1,
        /// Shards; fixed when the store is born.
        shards: u16 = 64,
    }
}

section! {
    /// Where Redis is; nowhere for the embedded default.
    pub(crate) struct Redis {
        /// `redis://` or `rediss://` URLs, user and password included: some nodes of a cluster, or
        /// one server. None: everything is kept in this process.
        urls: Vec<Secret> = Vec::new(),
        /// Certificates (PEM) to trust instead of the public ones.
        ca: Option<PathBuf> = None,
    }
}

section! {
    /// Where etcd is; nowhere for the embedded default.
    pub(crate) struct Etcd {
        /// `http://` or `https://` URLs. None: this process is the whole cluster.
        endpoints: Vec<String> = Vec::new(),
        /// The user, if etcd asks for one.
        user: Option<String> = None,
        /// The user's password.
        password: Option<Secret> = None,
        /// Certificates (PEM) to trust with `https`.
        ca: Option<PathBuf> = None,
        /// This node's certificate, if etcd asks for one.
        cert: Option<PathBuf> = None,
        /// The key of `cert`.
        key: Option<PathBuf> = None,
    }
}

section! {
    /// Where to listen.
    pub(crate) struct Listen {
        /// Clients: WebSocket, gRPC, HTTP and Server-Sent Events on one port.
        public: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// The feed between dispatchers and gateways.
        feed: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8081)),
        /// Health, metrics and admin calls. Never for the public: whoever reaches it may use it.
        internal: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8082)),
        /// How other nodes reach the feed, `host:port`; empty for the address it listens on.
        advertise: String = String::new(),
    }
}

section! {
    /// The certificate of the public port: both files (PEM), or none for plain text behind a
    /// proxy. Read again when they change.
    pub(crate) struct Tls {
        /// The certificate, with its chain.
        cert: Option<PathBuf> = None,
        /// The key of `cert`.
        key: Option<PathBuf> = None,
    }
}

section! {
    /// Certificates (PEM) of the feed between nodes: all three, or none. Both sides show theirs.
    pub struct FeedTls {
        /// Whom to trust: the authority that signed the certificates of this cluster's nodes.
        ca: Option<PathBuf> = None,
        /// This node's certificate.
        cert: Option<PathBuf> = None,
        /// The key of `cert`.
        key: Option<PathBuf> = None,
        /// The name to expect in other nodes' certificates, if it is not their host.
        domain: Option<String> = None,
        /// Listen beyond this machine without certificates, where the network itself is private.
        plaintext: bool = false,
    }
}

/// A part of all, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Rate(pub(crate) f64);

// What is no number is refused by the check.
impl Eq for Rate {}

section! {
    /// How others see into this node. The standard `OTEL_*` variables go over what is here; they
    /// are also the way for headers with secrets (`OTEL_EXPORTER_OTLP_HEADERS`).
    pub(crate) struct Telemetry {
        /// Count and measure, for `/metrics` and the collector.
        metrics: bool = true,
        /// An OTLP collector, `http://` or `https://`. Empty: nothing is sent.
        endpoint: String = String::new(),
        /// How to reach it: `http/protobuf` (usually port 4318) or `grpc` (4317).
        protocol: String = "http/protobuf".to_owned(),
        /// What to send there: any of `traces`, `metrics` and `logs`.
        signals: Vec<String> = ["traces", "metrics", "logs"].map(str::to_owned).to_vec(),
        /// Certificates (PEM) to trust with `https` instead of the public ones.
        ca: Option<PathBuf> = None,
        /// The part of all changes that get a trace, from 0 to 1.
        sample_rate: Rate = Rate(0.01),
        /// Of changes that a client itself traces (`traceparent`, sampled) so many a second are
        /// traced on, whatever the rate; 0 for none.
        client_traces: u64 = 100,
        /// A change that took longer gets a trace in the end, made of the times that it brought
        /// along; 0 for none.
        slow_ms: u64 = 1000,
        /// How often metrics are sent to the collector.
        interval_ms: u64 = 60_000,
        /// Tenants that may appear in metrics by name.
        tenants: Vec<String> = Vec::new(),
    }
}

section! {
    /// Logging, to stderr.
    pub(crate) struct Log {
        /// What to log, as `tracing` filters are written: `info`, `adsum_dispatcher=debug,info`.
        filter: String = "info".to_owned(),
        /// One JSON object per line instead of text.
        json: bool = false,
    }
}
