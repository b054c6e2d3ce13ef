//! A measure around the store and the membership: how long their calls take, whether they fail,
//! and the spans of commits. What is behind them does not know.

mod health;
mod membership;
mod store;

pub use health::{Health, Trouble};
pub use membership::{MeasuredMembership, registry_call};
pub use store::MeasuredStore;
