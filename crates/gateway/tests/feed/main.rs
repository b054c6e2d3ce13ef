//! The feed against scripted dispatchers. Time is paused: it moves only when all wait for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chaos;
mod faults;
mod rosters;
mod support;
mod watchers;
