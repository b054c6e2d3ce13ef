//! The Redis store against one real server: bytes, refusals, errors, and a random run beside
//! the store in memory, which must answer the same.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test says what it expects, and what it measured"
)]

mod errors;
mod lab;
mod random;
mod records;
mod sessions;
mod together;
