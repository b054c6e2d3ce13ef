//! The service that is measured: one that runs, or a cluster that is started for it.

use std::{collections::BTreeMap, net::SocketAddr, ops::AddAssign, rc::Rc, time::Duration};

use adsum_local::{
    ClusterOptions, EtcdCluster, Machine, Node, NodeOptions, RedisCluster, TestDir, eventually,
};
use anyhow::{Context, Result, ensure};
use tokio::runtime::{Builder, Runtime};

use crate::{
    args::Target,
    usage::{self, Usages},
};

/// As etcd has it by itself.
const ETCD_HEARTBEAT: Duration = Duration::from_millis(100);

/// What is measured.
pub(crate) struct Stage {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) tenant: String,
    /// Processes of the service: of gateways, of the others, the masters of Redis, and what stands beside.
    pub(crate) gateways: Vec<u32>,
    others: Vec<u32>,
    redis: Vec<u32>,
    beside: Vec<u32>,
    /// Processes of ours besides this one.
    workers: Vec<u32>,
    cluster: Option<Local>,
}

/// A cluster on this machine; it ends with this.
struct Local {
    nodes: Vec<Node>,
    // Last: what is above ends on it.
    ground: Rc<Ground>,
}

/// What clusters of this machine stand on: Redis and etcd, which several may share.
pub(crate) struct Ground {
    redis: RedisCluster,
    etcd: EtcdCluster,
    logs: TestDir,
    // Last: what is above ends on it.
    pub(crate) runtime: Runtime,
}

impl Ground {
    pub(crate) fn lay() -> Result<Rc<Self>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let options = ClusterOptions {
            // The machine is full on purpose: nobody is dead who is only late.
            node_timeout: Duration::from_secs(15),
            ..ClusterOptions::default()
        };
        let (redis, etcd) = runtime.block_on(async {
            let etcd = EtcdCluster::start_with(3, ETCD_HEARTBEAT);
            tokio::try_join!(RedisCluster::start_with(options), etcd)
        })?;
        Ok(Rc::new(Self {
            redis,
            etcd,
            logs: TestDir::new("bench")?,
            runtime,
        }))
    }
}

impl Stage {
    pub(crate) fn set(target: &Target) -> Result<Self> {
        if target.cluster {
            return Self::start(&Ground::lay()?, "adsum", target);
        }
        Ok(Self {
            servers: target.server.clone(),
            tenant: target.tenant.clone(),
            gateways: target.pid.clone(),
            others: Vec::new(),
            redis: target.redis_pid.clone(),
            beside: Vec::new(),
            workers: Vec::new(),
            cluster: None,
        })
    }

    /// A cluster of this name.
    pub(crate) fn start(ground: &Rc<Ground>, name: &str, target: &Target) -> Result<Self> {
        let nodes = ground.runtime.block_on(start(ground, name, target))?;
        let (redis, etcd) = (&ground.redis, &ground.etcd);
        let pids = |role: &str| -> Vec<u32> {
            let of_role = nodes.iter().filter(|node| node.name().starts_with(role));
            of_role.filter_map(|node| node.process().pid()).collect()
        };
        // What Redis spends is what its masters do; replicas do the same again.
        let masters = ground.runtime.block_on(redis.masters())?;
        let masters: Vec<_> = masters.iter().filter_map(|m| m.process().pid()).collect();
        let all = redis.nodes().iter().filter_map(|node| node.process().pid());
        let replicas = all.filter(|pid| !masters.contains(pid));
        let etcd = etcd.members().iter();
        let etcd = etcd.filter_map(|member| member.process().pid());
        let beside = replicas.chain(etcd).collect();
        Ok(Self {
            servers: nodes
                .iter()
                .filter(|node| node.name().starts_with("gateway"))
                .map(Node::public)
                .collect(),
            tenant: target.tenant.clone(),
            gateways: pids("gateway"),
            others: pids("dispatcher"),
            redis: masters,
            beside,
            workers: Vec::new(),
            cluster: Some(Local {
                nodes,
                ground: ground.clone(),
            }),
        })
    }

    /// A process that works for this one: what it spends is the generator's.
    pub(crate) fn worker(&mut self, pid: u32) {
        self.workers.push(pid);
    }

    /// Another cluster on the same ground is not foreign.
    pub(crate) fn knows(&mut self, other: &Self) {
        for pids in [&other.gateways, &other.others, &other.workers] {
            self.beside.extend(pids);
        }
    }

    /// A token of a user.
    pub(crate) fn token(&self, user: &str) -> String {
        format!("dev:{}:{user}", self.tenant)
    }

    /// The server of the n-th client.
    pub(crate) fn server(&self, n: usize) -> Result<SocketAddr> {
        let count = self.servers.len().max(1);
        self.servers.get(n % count).copied().context("no server")
    }

    /// Kills a node of the own cluster by its name, and says which process that was.
    pub(crate) fn kill(&self, name: &str) -> Result<()> {
        let cluster = self.cluster.as_ref().context("only with --cluster")?;
        let node = cluster.nodes.iter().find(|node| node.name() == name);
        let names: Vec<_> = cluster.nodes.iter().map(Node::name).collect();
        let node = node.with_context(|| format!("{name} is none of {}", names.join(", ")))?;
        node.process().kill()
    }

    /// Calls to the store until now, of each node that runs, by what they ask for.
    pub(crate) fn store_calls(&self) -> Result<StoreCalls> {
        let cluster = self.cluster.as_ref().context("only with --cluster")?;
        let mut calls = BTreeMap::new();
        for node in cluster.nodes.iter().filter(|n| n.process().is_running()) {
            let text = cluster.ground.runtime.block_on(node.metrics())?;
            for (operation, count) in text.lines().filter_map(call_count) {
                let key = (node.name().to_owned(), operation.to_owned());
                *calls.entry(key).or_default() += count;
            }
        }
        Ok(StoreCalls(calls))
    }

