//! Faults of Redis.

use std::time::Duration;

use adsum_tests::{RedisNode, history::Fault};
use anyhow::{Context, Result};
use rand::{RngExt, rngs::StdRng};
use redis::cmd;
use tokio::time::sleep;

use super::{Kind, Nemesis};

/// Slots that move in one go.
const MOVED: usize = 3;

impl Nemesis {
    pub(super) async fn at_redis(&self, kind: Kind, lot: &mut StdRng) -> Result<String> {
        let redis = &self.world.redis;
        let shard = lot.random_range(0..self.world.slots.len());
        let slot = self.world.slots[shard];
        let shard = u16::try_from(shard)?;
        let begin = self.record.now();
        let target = match kind {
            Kind::MasterKilled | Kind::MasterFrozen => {
                return self.fail_over(kind, shard, slot).await;
            }
            Kind::ReplicaKilled | Kind::ReplicaFrozen => {
                let master = redis.master_of(slot).await?;
                let replicas = redis.replicas_of(master).await?;
                let replica = replicas.first().context("a master without a replica")?;
                if kind == Kind::ReplicaKilled {
                    replica.process().kill()?;
                    self.wait(lot, 5_000, 30_000).await;
                    replica.process().restart().await?;
                } else {
                    replica.process().pause()?;
                    self.wait(lot, 5_000, 30_000).await;
                    replica.process().resume()?;
                }
                redis.wait_settled().await?;
                name(replica)
            }
            Kind::ShardAway => {
                let master = redis.master_of(slot).await?;
                let replicas = redis.replicas_of(master).await?;
                for node in replicas.iter().copied().chain([master]) {
                    node.process().pause()?;
                }
                self.wait(lot, 5_000, 60_000).await;
                for node in replicas.iter().copied().chain([master]) {
                    node.process().resume()?;
                }
                redis.wait_settled().await?;
                // Whichever of the two serves now; the other may have written more.
                self.broke(begin, Fault::Failover { shard, lost: 1 });
                name(master)
            }
            Kind::RedisDelayed => {
                let delay = Duration::from_millis(lot.random_range(50..=500));
                let nodes = redis.nodes();
                let one = lot.random_range(0..nodes.len());
                nodes[one].proxy()?.delay(delay);
                self.wait(lot, 5_000, 30_000).await;
                nodes[one].proxy()?.heal();
                redis.wait_settled().await?;
                self.broke(begin, Fault::Stall(shard));
                name(&nodes[one])
            }
            Kind::Emptied => {
                redis.flush_all().await?;
                self.broke(begin, Fault::Flush(shard));
                "all masters".to_owned()
            }
            Kind::ScriptsLost => {
                redis.script_flush().await?;
                "all nodes".to_owned()
            }
            Kind::PushesLost => {
                for node in redis.nodes() {
                    let mut kill = cmd("CLIENT");
                    kill.arg("KILL").arg("TYPE").arg("pubsub");
                    node.query::<i64>(&kill).await?;
                }
                self.broke(begin, Fault::PushesLost("all".to_owned()));
                "all subscribers".to_owned()
            }
            _ => {
                self.migrate(lot).await?;
                self.broke(begin, Fault::Stall(shard));
                format!("{MOVED} slots")
            }
        };
        Ok(target)
    }

    /// A master is lost, its replica takes over, and it comes back as a replica.
    async fn fail_over(&self, kind: Kind, shard: u16, slot: u16) -> Result<String> {
        let redis = &self.world.redis;
        let begin = self.record.now();
        let old = redis.master_of(slot).await?;
        if kind == Kind::MasterKilled {
            old.process().kill()?;
        } else {
            old.process().pause()?;
        }
        let promoted = redis.wait_failover(slot, old).await;
        // Mended whatever happened, so that one fault that did not work is not the end of all.
        if kind == Kind::MasterKilled {
            old.process().restart().await?;
        } else {
            old.process().resume()?;
        }
        promoted?;
        self.broke(begin, Fault::Failover { shard, lost: 1 });
        redis.wait_settled().await?;
        // A second failover before the replica has it all would be another fault.
        sleep(Duration::from_millis(500)).await;
        Ok(name(old))
    }

    async fn migrate(&self, lot: &mut StdRng) -> Result<()> {
        let redis = &self.world.redis;
        for _ in 0..MOVED {
            let slot = self.world.slots[lot.random_range(0..self.world.slots.len())];
            let source = redis.master_of(slot).await?;
            let masters = redis.masters().await?;
            let target = masters.into_iter().find(|m| m.id() != source.id());
            let target = target.context("there is only one master")?;
            let pause = Some(Duration::from_millis(20));
            redis.migrate_slot(slot, target, pause).await?;
        }
        Ok(())
    }
}

fn name(node: &RedisNode) -> String {
    format!("redis-{}", node.port())
}
