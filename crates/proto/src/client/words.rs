//! Small words that only the client protocol has.

use std::{fmt, sync::Arc};

use super::{Fault, time};

/// What a client marks a frame with, to know the reply by. At most 64 bytes, otherwise opaque.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ref(Arc<str>);

impl Ref {
    /// The longest that is echoed.
    pub const MAX_BYTES: usize = 64;

    /// Checks and keeps the text.
    ///
    /// # Errors
    /// When it is longer than 64 bytes.
    pub fn new(text: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, Fault> {
        if text.as_ref().len() > Self::MAX_BYTES {
            return Err(Fault::Ref);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A JWT as it came. Never shown: whoever logs a frame must not log a login.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// Keeps the text; whether it is worth anything is not decided here.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for whoever verifies it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// What to do with a value: three things that an `Option` cannot tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Patch<T> {
    /// Not named: it stays as it is.
    #[default]
    Keep,
    /// `null`: take it away.
    Clear,
    /// Set it to this.
    Set(T),
}

impl<T> Patch<T> {
    /// The value after the patch, given the one before.
    #[must_use]
    pub fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// How much of a topic is told; a higher one tells less. A watcher gets the higher of what it
/// asked for and what the size of the topic demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Mode {
    /// Every diff.
    #[default]
    Members,
    /// One conflated diff a second.
    Interval,
    /// The count, and a sample.
    Count,
}

impl Mode {
    /// From the one that tells most.
    pub const ALL: [Self; 3] = [Self::Members, Self::Interval, Self::Count];

    /// The word used in every interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Members => "members",
            Self::Interval => "interval",
            Self::Count => "count",
        }
    }
}

/// When somebody was last there, and how long ago that was when it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LastSeen {
    at: u64,
    ago_s: u64,
}

impl LastSeen {
    /// Of a time in ms, told at `now`; `None` for 0, which means "not known".
    #[must_use]
    pub fn new(at: u64, now: u64) -> Option<Self> {
        (at != 0).then(|| Self {
            at: at.min(time::MAX_MS),
            ago_s: now.saturating_sub(at) / 1000,
        })
    }

    /// As it was told.
    pub(crate) fn told(text: &str, ago_s: u64) -> Option<Self> {
        time::parse(text).map(|at| Self { at, ago_s })
    }

    /// The time, ms.
    #[must_use]
    pub const fn at(self) -> u64 {
        self.at
    }

    /// Seconds ago, as of the telling.
    #[must_use]
    pub const fn ago_s(self) -> u64 {
        self.ago_s
    }

    /// The time in RFC 3339, UTC, with ms.
    #[must_use]
    pub fn rfc3339(self) -> String {
        time::format(self.at)
    }

    /// How long ago, for people: `just now`, `5 minutes ago`, `3 days ago`.
    #[must_use]
    pub fn ago(self) -> String {
        ago(self.ago_s)
    }
}

/// So many seconds ago, for people.
#[must_use]
pub fn ago(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn times_for_people() {
        let told = [
            (0, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (5 * 60 + 59, "5 minutes ago"),
            (3600, "1 hour ago"),
            (86_399, "23 hours ago"),
            (3 * 86_400, "3 days ago"),
        ];
        for (seconds, text) in told {
            assert_eq!(ago(seconds), text);
        }
    }
}
