//! Real etcd: one process or three, that can be killed, restarted, and wiped at the same
//! addresses.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::ports::Ports;
use crate::temp::TestDir;
use crate::wait::{LIMIT, eventually};

mod member;

pub use member::EtcdMember;
use member::Plan;

/// A heartbeat with which another leader is found in half a second; etcd's default is 100 ms.
const FAST: Duration = Duration::from_millis(50);

/// An etcd cluster. Dropped, its processes are killed.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    // Dropped after the processes that use them.
    _ports: Ports,
    _dir: TestDir,
}

impl EtcdCluster {
    /// Starts `members` processes, best 1 or 3, and waits until all are ready. The data are in
    /// memory where possible: etcd syncs every write, and no option of 3.4 spares it that.
    pub async fn start(members: usize) -> Result<Self> {
        Self::start_with(members, FAST).await
    }

    /// The same; the leader says so often that it is there, and is given up after ten times that.
    pub async fn start_with(members: usize, heartbeat: Duration) -> Result<Self> {
        let (dir, ports) = (TestDir::in_memory("etcd")?, Ports::default());
        let mut plans = Vec::new();
        for index in 0..members {
            let name = format!("etcd-{index}");
            plans.push(Plan {
                name,
                client: ports.take()?,
                peer: ports.take()?,
            });
        }
        let peers: Vec<String> = plans.iter().map(Plan::as_peer).collect();
        let peers = peers.join(",");
        let members = plans
            .iter()
            .map(|plan| plan.start(&dir, &peers, heartbeat))
            .collect::<Result<_>>()?;
        let cluster = Self {
            members,
            _ports: ports,
            _dir: dir,
        };
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// Where clients connect, one address per member.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(EtcdMember::endpoint).collect()
    }

    /// All members, dead ones included.
    pub fn members(&self) -> &[EtcdMember] {
        &self.members
    }

    /// The member at `index`.
    pub fn member(&self, index: usize) -> Result<&EtcdMember> {
        self.members
            .get(index)
            .with_context(|| format!("no member {index}"))
    }

    /// The live member that leads, once there is one.
    pub async fn leader(&self) -> Result<&EtcdMember> {
        eventually("etcd has a leader", LIMIT, || async {
            for member in self.live() {
                if member.leads().await? {
                    return Ok(member);
                }
            }
            anyhow::bail!("nobody leads")
        })
        .await
    }

    /// Waits until every live member serves linearizable reads.
    pub async fn wait_ready(&self) -> Result<()> {
        for member in self.live() {
            member.wait_ready().await?;
        }
        Ok(())
    }

    /// SIGKILL to all members.
    pub fn kill_all(&self) -> Result<()> {
        self.members
            .iter()
            .try_for_each(|member| member.process().kill())
    }

    /// SIGTERM to one member after the other.
    pub async fn stop_all(&self) -> Result<()> {
        for member in &self.members {
            member.process().stop().await?;
        }
        Ok(())
    }

    /// Starts all members again, with their data, and waits until they are ready.
    pub async fn restart_all(&self) -> Result<()> {
        for member in &self.members {
            member.process().restart().await?;
        }
        self.wait_ready().await
    }

    /// Kills all members and starts them at the same addresses with no data.
    pub async fn wipe_and_restart(&self) -> Result<()> {
        self.kill_all()?;
        for member in &self.members {
            member.wipe()?;
        }
        self.restart_all().await
    }

    fn live(&self) -> impl Iterator<Item = &EtcdMember> {
        self.members
            .iter()
            .filter(|member| member.process().is_live())
    }
}
