//! All settings in one place: defaults, then a TOML file, then `ADSUM_SECTION__KEY` variables,
//! then flags. Everything else in the binary takes typed values from here.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use adsum_core::membership::Role;
use anyhow::{Context, Result, bail, ensure};
use figment::{
    Figment,
    providers::{Env, Format, Serialized, Toml},
};
use serde::{Deserialize, Serialize};

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// This node.
    pub(crate) node: Node,
    /// What all nodes must agree on.
    pub(crate) cluster: Cluster,
    /// Where Redis is; nowhere for the embedded default.
    pub(crate) redis: Redis,
    /// Where etcd is; nowhere for the embedded default.
    pub(crate) etcd: Etcd,
    /// Where to listen.
    pub(crate) listen: Listen,
    /// Certificates of the feed between nodes.
    pub(crate) feed: FeedTls,
    /// Every time constant, in ms.
    pub(crate) times: Times,
    /// Bounds of what is kept and queued.
    pub(crate) bounds: Bounds,
    /// Logging.
    pub(crate) log: Log,
}

/// This node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Node {
    /// Its name, unique in the cluster; empty for the host's name.
    pub(crate) name: String,
    /// Where it stands, for spreading.
    pub(crate) zone: String,
    /// What it does.
    pub(crate) roles: Vec<Role>,
}

impl Default for Node {
    fn default() -> Self {
        let roles = vec![Role::Gateway, Role::Dispatcher, Role::Reaper];
        Self {
            name: String::new(),
            zone: String::new(),
            roles,
        }
    }
}

/// What all nodes must agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cluster {
    /// The name in Redis and etcd.
    pub(crate) name: String,
    /// The layout of keys.
    pub(crate) layout: u32,
    /// Shards; fixed when the store is born.
    pub(crate) shards: u16,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: "adsum".to_owned(),
            layout: 1,
            shards: 64,
        }
    }
}

/// Where Redis is.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Redis {
    /// `redis://` or `rediss://` URLs, user and password included: some nodes of a cluster, or
    /// one server. None: everything is kept in this process.
    pub(crate) urls: Vec<String>,
    /// Certificates (PEM) to trust instead of the public ones.
    pub(crate) ca: Option<PathBuf>,
}

impl fmt::Debug for Redis {
    // URLs may carry passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("urls", &self.urls.len())
            .field("ca", &self.ca)
            .finish()
    }
}

/// Where etcd is.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Etcd {
    /// `http://` or `https://` URLs. None: this process is the whole cluster.
    pub(crate) endpoints: Vec<String>,
    /// The user, if etcd asks for one.
    pub(crate) user: Option<String>,
    /// The user's password.
    pub(crate) password: Option<String>,
    /// Certificates (PEM) to trust with `https`.
    pub(crate) ca: Option<PathBuf>,
    /// This node's certificate, if etcd asks for one.
    pub(crate) cert: Option<PathBuf>,
    /// The key of `cert`.
    pub(crate) key: Option<PathBuf>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listen {
    /// The feed between dispatchers and gateways.
    pub(crate) feed: SocketAddr,
    /// Health, and admin calls.
    pub(crate) internal: SocketAddr,
    /// How other nodes reach the feed, `host:port`; empty for the address it listens on.
    pub(crate) advertise: String,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            feed: SocketAddr::from(([127, 0, 0, 1], 8081)),
            internal: SocketAddr::from(([127, 0, 0, 1], 8082)),
            advertise: String::new(),
        }
    }
}

/// Certificates (PEM) of the feed: all three, or none. Both sides show theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct FeedTls {
    /// Whom to trust: the authority that signed the certificates of this cluster's nodes.
    pub ca: Option<PathBuf>,
    /// This node's certificate.
    pub cert: Option<PathBuf>,
    /// The key of `cert`.
    pub key: Option<PathBuf>,
    /// The name to expect in other nodes' certificates, if it is not their host.
    pub domain: Option<String>,
    /// Listen beyond this machine without certificates, where the network itself is private.
    pub plaintext: bool,
}

