//! Moving a slot from one master to another under load, as `redis-cli --cluster reshard` does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::{Cmd, cmd};
use tokio::time::sleep;

use super::cluster::{RedisCluster, RedisNode};
use crate::wait::{LIMIT, eventually};

/// Keys moved at once: one, so that clients meet the slot in every state between.
const PAGE: usize = 1;
const MIGRATE_LIMIT: Duration = Duration::from_secs(5);

impl RedisCluster {
    /// Moves `slot` with its keys to `target`, a master, and waits until all live nodes agree.
    /// `pause` passes between two keys, while clients meet `ASK`.
    pub async fn migrate_slot(
        &self,
        slot: u16,
        target: &RedisNode,
        pause: Option<Duration>,
    ) -> Result<()> {
        let source = self.master_of(slot).await?;
        ensure!(source.id != target.id, "slot {slot} is already there");
        target
            .query::<()>(set_slot(slot).arg("IMPORTING").arg(&source.id))
            .await?;
        source
            .query::<()>(set_slot(slot).arg("MIGRATING").arg(&target.id))
            .await?;
        while move_page(slot, source, target).await? {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
        self.hand_over(slot, source, target).await?;
        let what = format!("all nodes know the new owner of slot {slot}");
        eventually(&what, LIMIT, || async {
            ensure!(
                self.agreed_owner(slot).await?.id == target.id,
                "it is still the old one"
            );
            Ok(())
        })
        .await
    }

    /// The target is told first: if the move ends here, the slot has an owner.
    async fn hand_over(&self, slot: u16, source: &RedisNode, target: &RedisNode) -> Result<()> {
        let involved = [&source.id, &target.id];
        let masters = self.masters().await?;
        let others = masters
            .into_iter()
            .filter(|node| !involved.contains(&&node.id));
        for node in [target, source].into_iter().chain(others) {
            node.query::<()>(set_slot(slot).arg("NODE").arg(&target.id))
                .await?;
        }
        Ok(())
    }
}

fn set_slot(slot: u16) -> Cmd {
    let mut command = cmd("CLUSTER");
    command.arg("SETSLOT").arg(slot);
    command
}

/// Whether there was anything left to move. New keys are none: the source sends their clients
/// to the target.
async fn move_page(slot: u16, source: &RedisNode, target: &RedisNode) -> Result<bool> {
    let keys: Vec<Vec<u8>> = source
        .query(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(PAGE))
        .await?;
    if keys.is_empty() {
        return Ok(false);
    }
    let mut command = cmd("MIGRATE");
    command.arg("127.0.0.1").arg(target.port()).arg("").arg(0);
    command
        .arg(MIGRATE_LIMIT.as_millis() as u64)
        .arg("KEYS")
        .arg(keys);
    source.query::<()>(&command).await.context("move keys")?;
    Ok(true)
}
