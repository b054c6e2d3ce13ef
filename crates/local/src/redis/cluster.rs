//! The nodes of a running cluster, and questions about who is who among them.

use std::ops::{Deref, RangeInclusive};

use anyhow::{Context, Result, ensure};
use redis::cmd;

use super::process::RedisProcess;
use super::view::View;
use crate::lock::FileLock;
use crate::ports::Ports;
use crate::proxy::Proxy;
use crate::temp::TestDir;
use crate::wait::{LIMIT, eventually};

/// One node of a cluster.
#[derive(Debug)]
pub struct RedisNode {
    pub(super) id: String,
    pub(super) bus_port: u16,
    pub(super) process: RedisProcess,
    pub(super) proxy: Option<Proxy>,
}

impl RedisNode {
    /// Its id within the cluster.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The proxy before it, in a cluster that was started with proxies.
    pub fn proxy(&self) -> Result<&Proxy> {
        self.proxy
            .as_ref()
            .context("the cluster was started without proxies")
    }

    /// Where clients connect: to its proxy, if it has one.
    pub fn url(&self) -> String {
        let address = self
            .proxy
            .as_ref()
            .map_or(self.process.address(), Proxy::address);
        format!("redis://{address}")
    }

    pub(super) async fn view(&self) -> Result<View> {
        View::parse(&self.query::<String>(cmd("CLUSTER").arg("NODES")).await?)
    }
}

impl Deref for RedisNode {
    type Target = RedisProcess;

    fn deref(&self) -> &RedisProcess {
        &self.process
    }
}

/// A Redis Cluster. Dropped, its processes are killed.
#[derive(Debug)]
pub struct RedisCluster {
    pub(super) nodes: Vec<RedisNode>,
    // Dropped after the processes that use them.
    pub(super) _ports: Ports,
    pub(super) _dir: TestDir,
    pub(super) _place: FileLock,
}

