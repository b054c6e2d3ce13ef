//! The cluster: six Redis and three etcd behind proxies or not, and nodes of one role each, so
//! that each role can be broken by itself.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex as StdMutex, PoisonError},
    time::Duration,
};

use adsum_store::{Keys, RedisStore};
use adsum_tests::{
    ClusterOptions, EtcdCluster, FakeClock, Node, NodeOptions, Ports, Proxy, RedisCluster, TestDir,
    eventually,
};
use anyhow::{Context, Result, ensure};
use tokio::sync::Mutex;

use crate::{
    cast::{Gate, Passes, Stage},
    filter::{Cut, Filter, Way},
    times::Times,
    witness::{self, FILTER, Ledger},
};

/// Shards of the cluster.
pub const SHARDS: u16 = 64;

/// Bounds so low that a run reaches them: what happens there is part of what is shown.
pub const LOG_LEN: u64 = 500;
const FEED_QUEUE: u64 = 2_000;
const OUTBOX_ENTRIES: u64 = 300;

const GATEWAYS: usize = 3;
const DISPATCHERS: usize = 3;
const REAPERS: usize = 2;

/// A node, and how its lines can be broken.
#[derive(Debug)]
pub struct Part {
    /// The process.
    pub node: Node,
    /// The group it runs as, if there is a packet filter.
    group: Option<u32>,
    /// The proxy before its feed, if it is a dispatcher.
    pub feed: Option<Proxy>,
    /// Its clock, if it is a gateway.
    pub clock: Option<FakeClock>,
}

impl Part {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.node.name().to_owned()
    }

    /// What it does.
    #[must_use]
    pub fn role(&self) -> &str {
        let name = self.node.name();
        name.split_once('-').map_or(name, |(role, _)| role)
    }

    /// Where clients connect.
    #[must_use]
    pub fn public(&self) -> SocketAddr {
        self.node.public()
    }
}

/// What only one fault at a time may break: two at once could leave nobody to serve, and that is
/// another fault than either.
#[derive(Debug, Default)]
pub struct Turns {
    /// The gateways.
    pub gateways: Mutex<()>,
    /// The dispatchers.
    pub dispatchers: Mutex<()>,
    /// The reapers.
    pub reapers: Mutex<()>,
    /// Redis.
    pub redis: Mutex<()>,
    /// The members of etcd.
    pub etcd: Mutex<()>,
}

/// A running cluster. Dropped, all of it is killed.
#[derive(Debug)]
pub struct World {
    /// Where clients come in.
    pub gateways: Vec<Part>,
    /// Who feeds the gateways.
    pub dispatchers: Vec<Part>,
    /// Who sweeps.
    pub reapers: Vec<Part>,
    /// The store.
    pub redis: RedisCluster,
    /// The registry.
    pub etcd: EtcdCluster,
    /// How fast it is.
    pub times: Times,
    /// Whose turn it is to be broken.
    pub turns: Turns,
    /// The keys of each shard.
    pub keys: Vec<Keys>,
    /// What the reapers said of their sweeps.
    pub ledger: Ledger,
    /// Where each node's log was read up to.
    checked: StdMutex<BTreeMap<String, u64>>,
    filter: Option<Arc<Filter>>,
    _ports: Ports,
    dir: TestDir,
}

impl World {
    /// Starts a cluster of this binary, and waits until everybody is served and all shards have
    /// settled.
    pub async fn start(binary: &Path, times: Times) -> Result<Self> {
        ensure!(binary.exists(), "{} does not exist", binary.display());
        let options = ClusterOptions {
            proxied: true,
            clocks: true,
            ..ClusterOptions::default()
        };
        let (redis, etcd) =
            tokio::try_join!(RedisCluster::start_with(options), EtcdCluster::start(3))?;
        let mut world = Self {
            gateways: Vec::new(),
            dispatchers: Vec::new(),
            reapers: Vec::new(),
            redis,
            etcd,
            times,
            turns: Turns::default(),
            keys: Keys::of_all("adsum", 1, SHARDS),
            ledger: Ledger::default(),
            checked: StdMutex::default(),
            // Without a packet filter there are no cuts, and all else is as it is.
            filter: Filter::new().ok(),
            _ports: Ports::default(),
            dir: TestDir::new("chaos")?,
        };
        for n in 0..REAPERS {
            let part = world.part(binary, "reaper", n).await?;
            world.reapers.push(part);
        }
        for n in 0..DISPATCHERS {
            let part = world.part(binary, "dispatcher", n).await?;
            world.dispatchers.push(part);
        }
        for n in 0..GATEWAYS {
            let part = world.part(binary, "gateway", n).await?;
            world.gateways.push(part);
        }
        world.served().await?;
        Ok(world)
    }

