//! Every transport, one suite: the same scenarios over WebSocket with JSON and with protobuf, over
//! gRPC, and over HTTP, Server-Sent Events and gRPC requests for what those can do; on the
//! embedded default, and on a real cluster where those who watch are on another gateway than
//! those who act.

#![allow(clippy::print_stdout)]

mod bad_input;
mod beats;
#[path = "../cluster/world.rs"]
#[allow(dead_code, reason = "shared with the tests of the cluster")]
mod cluster;
mod http;
mod privacy;
mod raw;
mod run;
mod scenarios;
mod stage;
mod third_party;
mod watcher;
mod world;
