//! Membership and election: who is in the cluster, and who reaps which shard. One process is
//! served by [`LocalCluster`], a cluster by [`EtcdMembership`]; both keep the contract of
//! `adsum_core::membership` and pass the same suite (`conformance`).

mod backoff;
mod config;
mod election;
mod endpoint;
mod etcd;
mod failure;
mod keys;
mod lease;
mod local;
mod members;
mod mirror;
mod pool;
mod profile;
mod registry;
mod session;
mod views;

#[cfg(feature = "testing")]
pub mod conformance;

pub use config::{EtcdConfig, EtcdTls};
pub use etcd::EtcdMembership;
pub use local::{LocalCluster, LocalMembership};
pub use profile::Profile;