/// Every time constant, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Times {
    /// How often a connected client says something.
    pub(crate) heartbeat_ms: u64,
    /// How long a client may say nothing.
    pub(crate) session_ttl_ms: u64,
    /// How long a client waits for an answer before it reconnects.
    pub(crate) ack_timeout_ms: u64,
    /// How often a gateway renews its deadline in a shard.
    pub(crate) renew_ms: u64,
    /// That deadline.
    pub(crate) holder_ttl_ms: u64,
    /// After so long without renewals and sweeps, sweeps wait for one settling.
    pub(crate) alive_gap_ms: u64,
    /// How long a closed connection can't be opened again.
    pub(crate) tomb_ms: u64,
    /// How long last seen is kept.
    pub(crate) retention_ms: u64,
    /// The longest pause between two sweeps of a shard.
    pub(crate) sweep_ms: u64,
    /// A shard without a reaper for so long may be taken by any.
    pub(crate) ownerless_ms: u64,
    /// A node's lease in etcd; etcd counts whole seconds.
    pub(crate) lease_ttl_ms: u64,
    /// How often a dispatcher asks for a shard's position.
    pub(crate) poll_ms: u64,
    /// A dispatcher that is silent for so long is left.
    pub(crate) silent_ms: u64,
    /// A topic is shown after so long, complete or not.
    pub(crate) complete_ms: u64,
    /// How long a view that nobody wants is kept.
    pub(crate) unload_ms: u64,
    /// The time an operation on the store has, with all its attempts.
    pub(crate) store_deadline_ms: u64,
    /// The time a node has to stop.
    pub(crate) stop_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            heartbeat_ms: 15_000,
            session_ttl_ms: 45_000,
            ack_timeout_ms: 5_000,
            renew_ms: 5_000,
            holder_ttl_ms: 30_000,
            alive_gap_ms: 10_000,
            tomb_ms: 60_000,
            retention_ms: 90 * 24 * 3_600_000,
            sweep_ms: 1_000,
            ownerless_ms: 2_000,
            lease_ttl_ms: 5_000,
            poll_ms: 500,
            silent_ms: 2_000,
            complete_ms: 1_000,
            unload_ms: 60_000,
            store_deadline_ms: 5_000,
            stop_ms: 10_000,
        }
    }
}

/// Bounds of what is kept and queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Bounds {
    /// Entries of a shard's log.
    pub(crate) log_len: u64,
    /// Bytes of a shard's log.
    pub(crate) log_bytes: u64,
    /// Sessions that one sweep closes.
    pub(crate) sweep_limit: usize,
    /// Dispatchers that keep a view of each shard.
    pub(crate) feed_replicas: usize,
    /// States waiting for one gateway.
    pub(crate) feed_queue: usize,
    /// Touched topics that a view remembers.
    pub(crate) feed_history: usize,
    /// Bytes of a session's `meta`.
    pub(crate) meta_bytes: usize,
    /// Rooms of a session.
    pub(crate) rooms: usize,
    /// Contacts of a user.
    pub(crate) contacts: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            log_len: 10_000,
            log_bytes: 16 << 20,
            sweep_limit: 100,
            feed_replicas: 2,
            feed_queue: 50_000,
            feed_history: 20_000,
            meta_bytes: 2048,
            rooms: 100,
            contacts: 5000,
        }
    }
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    /// What to log, as `tracing` filters are written: `info`, `adsum_dispatcher=debug,info`.
    pub(crate) filter: String,
    /// One JSON object per line instead of text.
    pub(crate) json: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            json: false,
        }
    }
}

