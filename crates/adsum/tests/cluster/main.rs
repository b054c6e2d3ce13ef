//! The cluster tier as real processes: real Redis Cluster, real etcd, nodes that are killed,
//! paused, cut off and drained.

#![allow(clippy::print_stdout)]

mod clients;
mod deaf;
mod expiry;
mod feed;
mod feed_faults;
mod gateway;
mod ledger;
mod nodes;
mod reapers;
mod registry;
mod scene;
mod world;
