//! Chaos: a real cluster (six Redis, three etcd, gateways, dispatchers and reapers as processes),
//! a cast of clients and watchers, a nemesis that breaks things, and a record of what everybody
//! did and saw, which the checker of the harness judges.
//!
//! A run is made of rounds. Each has its own tenant and its own cast, and ends in calm, so that
//! every round shows whether all pictures converge.

pub mod cast;
pub mod filter;
pub mod nemesis;
pub mod record;
pub mod report;
pub mod round;
pub mod times;
pub mod truth;
pub mod witness;
pub mod world;

pub use nemesis::{Kind, Struck};
pub use record::Record;
pub use round::{Outcome, Round, Script};
pub use times::Times;
pub use world::World;
