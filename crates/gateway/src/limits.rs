//! How much one connection, user, tenant and node may ask for. Defaults are the node's; a tenant
//! may have its own.

mod counters;
mod error;
mod rate;

#[cfg(test)]
mod tests;

use adsum_core::Limits;
use adsum_proto::client::FrameLimits;
use serde::{Deserialize, Serialize};

pub use counters::{Admission, Counters};
pub use error::{LimitError, Scope};
pub use rate::RateLimiter;

// One list for both structs, so that no limit can be forgotten in one of them.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// What clients of a gateway are held to.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct EdgeLimits {
            /// Connections of all tenants on this node. Not a tenant's to change.
            pub connections_per_node: usize,
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for EdgeLimits {
            fn default() -> Self {
                Self { connections_per_node: 100_000, $($name: $default,)* }
            }
        }

        /// A tenant's own limits and times; what it doesn't set is the node's.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct TenantSettings {
            /// How often a connected client says something, ms.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub heartbeat_ms: Option<u64>,
            /// How long a client may say nothing, ms.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub session_ttl_ms: Option<u64>,
            /// How long a broken connection is told to nobody, ms.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub linger_ms: Option<u64>,
            /// How long last seen is told, ms.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub retention_ms: Option<u64>,
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
        }

        impl EdgeLimits {
            /// These limits with a tenant's own laid over them.
            #[must_use]
            pub fn with(&self, tenant: &TenantSettings) -> Self {
                Self {
                    connections_per_node: self.connections_per_node,
                    $($name: tenant.$name.unwrap_or(self.$name),)*
                }
            }
        }
    };
}

limits! {
    /// Connections of one tenant on this node.
    connections_per_tenant: usize = 100_000,
    /// Connections of one user on this node.
    connections_per_user: usize = 100,
    /// Sessions that one user may have by beats without a connection, on all nodes.
    sessions_per_user: usize = 100,
    /// Rooms that one session may be in.
    rooms_per_session: usize = 100,
    /// Rooms, and the tenant, that one connection may watch.
    topics_per_connection: usize = 500,
    /// Users that one connection may watch; counted apart from its other topics.
    users_per_connection: usize = 500,
    /// People that one user may list as contacts.
    contacts: usize = 5000,
    /// Bytes of one frame from a client.
    frame_bytes: usize = 64 * 1024,
    /// Bytes of a session's `meta`, and of its `meta` in one room.
    meta_bytes: usize = 2048,
    /// Messages that one connection may send, per second in the long run.
    messages_per_second: u32 = 50,
    /// Messages that it may send at once.
    message_burst: u32 = 200,
}

/// Limits that would let nobody do anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limits: {0}")]
pub struct BadLimits(pub(crate) &'static str);

impl EdgeLimits {
    /// Checks that the limits make sense together.
    ///
    /// # Errors
    /// Says which ones don't.
    pub fn check(&self) -> Result<(), BadLimits> {
        let bad = |problem| Err(BadLimits(problem));
        let connections = [
            self.connections_per_node,
            self.connections_per_tenant,
            self.connections_per_user,
        ];
        if connections.contains(&0) {
            return bad("connections must be at least 1 per node, tenant and user");
        }
        if self.sessions_per_user == 0 {
            return bad("sessions_per_user must be at least 1");
        }
        if self.messages_per_second == 0 || self.message_burst == 0 {
            return bad("messages_per_second and message_burst must be at least 1");
        }
        if self.frame_bytes < self.meta_bytes.saturating_add(1024) {
            return bad("frame_bytes must be at least meta_bytes + 1024, or meta can't be sent");
        }
        Ok(())
    }

    /// The bounds of a session's state, which the core checks.
    #[must_use]
    pub fn session(&self) -> Limits {
        Limits {
            meta_bytes: self.meta_bytes,
            rooms: self.rooms_per_session,
            contacts: self.contacts,
        }
    }

    /// The bounds of what one frame may ask for.
    #[must_use]
    pub fn frame(&self) -> FrameLimits {
        FrameLimits {
            frame_bytes: self.frame_bytes,
            topics: self.topics_per_connection + self.users_per_connection,
            session: self.session(),
        }
    }

    /// Checks what a connection would watch: rooms and the tenant, and users.
    ///
    /// # Errors
    /// When either is too many.
    pub fn check_watched(&self, topics: usize, users: usize) -> Result<(), LimitError> {
        let (count, limit) = (topics, self.topics_per_connection);
        if count > limit {
            return Err(LimitError::Topics { count, limit });
        }
        let (count, limit) = (users, self.users_per_connection);
        if count > limit {
            return Err(LimitError::Users { count, limit });
        }
        Ok(())
    }

    /// Checks the size of a frame.
    ///
    /// # Errors
    /// When it is too large.
    pub fn check_frame(&self, size: usize) -> Result<(), LimitError> {
        let limit = self.frame_bytes;
        if size > limit {
            return Err(LimitError::Frame { size, limit });
        }
        Ok(())
    }
}