    async fn part(&self, binary: &Path, role: &str, n: usize) -> Result<Part> {
        let parts = [&self.gateways, &self.dispatchers, &self.reapers];
        let number = u32::try_from(parts.iter().map(|p| p.len()).sum::<usize>())?;
        let (binary, group) = self.grouped(binary, number)?;
        let mut options = NodeOptions::fast(binary, &format!("{role}-{n}"), role)
            .in_cluster(&self.redis.urls(), &self.etcd.endpoints());
        for (key, ms) in self.times.settings() {
            options = options.with(&key, ms);
        }
        for (key, value) in [
            ("BOUNDS__LOG_LEN", LOG_LEN),
            ("BOUNDS__FEED_QUEUE", FEED_QUEUE),
            ("BOUNDS__OUTBOX_ENTRIES", OUTBOX_ENTRIES),
            ("BOUNDS__INTERVAL_ABOVE", 100_000),
            ("BOUNDS__COUNT_ABOVE", 200_000),
            ("LIMITS__MESSAGES_PER_SECOND", 10_000),
            ("LIMITS__MESSAGE_BURST", 10_000),
        ] {
            options = options.with(key, value);
        }
        if role == "reaper" {
            options = options
                .with("LOG__FILTER", FILTER)
                .with("LOG__JSON", "true");
        }
        // The others do nothing by the time of day.
        if role == "gateway" {
            options.clock = Some(FakeClock::new(self.dir.path(), &options.name)?);
        }
        let feed = if role == "dispatcher" {
            let address = SocketAddr::from(([127, 0, 0, 1], self._ports.take()?));
            let proxy = Proxy::start(address)?;
            options.feed = Some(address);
            options.advertise = Some(proxy.address());
            Some(proxy)
        } else {
            None
        };
        let node = Node::start(self.dir.path(), &options).await?;
        let clock = options.clock;
        Ok(Part {
            node,
            group,
            feed,
            clock,
        })
    }

    fn grouped(&self, binary: &Path, number: u32) -> Result<(PathBuf, Option<u32>)> {
        match &self.filter {
            Some(filter) => {
                let (wrapper, group) = filter.wrapper(self.dir.path(), binary, number)?;
                Ok((wrapper, Some(group)))
            }
            None => Ok((binary.to_owned(), None)),
        }
    }

    /// A store of its own, beside those of the nodes.
    pub async fn store(&self) -> Result<RedisStore> {
        witness::store(self.redis.urls(), self.times, SHARDS, LOG_LEN).await
    }

    /// The cluster as a cast of this tenant knows it.
    #[must_use]
    pub fn stage(&self, tenant: &str) -> Stage {
        let gate = |part: &Part| Gate {
            name: part.name(),
            address: part.public(),
        };
        Stage {
            tenant: tenant.to_owned(),
            gates: self.gateways.iter().map(gate).collect(),
            shards: SHARDS,
            times: self.times,
            passes: Passes::unsigned(),
        }
    }

    /// Whether lines of single nodes can be cut.
    #[must_use]
    pub fn can_cut(&self) -> bool {
        self.filter.is_some()
    }

    /// All nodes.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.gateways
            .iter()
            .chain(&self.dispatchers)
            .chain(&self.reapers)
    }

    /// Waits until every gateway is fed by everybody who can, every shard has a reaper, and every
    /// shard has settled.
    pub async fn served(&self) -> Result<()> {
        eventually("everybody is served", Duration::from_secs(90), || async {
            let mut reaped = 0;
            for part in self.parts() {
                let ready = part.node.readyz().await?;
                if let Some(gateway) = ready.get("gateway").filter(|g| g.is_object()) {
                    ensure!(
                        gateway["dispatchers"] == DISPATCHERS,
                        "no dispatchers: {ready}"
                    );
                    ensure!(gateway["stale_shards"] == 0, "stale: {ready}");
                }
                reaped += ready["reaper"]["shards"].as_u64().unwrap_or(0);
            }
            ensure!(reaped == u64::from(SHARDS), "{reaped} shards are reaped");
            for reaper in &self.reapers {
                let shards = reaper.node.shards().await?.to_string();
                let settling = shards.matches("\"settling\":true").count();
                ensure!(settling == 0, "{settling} shards settle");
            }
            Ok(())
        })
        .await
    }

    /// Loses packets between a node and Redis.
    pub fn cut_redis(&self, part: &Part, way: Way) -> Result<Cut> {
        let proxies = self.redis.nodes().iter();
        let ports = proxies.map(|n| Ok(n.proxy()?.address().port()));
        self.cut(part, &ports.collect::<Result<Vec<_>>>()?, way)
    }

    /// Loses packets between a gateway and all dispatchers.
    pub fn cut_feed(&self, part: &Part, way: Way) -> Result<Cut> {
        let proxies = self.dispatchers.iter().filter_map(|d| d.feed.as_ref());
        let ports: Vec<_> = proxies.map(|p| p.address().port()).collect();
        self.cut(part, &ports, way)
    }

    /// Loses packets between a node and etcd.
    pub fn cut_etcd(&self, part: &Part, way: Way) -> Result<Cut> {
        let ports: Vec<u16> = self
            .etcd
            .endpoints()
            .iter()
            .filter_map(|url| url.rsplit(':').next()?.parse().ok())
            .collect();
        self.cut(part, &ports, way)
    }

    fn cut(&self, part: &Part, ports: &[u16], way: Way) -> Result<Cut> {
        let filter = self.filter.as_ref().context("there is no packet filter")?;
        let group = part.group.context("it runs in no group of its own")?;
        filter.cut(group, ports, way)
    }

    /// Nobody has panicked, and everything runs.
    pub fn check(&self) -> Result<()> {
        for part in self.parts() {
            let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            let offset = checked.entry(part.name()).or_default();
            let (log, next) = part.node.process().log_from(*offset)?;
            *offset = next;
            let panic = log.lines().find(|line| line.contains("panicked at"));
            ensure!(panic.is_none(), "{}: {}", part.name(), panic.unwrap_or(""));
            ensure!(
                part.node.process().is_running(),
                "{} has ended",
                part.name()
            );
        }
        Ok(())
    }
}