impl Config {
    /// Reads the file (if one is given) and the environment. Flags are laid over by the caller.
    ///
    /// # Errors
    /// When the file can't be read, a key is unknown or a value does not fit.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self> {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(file) = file {
            ensure!(
                file.exists(),
                "the config file {} does not exist",
                file.display()
            );
            figment = figment.merge(Toml::file_exact(file));
        }
        let environment = Env::prefixed("ADSUM_")
            .split("__")
            .ignore(&["config", "plant"]);
        figment
            .merge(environment)
            .extract()
            .context("the configuration can't be used")
    }

    /// Checks what belongs together.
    ///
    /// # Errors
    /// Says what does not, and why it must.
    pub(crate) fn check(&self) -> Result<()> {
        let t = &self.times;
        ensure!(
            !self.node.roles.is_empty(),
            "node.roles is empty: this node would do nothing"
        );
        ensure!(self.cluster.shards > 0, "cluster.shards must be at least 1");
        ensure!(
            t.session_ttl_ms >= 2 * t.heartbeat_ms,
            "times.session_ttl_ms ({}) must be at least twice times.heartbeat_ms ({}): one lost \
             beat must not end a session",
            t.session_ttl_ms,
            t.heartbeat_ms
        );
        ensure!(
            t.holder_ttl_ms >= 3 * t.renew_ms,
            "times.holder_ttl_ms ({}) must be at least three times times.renew_ms ({}): two lost \
             renewals must not cost a gateway its sessions",
            t.holder_ttl_ms,
            t.renew_ms
        );
        // 3 s for the client to get through to another gateway, scaled like everything else.
        let retry = t.heartbeat_ms / 5;
        ensure!(
            t.heartbeat_ms + t.ack_timeout_ms + retry < t.holder_ttl_ms - t.renew_ms,
            "times.heartbeat_ms + times.ack_timeout_ms + a retry ({} + {} + {retry}) must be below \
             times.holder_ttl_ms - times.renew_ms ({}): clients of a dead gateway must be back \
             elsewhere before they are told as gone",
            t.heartbeat_ms,
            t.ack_timeout_ms,
            t.holder_ttl_ms - t.renew_ms
        );
        ensure!(
            t.silent_ms >= 3 * t.poll_ms,
            "times.silent_ms ({}) must be at least three times times.poll_ms ({}): a dispatcher \
             speaks once per poll",
            t.silent_ms,
            t.poll_ms
        );
        let tls = [&self.feed.ca, &self.feed.cert, &self.feed.key];
        let given = tls.iter().filter(|file| file.is_some()).count();
        ensure!(
            given == 0 || given == 3,
            "feed.ca, feed.cert and feed.key belong together"
        );
        ensure!(
            given == 3 || self.feed.plaintext || self.listen.feed.ip().is_loopback(),
            "listen.feed ({}) is reached from other machines: set feed.ca, feed.cert and feed.key, \
             or feed.plaintext = true if the network itself is private",
            self.listen.feed
        );
        ensure!(
            t.lease_ttl_ms >= 1000,
            "times.lease_ttl_ms must be at least 1000: etcd counts s"
        );
        if self.redis.urls.is_empty() != self.etcd.endpoints.is_empty() {
            let (has, lacks) = if self.redis.urls.is_empty() {
                ("etcd.endpoints", "redis.urls")
            } else {
                ("redis.urls", "etcd.endpoints")
            };
            bail!(
                "{has} is set and {lacks} is not: a cluster needs both, the embedded default \
                 neither"
            );
        }
        Ok(())
    }

    /// No Redis and no etcd: everything in this process.
    #[must_use]
    pub(crate) fn embedded(&self) -> bool {
        self.redis.urls.is_empty() && self.etcd.endpoints.is_empty()
    }

    /// How long a new epoch settles.
    #[must_use]
    pub(crate) fn settle_ms(&self) -> u64 {
        self.times.holder_ttl_ms.max(self.times.session_ttl_ms)
    }
}

/// A time constant as a duration.
#[must_use]
pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together_and_are_embedded() {
        let config = Config::default();
        config.check().unwrap();
        assert!(config.embedded());
    }

    #[test]
    fn what_does_not_fit_is_said_with_its_reason() {
        let wrong = |bend: fn(&mut Config)| {
            let mut config = Config::default();
            bend(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(wrong(|c| c.times.session_ttl_ms = 20_000).contains("one lost beat"));
        assert!(wrong(|c| c.times.holder_ttl_ms = 12_000).contains("two lost renewals"));
        assert!(wrong(|c| c.times.heartbeat_ms = 22_000).contains("back elsewhere"));
        assert!(wrong(|c| c.times.silent_ms = 600).contains("once per poll"));
        assert!(wrong(|c| c.redis.urls.push("redis://h".into())).contains("etcd.endpoints is not"));
        assert!(wrong(|c| c.node.roles.clear()).contains("do nothing"));
        assert!(wrong(|c| c.feed.ca = Some("ca.pem".into())).contains("belong together"));
        assert!(wrong(|c| c.listen.feed.set_ip([0, 0, 0, 0].into())).contains("plaintext"));
    }

    #[test]
    fn the_default_file_reads_back_as_the_default() {
        let text = toml::to_string_pretty(&Config::default()).unwrap();
        let read: Config = Figment::from(Toml::string(&text)).extract().unwrap();
        assert_eq!(read, Config::default());
    }

    #[test]
    fn unknown_keys_are_refused_and_secrets_are_not_shown() {
        let unknown: Result<Config, _> =
            Figment::from(Toml::string("[times]\nlinger = 3")).extract();
        assert!(unknown.unwrap_err().to_string().contains("linger"));
        let mut config = Config::default();
        config.redis.urls.push("redis://u:secret@h".into());
        config.etcd.password = Some("secret".into());
        assert!(!format!("{config:?}").contains("secret"));
    }
}
