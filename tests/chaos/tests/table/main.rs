//! What a fault does: one scenario per row of the table in the design, each on a real cluster,
//! with a cast of clients at work, judged by the checker.
//!
//! All share one cluster, one after the other: each ends when everything has healed. Times are
//! ten times faster than the defaults, which `ADSUM_SLOW=1` runs.

#![allow(clippy::print_stdout)]

mod nodes;
mod scene;
mod servers;
