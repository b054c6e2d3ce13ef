//! A real cluster: 6 Redis, 3 etcd, two dispatchers with reapers, and gateways.

use std::time::Duration;

use adsum_client::{Client, Timing};
use adsum_tests::{EtcdCluster, Node, NodeOptions, RedisCluster, TestDir};
use anyhow::{Context, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

/// These tests measure times, and a machine may have two cores: one at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// How many times faster than the defaults.
pub(crate) fn scale() -> u32 {
    if std::env::var_os("ADSUM_SLOW").is_some() {
        1
    } else {
        2
    }
}

/// A time of the defaults, scaled.
pub(crate) fn scaled(ms: u64) -> Duration {
    Duration::from_millis(ms) / scale()
}

pub(crate) struct World {
    redis: RedisCluster,
    etcd: EtcdCluster,
    back: Vec<Node>,
    dir: TestDir,
    /// Given up last, when all processes are gone.
    _turn: SemaphorePermit<'static>,
}

impl World {
    pub(crate) async fn new(name: &str) -> Result<Self> {
        let _turn = TURN.acquire().await?;
        let mut world = Self {
            redis: RedisCluster::start(3, 1).await?,
            etcd: EtcdCluster::start(3).await?,
            back: Vec::new(),
            dir: TestDir::new(name)?,
            _turn,
        };
        for name in ["back-1", "back-2"] {
            let node = world.node(name, "dispatcher,reaper").await?;
            world.back.push(node);
        }
        Ok(world)
    }

    /// Dispatchers with reapers.
    pub(crate) fn back(&self) -> &[Node] {
        &self.back
    }

    /// Where it all is kept.
    pub(crate) fn redis(&self) -> &RedisCluster {
        &self.redis
    }

    pub(crate) async fn gateway(&self, name: &str) -> Result<Node> {
        self.node(name, "gateway").await
    }

    /// Waits until every shard has settled: before that nobody is closed, whatever happens.
    pub(crate) async fn settled(&self) -> Result<()> {
        let back = self.back.first().context("there are no reapers")?;
        adsum_tests::eventually("all shards settle", Duration::from_secs(90), || async {
            let shards = back.shards().await?.to_string();
            let settling = shards.matches("\"settling\":true").count();
            anyhow::ensure!(
                settling == 0 && shards.contains("\"settling\":false"),
                "{settling} do"
            );
            Ok(())
        })
        .await
    }

    async fn node(&self, name: &str, roles: &str) -> Result<Node> {
        let mut options = NodeOptions::fast(env!("CARGO_BIN_EXE_adsum"), name, roles)
            .in_cluster(&self.redis.urls(), &self.etcd.endpoints());
        let times = [
            ("HEARTBEAT_MS", 15_000),
            ("SESSION_TTL_MS", 45_000),
            ("LINGER_MS", 10_000),
            ("DRAIN_WINDOW_MS", 20_000),
            ("STOP_MS", 35_000),
            ("HELLO_MS", 10_000),
            ("ANSWER_MS", 2000),
            ("STUCK_MS", 10_000),
            ("ACK_TIMEOUT_MS", 5000),
            ("RENEW_MS", 5000),
            ("HOLDER_TTL_MS", 30_000),
            ("ALIVE_GAP_MS", 10_000),
            ("TOMB_MS", 60_000),
            ("POLL_MS", 500),
            ("SILENT_MS", 2000),
            ("COMPLETE_MS", 1000),
            ("SWEEP_MS", 1000),
        ];
        for (key, ms) in times {
            options = options.with(&format!("TIMES__{key}"), scaled(ms).as_millis());
        }
        let options = options
            .with("BOUNDS__INTERVAL_ABOVE", 100_000)
            .with("BOUNDS__COUNT_ABOVE", 200_000)
            .with("LIMITS__MESSAGES_PER_SECOND", 10_000)
            .with("LIMITS__MESSAGE_BURST", 10_000);
        Node::start(self.dir.path(), &options).await
    }
}

/// Where clients connect.
pub(crate) fn url(node: &Node) -> String {
    format!("ws://{}", node.public())
}

/// A client of these gateways.
pub(crate) fn builder(user: &str, gateways: &[String]) -> adsum_client::Builder {
    Client::builder()
        .endpoints(gateways.to_vec())
        .token(format!("dev:acme:{user}"))
        .timing(Timing::default().faster(scale()))
}

/// What a process has in memory, in KiB.
pub(crate) fn resident(node: &Node) -> Result<u64> {
    let pid = node.process().pid().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let line = line.context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
