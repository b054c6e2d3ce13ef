//! A user's lasting settings. Each has a version, so that the newer one wins wherever two
//! copies meet.

use serde::{Deserialize, Serialize};

use crate::{Manual, UserId};

/// Who may see a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Everyone who may watch.
    #[default]
    Everyone,
    /// Those on the user's list of contacts.
    Contacts,
    /// Only the user.
    Nobody,
}

impl Visibility {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everyone => "everyone",
            Self::Contacts => "contacts",
            Self::Nobody => "nobody",
        }
    }

    /// Whether it lets somebody see the user whom `other` does not.
    #[must_use]
    pub const fn is_wider(self, other: Self) -> bool {
        self.code() < other.code()
    }

    /// The number it is stored as. A lower one is a wider circle.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Everyone => 0,
            Self::Contacts => 1,
            Self::Nobody => 2,
        }
    }

    /// Reads [`code`](Self::code).
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            0 => Self::Everyone,
            1 => Self::Contacts,
            2 => Self::Nobody,
            _ => return None,
        })
    }
}

/// A value and the version that orders it; version 0 was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// Higher wins.
    pub version: u64,
}

impl<T: Copy> Versioned<T> {
    /// The newer of two.
    #[must_use]
    pub fn newer(self, other: Self) -> Self {
        if other.version > self.version {
            other
        } else {
            self
        }
    }
}

/// The preferences that shape a person. The list of contacts itself is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Prefs {
    /// The manual status.
    pub status: Versioned<Option<Manual>>,
    /// Who may see the user.
    pub visibility: Versioned<Visibility>,
    /// The version of the list of contacts; 0 when there is none, which admits nobody.
    pub contacts: u64,
    /// While invisible: the public last seen, frozen when the user turned invisible; else 0.
    pub frozen_at: u64,
    /// When the user last came out of hiding, ms; 0 for never: nobody is told of a time before.
    pub shown_at: u64,
}

impl Prefs {
    /// Whether everybody may see the user.
    #[must_use]
    pub fn public(&self) -> bool {
        self.visibility.value == Visibility::Everyone
            && self.status.value != Some(Manual::Invisible)
    }

    /// Takes over what is newer in a copy that a gateway carried through a loss. The list of
    /// contacts is never carried, so its version is not taken.
    #[must_use]
    pub fn merge(mut self, carried: Self) -> Self {
        let status = carried.status.version > self.status.version;
        if status {
            self.status = carried.status;
            self.frozen_at = carried.frozen_at;
        }
        if status || carried.visibility.version > self.visibility.version {
            self.shown_at = self.shown_at.max(carried.shown_at);
        }
        self.visibility = self.visibility.newer(carried.visibility);
        self
    }
}

/// One setting to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preference {
    /// Set the manual status, or clear it.
    Status(Option<Manual>),
    /// Set who may see the user.
    Visibility(Visibility),
    /// Replace the list of contacts.
    Contacts(Vec<UserId>),
}
