//! What travels between nodes and clients: generated code, and conversions at the edges, where
//! everything that comes in is checked.

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
/// The feed between dispatchers and gateways.
pub mod feed {
    tonic::include_proto!("adsum.feed.v1");

    /// The version of the feed that this release speaks.
    pub const PROTOCOL: u32 = 1;
}

pub mod client;
mod convert;

pub use convert::{
    Check, Malformed, TopicKey, check_from, check_to, item_from, item_to, state_from, state_to,
    topic_from, topic_to, version_from, version_to,
};
