//! Statuses: what people see, and what a user may set by hand.

use serde::{Deserialize, Serialize};

/// What a person is, as others (or they themselves) see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// At least one device is active.
    Online,
    /// Devices are there, none is active; or set by hand.
    Away,
    /// Set by hand.
    Busy,
    /// Do not disturb; set by hand.
    Dnd,
    /// Set by hand; looks like [`Offline`](Self::Offline) to everybody else.
    Invisible,
    /// No device is there.
    Offline,
}

impl Status {
    /// The word used in every interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Away => "away",
            Self::Busy => "busy",
            Self::Dnd => "dnd",
            Self::Invisible => "invisible",
            Self::Offline => "offline",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A status that a user sets by hand; it overrides the devices until it is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manual {
    /// Away, whatever the devices say.
    Away,
    /// Busy.
    Busy,
    /// Do not disturb.
    Dnd,
    /// Looks offline to everybody but the user.
    Invisible,
}

impl Manual {
    /// The number it is stored as; 0 is "none".
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Away => 1,
            Self::Busy => 2,
            Self::Dnd => 3,
            Self::Invisible => 4,
        }
    }

    /// Reads [`code`](Self::code); `None` for a number that means nothing.
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Option<Self>> {
        Some(match code {
            0 => None,
            1 => Some(Self::Away),
            2 => Some(Self::Busy),
            3 => Some(Self::Dnd),
            4 => Some(Self::Invisible),
            _ => return None,
        })
    }
}

impl From<Manual> for Status {
    fn from(manual: Manual) -> Self {
        match manual {
            Manual::Away => Self::Away,
            Manual::Busy => Self::Busy,
            Manual::Dnd => Self::Dnd,
            Manual::Invisible => Self::Invisible,
        }
    }
}
