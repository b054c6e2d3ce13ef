//! Starting a cluster: single servers first, then what `redis-cli --cluster create` does, but
//! without its guesses about which node should be what.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use redis::cmd;

use super::SLOTS;
use super::cluster::{RedisCluster, RedisNode};
use super::process::RedisProcess;
use super::server::{Auth, append_only, yes_no};
use crate::clock::FakeClock;
use crate::lock::FileLock;
use crate::ports::Ports;
use crate::proxy::Proxy;
use crate::temp::TestDir;
use crate::wait::{LIMIT, eventually};

/// Clusters that run at once on one machine. More of them starve each other of processor time,
/// and then nodes find each other dead that are only slow.
const MAX_CLUSTERS: usize = 2;

/// How long to wait for a place among them.
const PLACE_LIMIT: Duration = Duration::from_secs(300);

/// How to start a [`RedisCluster`].
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The nodes that share the slots.
    pub masters: usize,
    /// How many nodes follow each of them.
    pub replicas_per_master: usize,
    /// How long a node may be silent before the others doubt it (`cluster-node-timeout`).
    pub node_timeout: Duration,
    /// Whether one slot without a master stops the others (`cluster-require-full-coverage`).
    pub full_coverage: bool,
    /// Whether the nodes keep append-only files, and with them their data over a restart.
    pub append_only: bool,
    /// Whether clients reach each node through a [`Proxy`]. A node announces its proxy's port,
    /// so clients that follow `MOVED` stay behind the proxies. The bus between the nodes is
    /// direct; replication goes to the announced port, and so through the master's proxy.
    pub proxied: bool,
    /// Whether the clock of each node can be set.
    pub clocks: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            masters: 3,
            replicas_per_master: 1,
            node_timeout: Duration::from_secs(1),
            full_coverage: false,
            append_only: false,
            proxied: false,
            clocks: false,
        }
    }
}

impl RedisCluster {
    /// Starts a cluster and waits until all of it is ready. At most two run at once on a
    /// machine; a start beyond that waits for its turn.
    pub async fn start(masters: usize, replicas_per_master: usize) -> Result<Self> {
        let options = ClusterOptions {
            masters,
            replicas_per_master,
            ..Default::default()
        };
        Self::start_with(options).await
    }

    /// [`start`](Self::start) with a proxy before every node: see [`ClusterOptions::proxied`].
    pub async fn start_proxied(masters: usize, replicas_per_master: usize) -> Result<Self> {
        let options = ClusterOptions {
            masters,
            replicas_per_master,
            proxied: true,
            ..Default::default()
        };
        Self::start_with(options).await
    }

    /// [`start`](Self::start) with everything said.
    pub async fn start_with(options: ClusterOptions) -> Result<Self> {
        let [place] = places().await?;
        Self::start_in(place, options).await
    }

    /// Two clusters for one test. A test that started one after the other could wait for ever
    /// for a test that does the same.
    pub async fn start_two(one: ClusterOptions, two: ClusterOptions) -> Result<(Self, Self)> {
        let [place_of_one, place_of_two] = places().await?;
        tokio::try_join!(
            Self::start_in(place_of_one, one),
            Self::start_in(place_of_two, two)
        )
    }

    async fn start_in(place: FileLock, options: ClusterOptions) -> Result<Self> {
        ensure!(options.masters > 0, "a cluster needs a master");
        let (dir, ports) = (TestDir::new("redis-cluster")?, Ports::default());
        let mut nodes = Vec::new();
        for _ in 0..options.masters * (1 + options.replicas_per_master) {
            nodes.push(start_node(&dir, &ports, &options).await?);
        }
        let cluster = Self {
            nodes,
            _ports: ports,
            _dir: dir,
            _place: place,
        };
        cluster
            .join(options.masters)
            .await
            .context("make a cluster")?;
        cluster.wait_settled().await?;
        Ok(cluster)
    }

    async fn join(&self, masters: usize) -> Result<()> {
        let (masters, replicas) = self.nodes.split_at(masters);
        self.give_epochs().await?;
        give_slots(masters).await?;
        self.meet().await?;
        for (index, replica) in replicas.iter().enumerate() {
            follow(replica, &masters[index % masters.len()]).await?;
        }
        Ok(())
    }

    /// Epochs that differ from the start spare the masters the quarrel about who keeps his.
    async fn give_epochs(&self) -> Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut command = cmd("CLUSTER");
            node.query::<()>(command.arg("SET-CONFIG-EPOCH").arg(index + 1))
                .await?;
        }
        Ok(())
    }

    /// The first node meets the others; they learn of each other by gossip.
    async fn meet(&self) -> Result<()> {
        let [first, others @ ..] = &self.nodes[..] else {
            return Ok(());
        };
        for other in others {
            let mut command = cmd("CLUSTER");
            command
                .arg("MEET")
                .arg("127.0.0.1")
                .arg(other.port())
                .arg(other.bus_port);
            first.query::<()>(&command).await?;
        }
        Ok(())
    }
}

async fn places<const COUNT: usize>() -> Result<[FileLock; COUNT]> {
    let places = FileLock::claim_places("redis-clusters", MAX_CLUSTERS, COUNT, PLACE_LIMIT).await?;
    places.try_into().map_err(|_| anyhow!("not {COUNT} places"))
}

async fn start_node(dir: &TestDir, ports: &Ports, options: &ClusterOptions) -> Result<RedisNode> {
    let (port, bus_port) = (ports.take()?, ports.take()?);
    let mut settings = vec![
        ("cluster-enabled", yes_no(true)),
        ("cluster-port", bus_port.to_string()),
        ("cluster-announce-ip", "127.0.0.1".to_owned()),
        (
            "cluster-node-timeout",
            options.node_timeout.as_millis().to_string(),
        ),
        (
            "cluster-require-full-coverage",
            yes_no(options.full_coverage),
        ),
        ("cluster-replica-validity-factor", 0.to_string()),
        append_only(options.append_only),
    ];
    let mut proxy = None;
    if options.proxied {
        let started = proxy.insert(Proxy::start(([127, 0, 0, 1], port).into())?);
        settings.push((
            "cluster-announce-port",
            started.address().port().to_string(),
        ));
        settings.push(("cluster-announce-bus-port", bus_port.to_string()));
    }
    let folder = dir.folder(&port.to_string())?;
    let clock = match options.clocks {
        true => Some(FakeClock::new(&folder, "redis")?),
        false => None,
    };
    let process = RedisProcess::start(&folder, port, Auth::Open, &settings, clock).await?;
    let id = process.query(cmd("CLUSTER").arg("MYID")).await?;
    Ok(RedisNode {
        id,
        bus_port,
        process,
        proxy,
    })
}

async fn give_slots(masters: &[RedisNode]) -> Result<()> {
    let border = |index: usize| index * usize::from(SLOTS) / masters.len();
    for (index, master) in masters.iter().enumerate() {
        let mut command = cmd("CLUSTER");
        command
            .arg("ADDSLOTSRANGE")
            .arg(border(index))
            .arg(border(index + 1) - 1);
        master.query::<()>(&command).await?;
    }
    Ok(())
}

/// Refused until gossip has told the replica of its master.
async fn follow(replica: &RedisNode, master: &RedisNode) -> Result<()> {
    eventually("a replica follows", LIMIT, || async {
        replica
            .query(cmd("CLUSTER").arg("REPLICATE").arg(&master.id))
            .await
    })
    .await
}
