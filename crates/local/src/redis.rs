//! Real Redis: one server, or a cluster with masters and replicas that can be killed, paused,
//! failed over and resharded. Needs `redis-server` 7 or later.

mod cluster;
mod migrate;
mod process;
mod server;
mod start;
mod view;

pub use cluster::{RedisCluster, RedisNode};
pub use process::RedisProcess;
pub use server::{Auth, RedisServer, ServerOptions};
pub use start::ClusterOptions;

/// How many hash slots a cluster has.
pub const SLOTS: u16 = 16_384;
