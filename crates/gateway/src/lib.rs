//! The gateway: the stateful edge of a cluster. It holds the rosters that its clients watch, fed
//! by dispatchers; it never talks to another gateway.

pub mod auth;
pub mod feed;
pub mod holder;
pub mod limits;
