//! The local membership keeps the contract.

use std::sync::Arc;
use std::time::Duration;

use adsum_cluster::conformance::{Fixture, profile, until};
use adsum_cluster::{LocalCluster, Profile};
use adsum_core::NodeId;
use adsum_core::membership::Membership;
use anyhow::{Result, ensure};
use async_trait::async_trait;

struct Local(LocalCluster);

#[async_trait]
impl Fixture for Local {
    async fn join(&self, profile: Profile) -> Result<Arc<dyn Membership>> {
        Ok(Arc::new(self.0.join(profile)?))
    }

    async fn end_lease(&self, node: &NodeId) -> Result<()> {
        ensure!(self.0.expire(node), "no such node");
        Ok(())
    }
}

adsum_cluster::conformance!(Local(LocalCluster::new()));

#[tokio::test]
async fn a_registry_taken_away_behaves_like_a_lost_etcd() -> Result<()> {
    let cluster = LocalCluster::new();
    let node = cluster.join(profile("one"))?;
    let old = node.node();
    ensure!(node.campaign(1).await?);

    cluster.set_available(false);
    ensure!(node.members().stale && node.members().nodes.contains_key(&old));
    ensure!(node.lease_left() == Duration::ZERO && node.node() == old);
    ensure!(node.campaign(1).await.is_err_and(|error| error.retry()));
    ensure!(node.prove(1).await.is_err_and(|error| error.retry()));

    cluster.set_available(true);
    until(node.watch_node(), |node| {
        node.as_ref().is_some_and(|node| *node != old)
    })
    .await?;
    ensure!(!node.members().stale && !node.prove(1).await? && node.campaign(1).await?);
    Ok(())
}
