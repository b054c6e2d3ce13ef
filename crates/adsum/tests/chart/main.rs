//! The chart, without a cluster: rendered by Helm itself, checked against the schemas of
//! Kubernetes and against the binary, and brought to life as processes with exactly the rendered
//! arguments, variables and files. Only addresses, ports and paths are rewritten.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod addresses;
mod compose;
mod contract;
mod objects;
mod pod;
mod quickstart;
mod refusals;
mod rehearsal;
mod release;
mod stores;
mod tools;
