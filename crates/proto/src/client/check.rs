//! The checks that every encoding and every transport shares, HTTP and plain gRPC requests
//! included: from what a client wrote to the words of core.

use std::sync::Arc;

use adsum_core::{Activity, Conn, Digest, Invalid, Kind, Limits, Manual, Meta, Topic, Visibility};

use super::{
    Fault, Mode,
    error::{Field, excerpt},
};

type Result<T> = std::result::Result<T, Fault>;

/// Bounds of what one frame may ask for. All configurable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of one frame.
    pub frame_bytes: usize,
    /// Topics that one connection may watch, so at most so many in one frame.
    pub topics: usize,
    /// Of the session's state.
    pub session: Limits,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self {
            frame_bytes: 256 * 1024,
            topics: 1000,
            session: Limits::default(),
        }
    }
}

impl FrameLimits {
    pub(super) fn frame(&self, size: usize) -> Result<()> {
        let limit = self.frame_bytes;
        if size > limit {
            return Err(Fault::TooLarge { size, limit });
        }
        Ok(())
    }

    pub(super) fn topics(&self, count: usize) -> Result<()> {
        let limit = self.topics;
        if count > limit {
            return Err(Fault::TooManyTopics { count, limit });
        }
        Ok(())
    }

    /// Whether a session may be in so many rooms.
    ///
    /// # Errors
    /// When it may not.
    pub fn rooms(&self, count: usize) -> Result<()> {
        let limit = self.session.rooms;
        if count > limit {
            return Err(Invalid::TooManyRooms { count, limit }.into());
        }
        Ok(())
    }

    /// The text of one JSON value; `None` for `null`. White space between tokens is dropped.
    ///
    /// # Errors
    /// When it is too long, not JSON, or JSON that not every parser reads.
    pub fn meta(&self, text: &str) -> Result<Option<Meta>> {
        Ok(super::meta::check(text, self.session.meta_bytes)?)
    }
}

/// A topic.
///
/// # Errors
/// When the text spells none.
pub fn topic(text: &str) -> Result<Topic> {
    text.parse().map_err(Fault::Topic)
}

/// A connection number.
///
/// # Errors
/// When it is out of range.
pub fn conn(number: u64) -> Result<Conn> {
    Ok(Conn::new(number)?)
}

/// A device kind; the usual one when none is named.
///
/// # Errors
/// When it is no short word.
pub fn kind(word: Option<&str>) -> Result<Kind> {
    Ok(word.map(Kind::new).transpose()?.unwrap_or_default())
}

/// A digest: exactly as it is written, 16 hex digits in lower case.
///
/// # Errors
/// When it is spelled in any other way.
pub fn digest(text: &str) -> Result<Digest> {
    let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 16 || !text.bytes().all(hex) {
        return Err(Fault::Digest);
    }
    text.parse().map_err(|_| Fault::Digest)
}

/// What a device reports.
///
/// # Errors
/// When it is none of the two.
pub fn activity(word: &str) -> Result<Activity> {
    match word {
        "online" => Ok(Activity::Online),
        "away" => Ok(Activity::Away),
        _ => Err(unknown_activity(word)),
    }
}

/// A manual status.
///
/// # Errors
/// When it is none that can be set by hand.
pub fn manual(word: &str) -> Result<Manual> {
    match word {
        "away" => Ok(Manual::Away),
        "busy" => Ok(Manual::Busy),
        "dnd" => Ok(Manual::Dnd),
        "invisible" => Ok(Manual::Invisible),
        _ => Err(unknown_manual(word)),
    }
}

/// A mode.
///
/// # Errors
/// When it is none.
pub fn mode(word: &str) -> Result<Mode> {
    let mode = Mode::ALL.into_iter().find(|m| m.as_str() == word);
    mode.ok_or_else(|| unknown_mode(word))
}

/// A visibility.
///
/// # Errors
/// When it is none; never widened.
pub fn visibility(word: &str) -> Result<Visibility> {
    match word {
        "everyone" => Ok(Visibility::Everyone),
        "contacts" => Ok(Visibility::Contacts),
        "nobody" => Ok(Visibility::Nobody),
        _ => Err(Fault::Word {
            field: Field::Visibility,
            word: excerpt(word),
            expected: "everyone, contacts or nobody",
        }),
    }
}

pub(super) fn unknown_activity(word: &str) -> Fault {
    Fault::Word {
        field: Field::Activity,
        word: excerpt(word),
        expected: "online or away",
    }
}

pub(super) fn unknown_manual(word: &str) -> Fault {
    Fault::Word {
        field: Field::Status,
        word: excerpt(word),
        expected: "away, busy, dnd or invisible, or null to clear it",
    }
}

pub(super) fn unknown_mode(word: &str) -> Fault {
    Fault::Word {
        field: Field::Mode,
        word: excerpt(word),
        expected: "members, interval or count",
    }
}

/// A trace context of W3C, version 00; one that is not well-formed is ignored, as W3C asks.
#[must_use]
pub fn traceparent(text: &str) -> Option<Arc<str>> {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let named = |part: &str| part.bytes().any(|b| b != b'0');
    let mut parts = text.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let flags = parts.next().filter(|_| parts.next().is_none())?;
    let fits = version == "00" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    (fits && named(trace) && named(span)).then(|| text.into())
}