impl RedisCluster {
    /// Where clients connect, one address per node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisNode::url).collect()
    }

    /// All nodes, dead ones included: first those that began as masters, then the replicas.
    pub fn nodes(&self) -> &[RedisNode] {
        &self.nodes
    }

    /// The node at `index`.
    pub fn node(&self, index: usize) -> Result<&RedisNode> {
        self.nodes
            .get(index)
            .with_context(|| format!("no node {index}"))
    }

    /// The slot of a key.
    pub async fn slot_of(&self, key: &str) -> Result<u16> {
        let node = self.live().next().context("no node is live")?;
        node.query(cmd("CLUSTER").arg("KEYSLOT").arg(key)).await
    }

    /// The live masters that own slots.
    pub async fn masters(&self) -> Result<Vec<&RedisNode>> {
        let mut masters = Vec::new();
        for node in self.live() {
            if !node.view().await?.myself()?.slots.is_empty() {
                masters.push(node);
            }
        }
        Ok(masters)
    }

    /// The owner of `slot`, by the newest of the live nodes' views. It may be dead.
    pub async fn master_of(&self, slot: u16) -> Result<&RedisNode> {
        let mut newest = None;
        for node in self.live() {
            if let Some(owner) = node.view().await?.owner(slot) {
                newest = newest.max(Some((owner.epoch, owner.id.clone())));
            }
        }
        let (_, id) = newest.with_context(|| format!("nobody owns slot {slot}"))?;
        self.by_id(&id)
    }

    /// The slots that a live node serves, as it knows itself: none if it is a replica.
    pub async fn slots_of(&self, node: &RedisNode) -> Result<Vec<RangeInclusive<u16>>> {
        Ok(node.view().await?.myself()?.slots.clone())
    }

    /// The live nodes that follow `master`.
    pub async fn replicas_of(&self, master: &RedisNode) -> Result<Vec<&RedisNode>> {
        let mut replicas = Vec::new();
        for node in self.live() {
            if node.view().await?.myself()?.master.as_ref() == Some(&master.id) {
                replicas.push(node);
            }
        }
        Ok(replicas)
    }

    /// Kills the master of `slot`, and returns it.
    pub async fn kill_master_of(&self, slot: u16) -> Result<&RedisNode> {
        let master = self.master_of(slot).await?;
        master.process().kill()?;
        Ok(master)
    }

    /// Waits until all live nodes agree that another node than `old` is the master of `slot`,
    /// and that the cluster is well; returns the new master.
    pub async fn wait_failover(&self, slot: u16, old: &RedisNode) -> Result<&RedisNode> {
        let what = format!("a new master for slot {slot}");
        eventually(&what, LIMIT, || async {
            let owner = self.agreed_owner(slot).await?;
            ensure!(owner.id != old.id, "it is still the old one");
            Ok(owner)
        })
        .await
    }

    /// Waits until every live node is well in the eyes of all others, each has the role that it
    /// claims, and each replica is in sync: after a start, a restart or a resume.
    pub async fn wait_settled(&self) -> Result<()> {
        eventually("the cluster settles", LIMIT, || self.settled()).await
    }

    /// Removes every key of every master.
    pub async fn flush_all(&self) -> Result<()> {
        for master in self.masters().await? {
            master.flush_all().await?;
        }
        Ok(())
    }

    /// Makes every master forget every function, and its replicas with it.
    pub async fn function_flush(&self) -> Result<()> {
        for master in self.masters().await? {
            master.function_flush().await?;
        }
        Ok(())
    }

    /// Changes a setting of every node.
    pub async fn configure(&self, name: &str, value: &str) -> Result<()> {
        for node in &self.nodes {
            node.query::<()>(cmd("CONFIG").arg("SET").arg(name).arg(value))
                .await
                .with_context(|| format!("Redis does not take {name} {value}"))?;
        }
        Ok(())
    }

    /// The processor time that the masters have used since they started.
    pub async fn cpu_seconds(&self) -> Result<f64> {
        let mut sum = 0.0;
        for master in self.masters().await? {
            sum += master.cpu_seconds().await?;
        }
        Ok(sum)
    }

    /// The bytes that the masters have allocated.
    pub async fn used_memory(&self) -> Result<u64> {
        let mut sum = 0;
        for master in self.masters().await? {
            sum += master.used_memory().await?;
        }
        Ok(sum)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &RedisNode> {
        self.nodes.iter().filter(|node| node.process().is_live())
    }

    fn by_id(&self, id: &str) -> Result<&RedisNode> {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.with_context(|| format!("{id} is not one of our nodes"))
    }

    /// The owner of `slot` in the view of every live node, all of which find the cluster well.
    pub(super) async fn agreed_owner(&self, slot: u16) -> Result<&RedisNode> {
        let mut agreed = None;
        for node in self.live() {
            ensure_ok(node).await?;
            let view = node.view().await?;
            let owner = view
                .owner(slot)
                .context("a node knows no owner")?
                .id
                .clone();
            ensure!(
                *agreed.get_or_insert(owner.clone()) == owner,
                "the nodes disagree"
            );
        }
        self.by_id(&agreed.context("no node is live")?)
    }

    async fn settled(&self) -> Result<()> {
        let mut views = Vec::new();
        for node in self.live() {
            ensure_ok(node).await?;
            views.push((node, node.view().await?));
        }
        for (node, own) in &views {
            let claim = own.myself()?;
            for (_, view) in &views {
                let seen = view
                    .member(&node.id)
                    .context("a node is not known to all")?;
                ensure!(seen.is_well(), "a node is doubted");
                let known = seen.master == claim.master && seen.slots == claim.slots;
                ensure!(known, "a role is not known to all");
            }
            if claim.is_replica() {
                let link = node.info("replication").await?.remove("master_link_status");
                ensure!(link.as_deref() == Some("up"), "a replica is not in sync");
            }
        }
        Ok(())
    }
}

async fn ensure_ok(node: &RedisNode) -> Result<()> {
    let info = node.cluster_info().await?;
    let state = info.get("cluster_state").map(String::as_str);
    ensure!(
        state == Some("ok"),
        "the cluster is not well for {}",
        node.id
    );
    Ok(())
}
