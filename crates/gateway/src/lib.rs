//! The gateway: the stateful edge of a cluster. It holds client connections and the rosters that
//! they watch, fed by dispatchers; it never talks to another gateway.
//!
//! One implementation under all doors: `connection` (what a client's frames do), `hub` (what
//! watchers of a topic are told), `reads` and `writes` (requests). The doors themselves are thin.

pub mod auth;
pub mod beats;
mod clock;
mod connection;
mod doors;
mod edge;
mod error;
pub mod feed;
mod grpc;
pub mod holder;
mod http;
mod hub;
pub mod limits;
pub mod listen;
mod observer;
mod outbox;
mod places;
mod registry;
mod requests;
mod settings;
mod sight;
mod sse;
mod traced;
mod ws;

pub use doors::doors;
pub use edge::{Caller, Edge, EdgeConfig, EdgeParts};
pub use error::EdgeError;
pub use hub::HubConfig;
pub use settings::{EdgeTimes, Settings, SettingsBook};
pub use sight::Sight;
