//! What operators see: traces in a collector that is not ours, metrics in a real Prometheus, and
//! rules and dashboards that fit what is exported.

#![allow(clippy::print_stdout)]

mod collector;
mod http;
mod metrics;
mod outage;
mod rules;
mod signals;
mod spans;
mod trace;
mod world;
mod ws;
