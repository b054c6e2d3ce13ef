//! What a caller is told when something can't be done: one type for every door, so that a code
//! means the same on each of them.

use adsum_core::{Conn, Invalid, store::StoreError};
use adsum_proto::client::{
    Code, Fault, FrameError,
    frame::{Problem, Ref, ServerBody, ServerFrame},
};

use adsum_telemetry::metrics::metrics;

use crate::{auth::AuthError, holder::Busy, limits::LimitError};

/// What to wait before a part of the cluster that did not answer is asked again.
const RETRY_MS: u64 = 1000;

/// A refusal, with its stable code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EdgeError {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
    /// When the same may be tried again; `None` if that would not help.
    pub retry_after_ms: Option<u64>,
    /// With `superseded`: the connection to go above.
    pub conn: Option<Conn>,
}

impl EdgeError {
    /// One that trying again does not mend.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after_ms: None,
            conn: None,
        }
    }

    /// The token does not allow it.
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, message)
    }

    /// A part of the cluster does not answer.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message).after(RETRY_MS)
    }

    /// A newer connection of the device is there.
    #[must_use]
    pub fn superseded(conn: Conn) -> Self {
        Self {
            conn: Some(conn),
            ..Self::new(
                Code::Superseded,
                "a newer connection of this device is there, or this one was closed",
            )
        }
    }

    /// Worth another try after so long.
    #[must_use]
    pub const fn after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// As the frames and the bodies say it.
    #[must_use]
    pub fn problem(&self) -> Problem {
        Problem {
            retry_after_ms: self.retry_after_ms,
            conn: self.conn,
            ..Problem::new(self.code, self.message.clone())
        }
    }

    /// As the answer to a frame.
    #[must_use]
    pub fn reply(&self, r#ref: Option<Ref>) -> ServerFrame {
        ServerFrame::new(r#ref, ServerBody::Error(self.problem()))
    }
}

impl From<StoreError> for EdgeError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(invalid) => invalid.into(),
            error if error.retry() => Self::unavailable(
                "the part of the store that keeps this user does not answer; try again",
            ),
            error => {
                // What is wrong inside is for the log, not for callers.
                tracing::error!(%error, "the store can't be used");
                Self::new(Code::Internal, "a fault of ours; it has been noted").after(RETRY_MS)
            }
        }
    }
}

impl From<Invalid> for EdgeError {
    fn from(invalid: Invalid) -> Self {
        Fault::Invalid(invalid).into()
    }
}

impl From<adsum_core::IdError> for EdgeError {
    fn from(error: adsum_core::IdError) -> Self {
        Invalid::Id(error).into()
    }
}

impl From<Fault> for EdgeError {
    fn from(fault: Fault) -> Self {
        Self::new(fault.code(), fault.to_string())
    }
}

impl From<FrameError> for EdgeError {
    fn from(error: FrameError) -> Self {
        error.fault.into()
    }
}

impl From<AuthError> for EdgeError {
    fn from(error: AuthError) -> Self {
        let code = match error {
            AuthError::Expired => Code::TokenExpired,
            _ => Code::Unauthorized,
        };
        Self::new(code, error.to_string())
    }
}

impl From<LimitError> for EdgeError {
    fn from(error: LimitError) -> Self {
        let code = match error {
            LimitError::Connections { .. } | LimitError::Sessions { .. } => {
                Code::TooManyConnections
            }
            LimitError::Topics { .. } => Code::TooManyTopics,
            LimitError::Users { .. } => Code::TooManyUsers,
            LimitError::Frame { .. } => Code::FrameTooLarge,
            LimitError::Rate { .. } => Code::RateLimited,
        };
        // Whoever runs into a limit is told so here, and nowhere else.
        metrics().limits.of(error.into()).one();
        Self {
            retry_after_ms: error.retry_after_ms(),
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<Busy> for EdgeError {
    fn from(busy: Busy) -> Self {
        Self::unavailable(busy.to_string())
    }
}
