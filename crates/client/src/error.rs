//! What can go wrong, and why a client ends.

use adsum_proto::client::{Close, frame::Problem};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server said no, and trying the same again does not help.
    #[error("{}: {}", .0.code, .0.message)]
    Refused(Problem),
    /// A later call on the same room, topic or field came first; this one is pointless.
    #[error("overtaken by a later call")]
    Overtaken,
    /// Nobody confirmed the goodbye in time. The session lingers, and then leaves.
    #[error("the goodbye was not answered in time")]
    Unanswered,
    /// Too many calls are waiting.
    #[error("too many calls are waiting for an answer")]
    Busy,
    /// The client is over.
    #[error("the client has ended: {0}")]
    Ended(EndReason),
}

impl Error {
    /// What the server said, if it was the server.
    #[must_use]
    pub const fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Ended(reason) => reason.problem(),
            _ => None,
        }
    }
}

/// Why a client ended and does not come back by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// It said goodbye.
    #[error("it said goodbye")]
    Left,
    /// The app closed it, or dropped it.
    #[error("closed by the app")]
    ClosedByApp,
    /// A newer connection of the same device took over.
    #[error("a newer connection of this device took over")]
    Replaced,
    /// A service closed it.
    #[error("closed by a service")]
    Kicked,
    /// A newer connection of the same device is there, even above the number it named.
    #[error("a newer connection of this device is there")]
    Superseded,
    /// No token, or one that is not good.
    #[error("the token is not good{}", detail(.0.as_ref()))]
    Unauthorized(Option<Problem>),
    /// The token ended, and there was no other.
    #[error("the token has ended")]
    TokenExpired,
    /// The server refused the session as it was asked for.
    #[error("{}: {}", .0.code, .0.message)]
    Refused(Problem),
    /// The server closed for good, without a word.
    #[error("closed with {}", .0.code())]
    Closed(Close),
}

impl EndReason {
    /// What the server said about it, if it did.
    #[must_use]
    pub const fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) | Self::Unauthorized(Some(problem)) => Some(problem),
            _ => None,
        }
    }
}

fn detail(problem: Option<&Problem>) -> String {
    problem.map_or_else(String::new, |p| format!(": {}", p.message))
}

/// Why a client can't be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is nothing to connect to.
    #[error("no endpoint is given")]
    NoEndpoint,
    /// An address that is none.
    #[error("{0:?} is no endpoint: ws://, wss://, http:// or https://, a host, maybe a port")]
    Endpoint(String),
    /// No certificates that can be used.
    #[error("the CA certificates can't be used: {0}")]
    Ca(String),
    /// TLS can't be set up.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
}
