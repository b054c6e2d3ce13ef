//! Nodes on a real etcd, and a hand in it.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use adsum_cluster::conformance::{Fixture, profile};
use adsum_cluster::{EtcdConfig, EtcdMembership, Profile};
use adsum_core::NodeId;
use adsum_core::membership::Membership;
use anyhow::{Context, Result};
use async_trait::async_trait;
use etcd_client::{Client, PutOptions};

/// Short, and long enough for an election in etcd with its time-out of 500 ms.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// A cluster of its own in an etcd.
pub(crate) struct OnEtcd {
    pub(crate) endpoints: Vec<String>,
    pub(crate) cluster: String,
    pub(crate) ttl: Duration,
}

impl OnEtcd {
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cluster = format!("test-{}", NEXT.fetch_add(1, Relaxed));
        Self {
            endpoints,
            cluster,
            ttl: TTL,
        }
    }

    pub(crate) fn config(&self) -> EtcdConfig {
        EtcdConfig {
            lease_ttl: self.ttl,
            ..EtcdConfig::new(self.endpoints.clone(), &self.cluster)
        }
    }

    pub(crate) async fn node(&self, name: &str) -> Result<EtcdMembership> {
        Ok(EtcdMembership::connect(self.config(), profile(name)).await?)
    }

    /// A node that reaches etcd by another address.
    pub(crate) async fn node_via(&self, name: &str, endpoint: String) -> Result<EtcdMembership> {
        let config = EtcdConfig {
            endpoints: vec![endpoint],
            ..self.config()
        };
        Ok(EtcdMembership::connect(config, profile(name)).await?)
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.endpoints, None).await?)
    }

    pub(crate) fn key(&self, node: &NodeId) -> String {
        format!("/adsum/{}/nodes/{node}", self.cluster)
    }

    /// Writes so many revisions beside the cluster.
    pub(crate) async fn age(&self, revisions: usize) -> Result<()> {
        let mut client = self.client().await?;
        for _ in 0..revisions {
            client.put("/other", "x", None::<PutOptions>).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Fixture for OnEtcd {
    async fn join(&self, profile: Profile) -> Result<Arc<dyn Membership>> {
        Ok(Arc::new(
            EtcdMembership::connect(self.config(), profile).await?,
        ))
    }

    async fn end_lease(&self, node: &NodeId) -> Result<()> {
        let mut client = self.client().await?;
        let found = client.get(self.key(node), None).await?;
        let lease = found.kvs().first().context("no such node")?.lease();
        client.lease_revoke(lease).await?;
        Ok(())
    }
}

/// A node id that is not the old one.
pub(crate) fn other_than(old: &NodeId) -> impl Fn(&Option<NodeId>) -> bool {
    move |node| node.as_ref().is_some_and(|node| node != old)
}
