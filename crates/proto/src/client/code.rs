//! The stable codes of errors: what programs go by, on every transport.

use super::Close;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// A code that clients see. Open towards the future: a client must live with others.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

codes! {
    /// No frame at all, or a field of the wrong type.
    MalformedFrame = "malformed_frame",
    /// A type of frame that this release does not know.
    UnknownFrame = "unknown_frame",
    /// A field that must be there is not.
    MissingField = "missing_field",
    /// Longer than a frame may be.
    FrameTooLarge = "frame_too_large",
    /// An id that is none.
    InvalidId = "invalid_id",
    /// None of `room:<id>`, `user:<id>`, `tenant`, or one that does not fit here.
    InvalidTopic = "invalid_topic",
    /// `meta` is not JSON that every parser reads.
    InvalidMeta = "invalid_meta",
    /// `meta` is too long.
    MetaTooLarge = "meta_too_large",
    /// An activity or status that can't be set.
    InvalidStatus = "invalid_status",
    /// None of the visibilities.
    InvalidVisibility = "invalid_visibility",
    /// None of the modes.
    InvalidMode = "invalid_mode",
    /// A device kind that is no short word.
    InvalidKind = "invalid_kind",
    /// A connection number out of range.
    InvalidConn = "invalid_conn",
    /// A digest that is not 16 hex digits.
    InvalidDigest = "invalid_digest",
    /// A `ref` that is too long.
    InvalidRef = "invalid_ref",
    /// A page token that this server did not give.
    InvalidPage = "invalid_page",
    /// More rooms than a session may be in.
    TooManyRooms = "too_many_rooms",
    /// More topics than a connection may watch.
    TooManyTopics = "too_many_topics",
    /// More contacts than a user may list.
    TooManyContacts = "too_many_contacts",
    /// More users, or beats, than one request may name.
    TooManyUsers = "too_many_users",
    /// Something else before the hello.
    HelloExpected = "hello_expected",
    /// A second hello on one connection.
    HelloRepeated = "hello_repeated",
    /// No token, or one that is not good.
    Unauthorized = "unauthorized",
    /// The token was good, and has ended.
    TokenExpired = "token_expired",
    /// The token does not allow this.
    Forbidden = "forbidden",
    /// A newer connection of this device is there, or this one was closed.
    Superseded = "superseded",
    /// A newer connection of this device took over.
    Replaced = "replaced",
    /// Closed by a service.
    Kicked = "kicked",
    /// Nothing was heard for too long.
    Timeout = "timeout",
    /// Too much at a time.
    RateLimited = "rate_limited",
    /// More connections than a user, a tenant or a node may have.
    TooManyConnections = "too_many_connections",
    /// A part of the cluster does not answer; it will.
    Unavailable = "unavailable",
    /// A fault of ours.
    Internal = "internal",
}

impl Code {
    /// Reads the word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str() == word)
    }

    /// How a WebSocket is closed after this error; `None` when the connection stays open.
    #[must_use]
    pub const fn close(self) -> Option<Close> {
        Some(match self {
            Self::FrameTooLarge => Close::TooLarge,
            Self::HelloExpected => Close::BadFrames,
            Self::Unauthorized => Close::Unauthorized,
            Self::TokenExpired => Close::TokenExpired,
            Self::Superseded => Close::Superseded,
            Self::Replaced => Close::Replaced,
            Self::Kicked => Close::Kicked,
            Self::Timeout => Close::Timeout,
            Self::TooManyConnections => Close::TooMany,
            Self::Internal => Close::Internal,
            _ => return None,
        })
    }

    /// What sort of refusal it is, for doors that have words of their own for that.
    #[must_use]
    pub const fn sort(self) -> Sort {
        match self {
            Self::FrameTooLarge => Sort::TooLarge,
            Self::Unauthorized | Self::TokenExpired => Sort::Unauthorized,
            Self::Forbidden => Sort::Forbidden,
            Self::Superseded | Self::Replaced | Self::Kicked | Self::Timeout => Sort::Over,
            Self::RateLimited | Self::TooManyConnections => Sort::TooMuch,
            Self::Unavailable => Sort::Unavailable,
            Self::Internal => Sort::Internal,
            Self::MalformedFrame
            | Self::UnknownFrame
            | Self::MissingField
            | Self::InvalidId
            | Self::InvalidTopic
            | Self::InvalidMeta
            | Self::MetaTooLarge
            | Self::InvalidStatus
            | Self::InvalidVisibility
            | Self::InvalidMode
            | Self::InvalidKind
            | Self::InvalidConn
            | Self::InvalidDigest
            | Self::InvalidRef
            | Self::InvalidPage
            | Self::TooManyRooms
            | Self::TooManyTopics
            | Self::TooManyContacts
            | Self::TooManyUsers
            | Self::HelloExpected
            | Self::HelloRepeated => Sort::Invalid,
        }
    }

    /// Whether the same request can succeed later.
    #[must_use]
    pub const fn retry(self) -> bool {
        matches!(
            self,
            Self::RateLimited | Self::TooManyConnections | Self::Unavailable | Self::Internal
        )
    }
}

/// Sorts of refusals: HTTP has a status for each, and gRPC a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// More bytes than are taken.
    TooLarge,
    /// Who asks is not known.
    Unauthorized,
    /// Who asks may not.
    Forbidden,
    /// The session is over.
    Over,
    /// Too much at a time.
    TooMuch,
    /// It will work later.
    Unavailable,
    /// A fault of ours.
    Internal,
    /// What was asked makes no sense.
    Invalid,
}
