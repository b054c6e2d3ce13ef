//! The cluster tier as real processes: real Redis Cluster, real etcd, nodes that are killed,
//! paused, cut off and drained.

#![allow(clippy::print_stdout)]

mod nodes;
mod world;
