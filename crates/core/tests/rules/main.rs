//! The rules of core, tried on generated histories of a small shard.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod codec;
mod common;
mod roster;
mod view;