    /// Whether leaves are told already. A shard that has just begun waits until all who may be
    /// there had time to say so.
    pub(crate) fn is_settled(&self) -> Result<bool> {
        let Some(cluster) = &self.cluster else {
            return Ok(true);
        };
        let dispatchers = cluster
            .nodes
            .iter()
            .filter(|n| n.name().starts_with("dispatcher"));
        for node in dispatchers {
            let shards = cluster.ground.runtime.block_on(node.shards())?;
            let mut shards = shards.as_object().into_iter().flatten();
            if shards.any(|(_, shard)| shard["log"]["settling"] != false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A look at what everything has spent until now.
    pub(crate) fn look(&self) -> Look {
        Look {
            gateways: usage::of(self.gateways.iter().copied()),
            others: usage::of(self.others.iter().copied()),
            redis: usage::of(self.redis.iter().copied()),
            beside: usage::of(self.beside.iter().copied()),
            own: usage::of(self.workers.iter().copied().chain([std::process::id()])),
            machine: Machine::now(),
        }
    }
}

/// What everything has spent until a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    pub(crate) gateways: Usages,
    others: Usages,
    redis: Usages,
    beside: Usages,
    own: Usages,
    machine: Machine,
}

/// What everything has spent between two looks, in seconds of one core.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) service: f64,
    pub(crate) redis: f64,
    pub(crate) generator: f64,
    /// By nobody of us.
    pub(crate) foreign: f64,
    /// Taken away from the machine by others on the same iron.
    pub(crate) steal: f64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.service += more.service;
        self.redis += more.redis;
        self.generator += more.generator;
        self.foreign += more.foreign;
        self.steal += more.steal;
    }
}

impl Look {
    pub(crate) fn since(&self, before: &Self) -> Spent {
        let part = |of: fn(&Self) -> &Usages| of(self).cpu_since(of(before)).as_secs_f64();
        let service = part(|look| &look.gateways) + part(|look| &look.others);
        let redis = part(|look| &look.redis);
        let generator = part(|look| &look.own);
        let known = service + redis + generator + part(|look| &look.beside);
        let machine = |of: fn(&Machine) -> Duration| {
            let spent = of(&self.machine).saturating_sub(of(&before.machine));
            spent.as_secs_f64()
        };
        Spent {
            service,
            redis,
            generator,
            foreign: (machine(|machine| machine.busy) - known).max(0.0),
            steal: machine(|machine| machine.steal),
        }
    }
}

/// Calls to the store, by node and by what they ask for.
#[derive(Debug)]
pub(crate) struct StoreCalls(BTreeMap<(String, String), u64>);

impl StoreCalls {
    /// Of all nodes together since then. What was killed meanwhile is left out.
    pub(crate) fn since(&self, before: &Self) -> BTreeMap<String, u64> {
        let mut calls = BTreeMap::new();
        for (key, count) in &self.0 {
            let count = count.saturating_sub(before.0.get(key).copied().unwrap_or(0));
            if count > 0 {
                *calls.entry(key.1.clone()).or_default() += count;
            }
        }
        calls
    }
}

/// The operation and the number of calls in a line of a gateway's metrics.
fn call_count(line: &str) -> Option<(&str, u64)> {
    let line = line.strip_prefix("db_client_operation_duration_seconds_count{")?;
    let (labels, count) = line.rsplit_once("} ")?;
    let (_, operation) = labels.split_once("db_operation_name=\"")?;
    Some((operation.split('"').next()?, count.trim().parse().ok()?))
}

async fn start(ground: &Ground, cluster: &str, target: &Target) -> Result<Vec<Node>> {
    let logs = ground.logs.folder(cluster)?;
    let binary = std::env::current_exe().context("where this binary is")?;
    let dispatchers = (0..target.dispatchers).map(|n| ("dispatcher", "dispatcher,reaper", n));
    let gateways = (0..target.gateways).map(|n| ("gateway", "gateway", n));
    for set in &target.redis {
        let (name, value) = set.split_once('=').context("--redis takes NAME=VALUE")?;
        ground.redis.configure(name, value).await?;
    }
    let mut nodes = Vec::new();
    for (name, roles, n) in dispatchers.chain(gateways) {
        let mut options = NodeOptions {
            settings: Vec::new(),
            ..NodeOptions::fast(&binary, &format!("{name}-{n}"), roles)
        };
        options = options
            .in_cluster(&ground.redis.urls(), &ground.etcd.endpoints())
            .with("CLUSTER__NAME", cluster)
            .with("CLUSTER__SHARDS", target.shards)
            .with("NODE__THREADS", target.threads())
            // A few clients do the work of many.
            .with("LIMITS__MESSAGES_PER_SECOND", 100_000)
            .with("LIMITS__MESSAGE_BURST", 100_000);
        for set in &target.set {
            let (key, value) = set.split_once('=').context("--set takes KEY=VALUE")?;
            options = options.with(key, value);
        }
        nodes.push(Node::start(&logs, &options).await?);
    }
    eventually("every gateway is fed", Duration::from_secs(60), || async {
        for gateway in nodes.iter().filter(|n| n.name().starts_with("gateway")) {
            let ready = gateway.readyz().await?;
            ensure!(
                ready["gateway"]["stale_shards"] == 0,
                "{} waits",
                gateway.name()
            );
        }
        Ok(())
    })
    .await?;
    Ok(nodes)
}
