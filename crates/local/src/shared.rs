//! Fixtures that all tests of one process share: started by the first test that asks, ended
//! with the process. A test that breaks its cluster, or counts what is in it, starts its own.
//!
//! The tests run on runtimes of their own, so a shared fixture holds nothing that belongs to
//! one: no connection, no task.

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::etcd::EtcdCluster;
use crate::redis::RedisCluster;

/// Three masters, each with a replica.
pub async fn redis_cluster() -> Result<&'static RedisCluster> {
    static CLUSTER: OnceCell<RedisCluster> = OnceCell::const_new();
    CLUSTER.get_or_try_init(|| RedisCluster::start(3, 1)).await
}

/// One etcd.
pub async fn etcd() -> Result<&'static EtcdCluster> {
    static ETCD: OnceCell<EtcdCluster> = OnceCell::const_new();
    ETCD.get_or_try_init(|| EtcdCluster::start(1)).await
}
