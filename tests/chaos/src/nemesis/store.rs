//! Faults of Redis.

use std::time::Duration;

use adsum_tests::{RedisNode, history::Fault};
use anyhow::{Context, Result};
use rand::{RngExt, rngs::StdRng};
use redis::cmd;
use tokio::time::sleep;

use super::{Kind, Nemesis, step};
use crate::world::SHARDS;

/// Slots that move in one go.
const MOVED: usize = 3;

impl Nemesis {
    pub(super) async fn at_redis(&self, kind: Kind, lot: &mut StdRng) -> Result<String> {
        let redis = &self.world.redis;
        let keys = &self.world.keys;
        let slot = keys[lot.random_range(0..keys.len())].slot;
        let begin = self.record.now();
        let target = match kind {
            Kind::MasterKilled | Kind::MasterFrozen => {
                return self.fail_over(kind, slot).await;
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
                let shards = self.shards_of(master).await?;
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
                self.broke(begin, Fault::Failover { shards, lost: 1 });
                name(master)
            }
            Kind::RedisDelayed => {
                let delay = Duration::from_millis(lot.random_range(50..=500));
                let nodes = redis.nodes();
                let one = lot.random_range(0..nodes.len());
                let shards = self.shards_of(&nodes[one]).await?;
                nodes[one].proxy()?.delay(delay);
                self.wait(lot, 5_000, 30_000).await;
                nodes[one].proxy()?.heal();
                redis.wait_settled().await?;
                self.broke(begin, Fault::Stall(shards));
                name(&nodes[one])
            }
            Kind::Emptied => {
                redis.flush_all().await?;
                self.broke(begin, Fault::Flush((0..SHARDS).collect()));
                "all masters".to_owned()
            }
            Kind::FunctionsLost => {
                redis.function_flush().await?;
                "all masters".to_owned()
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
            Kind::RedisClock => {
                let master = redis.master_of(slot).await?;
                self.world.ledger.doubt(self.shards_of(master).await?);
                let clock = master.clock().context("its clock can't be set")?;
                let ms = step(lot, 1_000, 60_000) / i64::from(self.world.times.scale());
                clock.set(ms)?;
                self.wait(lot, 5_000, 40_000).await;
                clock.set(0)?;
                self.broke(begin, Fault::ClockStep(ms));
                self.broke(self.record.now(), Fault::ClockStep(-ms));
                name(master)
            }
            _ => {
                let shards = self.migrate(lot).await?;
                self.broke(begin, Fault::Stall(shards));
                format!("{MOVED} slots")
            }
        };
        Ok(target)
    }

    /// A master is lost, its replica takes over, and it comes back as a replica.
    async fn fail_over(&self, kind: Kind, slot: u16) -> Result<String> {
        let redis = &self.world.redis;
        let begin = self.record.now();
        let old = redis.master_of(slot).await?;
        let shards = self.shards_of(old).await?;
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
        self.broke(begin, Fault::Failover { shards, lost: 1 });
        redis.wait_settled().await?;
        // A second failover before the replica has it all would be another fault.
        sleep(Duration::from_millis(500)).await;
        Ok(name(old))
    }

    /// Moves some shards to another master; answers which.
    async fn migrate(&self, lot: &mut StdRng) -> Result<Vec<u16>> {
        let (redis, keys) = (&self.world.redis, &self.world.keys);
        let mut moved = Vec::new();
        for _ in 0..MOVED {
            let shard = lot.random_range(0..keys.len());
            let slot = keys[shard].slot;
            let source = redis.master_of(slot).await?;
            let masters = redis.masters().await?;
            let target = masters.into_iter().find(|m| m.id() != source.id());
            let target = target.context("there is only one master")?;
            let pause = Some(Duration::from_millis(20));
            redis.migrate_slot(slot, target, pause).await?;
            moved.push(u16::try_from(shard)?);
        }
        Ok(moved)
    }

    /// The shards that a node serves: none if it is a replica.
    async fn shards_of(&self, node: &RedisNode) -> Result<Vec<u16>> {
        let slots = self.world.redis.slots_of(node).await?;
        let served = |slot: u16| slots.iter().any(|range| range.contains(&slot));
        let shards = (0..).zip(&self.world.keys);
        let shards = shards.filter(|(_, keys)| served(keys.slot));
        Ok(shards.map(|(shard, _)| shard).collect())
    }
}

fn name(node: &RedisNode) -> String {
    format!("redis-{}", node.port())
}
