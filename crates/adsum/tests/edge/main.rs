//! The binary around the edge, as processes: its public port, its certificates, how it reads its
//! configuration again, how it stops, and its commands.

mod admin;
mod cli;
mod drain;
mod listener;
mod readme;
mod reload;
mod support;
mod tls;
