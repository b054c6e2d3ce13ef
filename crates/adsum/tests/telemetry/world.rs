//! A cluster with its roles apart: two gateways, a dispatcher, a reaper.

use adsum_tests::{EtcdCluster, Node, NodeOptions, RedisCluster, TestDir, eventually};
use anyhow::{Result, ensure};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A machine may have two cores: one cluster at a time.
static TURN: Semaphore = Semaphore::const_new(1);

pub(crate) struct World {
    pub(crate) redis: RedisCluster,
    pub(crate) etcd: EtcdCluster,
    pub(crate) dir: TestDir,
    _turn: SemaphorePermit<'static>,
}

impl World {
    pub(crate) async fn new(name: &str) -> Result<Self> {
        let _turn = TURN.acquire().await?;
        Ok(Self {
            redis: RedisCluster::start(3, 1).await?,
            etcd: EtcdCluster::start(3).await?,
            dir: TestDir::new(name)?,
            _turn,
        })
    }

    pub(crate) async fn node(
        &self,
        name: &str,
        roles: &str,
        more: impl FnOnce(NodeOptions) -> NodeOptions,
    ) -> Result<Node> {
        let options = NodeOptions::fast(env!("CARGO_BIN_EXE_adsum"), name, roles)
            .in_cluster(&self.redis.urls(), &self.etcd.endpoints());
        Node::start(self.dir.path(), &more(options)).await
    }

    /// Waits until every shard has settled and is followed, and the reaper has them all.
    pub(crate) async fn settled(dispatcher: &Node, reaper: &Node) -> Result<()> {
        eventually(
            "the cluster has settled",
            Duration::from_secs(60),
            || async {
                let shards = dispatcher.shards().await?;
                let lines = shards.as_object().into_iter().flatten();
                for (shard, line) in lines {
                    let log = &line["log"];
                    ensure!(log["settling"] == false, "shard {shard}: {line}");
                }
                let ready = reaper.readyz().await?;
                ensure!(ready["reaper"]["shards"] == 64, "{ready}");
                ensure!(ready["dependencies"]["reaper"]["ok"] == true, "{ready}");
                Ok(())
            },
        )
        .await
    }
}
