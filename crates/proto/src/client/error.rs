//! What can be wrong with a frame: a stable code, a sentence, and the `ref` to answer to.

use std::str::FromStr;

use adsum_core::{IdError, Invalid, Topic};

use super::{
    Code, Ref,
    frame::{Problem, ServerBody, ServerFrame},
};

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not a frame, or a field of the wrong type; the text names the place.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// A type that is not known here.
    #[error("unknown frame type {0:?}")]
    Unknown(String),
    /// A field that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Too long.
    #[error("the frame has {size} bytes: at most {limit} are allowed")]
    TooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// No topic.
    #[error(transparent)]
    Topic(<Topic as FromStr>::Err),
    /// A word that is none of those that a field may be.
    #[error("{field} can't be {word:?}: {expected}")]
    Word {
        /// Which field; decides the code.
        field: Field,
        /// What was given.
        word: String,
        /// What may be given.
        expected: &'static str,
    },
    /// A digest that is none.
    #[error("a digest is 16 hex digits, in lower case")]
    Digest,
    /// A `ref` that is too long.
    #[error("ref has more than 64 bytes")]
    Ref,
    /// Too many topics in one frame.
    #[error("{count} topics in one frame: at most {limit} are allowed")]
    TooManyTopics {
        /// Topics given.
        count: usize,
        /// Topics allowed.
        limit: usize,
    },
    /// A rule of core is broken.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A field that takes one of a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Of a device.
    Activity,
    /// Of a user, or in an item.
    Status,
    /// Of a watch or a state.
    Mode,
    /// Of a user.
    Visibility,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Activity => "activity",
            Self::Status => "status",
            Self::Mode => "mode",
            Self::Visibility => "visibility",
        })
    }
}

impl From<IdError> for Fault {
    fn from(error: IdError) -> Self {
        Self::Invalid(Invalid::Id(error))
    }
}

impl Fault {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => Code::MalformedFrame,
            Self::Unknown(_) => Code::UnknownFrame,
            Self::Missing(_) => Code::MissingField,
            Self::TooLarge { .. } => Code::FrameTooLarge,
            Self::Topic(_) => Code::InvalidTopic,
            Self::Word { field, .. } => match field {
                Field::Activity | Field::Status => Code::InvalidStatus,
                Field::Mode => Code::InvalidMode,
                Field::Visibility => Code::InvalidVisibility,
            },
            Self::Digest => Code::InvalidDigest,
            Self::Ref => Code::InvalidRef,
            Self::TooManyTopics { .. } => Code::TooManyTopics,
            Self::Invalid(invalid) => match invalid {
                Invalid::Id(_) => Code::InvalidId,
                Invalid::MetaNotJson(_) => Code::InvalidMeta,
                Invalid::MetaTooLarge { .. } => Code::MetaTooLarge,
                Invalid::TooManyRooms { .. } => Code::TooManyRooms,
                Invalid::TooManyContacts { .. } => Code::TooManyContacts,
                Invalid::Conn => Code::InvalidConn,
                Invalid::Kind => Code::InvalidKind,
            },
        }
    }
}

/// A frame that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct FrameError {
    /// Of the frame, when it could be read.
    pub r#ref: Option<Ref>,
    /// What is wrong with it.
    pub fault: Fault,
}

impl FrameError {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.fault.code()
    }

    /// The answer to the frame.
    #[must_use]
    pub fn reply(&self) -> ServerFrame {
        ServerFrame {
            r#ref: self.r#ref.clone(),
            body: ServerBody::Error(Problem::new(self.code(), self.fault.to_string())),
        }
    }
}

impl From<Fault> for FrameError {
    fn from(fault: Fault) -> Self {
        Self { r#ref: None, fault }
    }
}

/// At most so much of what a client wrote is repeated to it.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
