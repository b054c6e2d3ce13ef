//! Why something is too much, with codes that are part of the protocol.

use adsum_telemetry::metrics::Limit;

/// What connections are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of a user's.
    User,
    /// All of a tenant's.
    Tenant,
    /// All of the node's.
    Node,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Tenant => "tenant",
            Self::Node => "node",
        })
    }
}

/// More than is allowed. Limits on a session's state are [`adsum_core::Invalid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Too many connections.
    #[error("too many connections: at most {limit} are allowed per {scope}")]
    Connections {
        /// Whose.
        scope: Scope,
        /// Connections allowed.
        limit: usize,
    },
    /// Too many sessions that beats would open.
    #[error("too many sessions: at most {limit} are allowed per user")]
    Sessions {
        /// Sessions allowed.
        limit: usize,
    },
    /// Too many topics.
    #[error("{count} topics watched: at most {limit} are allowed per connection")]
    Topics {
        /// Topics asked for.
        count: usize,
        /// Topics allowed.
        limit: usize,
    },
    /// Too many users.
    #[error("{count} users watched: at most {limit} are allowed per connection")]
    Users {
        /// Users asked for.
        count: usize,
        /// Users allowed.
        limit: usize,
    },
    /// A frame too large.
    #[error("the frame has {size} bytes: at most {limit} are allowed")]
    Frame {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Messages too fast.
    #[error("too many messages: try again in {retry_after_ms} ms")]
    Rate {
        /// When the next one would be accepted.
        retry_after_ms: u64,
    },
}

impl From<LimitError> for Limit {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::Connections { .. } | LimitError::Sessions { .. } => Self::Connections,
            LimitError::Topics { .. } => Self::Topics,
            LimitError::Users { .. } => Self::Users,
            LimitError::Frame { .. } => Self::Frame,
            LimitError::Rate { .. } => Self::Rate,
        }
    }
}

/// What to wait before a full node or tenant is asked again. Others leave at no known time.
const FULL_RETRY_MS: u64 = 5000;

impl LimitError {
    /// The stable code that clients see.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Connections { .. } | Self::Sessions { .. } => "too_many_connections",
            Self::Topics { .. } => "too_many_topics",
            Self::Users { .. } => "too_many_users",
            Self::Frame { .. } => "frame_too_large",
            Self::Rate { .. } => "rate_limited",
        }
    }

    /// When the same may be tried again; none if that would not help.
    #[must_use]
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Rate { retry_after_ms } => Some(*retry_after_ms),
            Self::Connections { .. } | Self::Sessions { .. } => Some(FULL_RETRY_MS),
            _ => None,
        }
    }
}
