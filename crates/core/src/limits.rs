//! Limits on what a client may ask for, checked before anything is written.

use crate::{IdError, State};

/// Bounds of one session's state. All configurable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a session's `meta`, and of its `meta` in one room.
    pub meta_bytes: usize,
    /// Rooms that one session may be in.
    pub rooms: usize,
    /// People that one user may list as contacts.
    pub contacts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            meta_bytes: 2048,
            rooms: 100,
            contacts: 5000,
        }
    }
}

/// Input that breaks a rule; trying again does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// An id that is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// `meta` is not JSON.
    #[error("meta is not valid JSON: {0}")]
    MetaNotJson(String),
    /// `meta` is too long.
    #[error("meta has {size} bytes: at most {limit} are allowed")]
    MetaTooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Too many rooms.
    #[error("{count} rooms in one session: at most {limit} are allowed")]
    TooManyRooms {
        /// Rooms given.
        count: usize,
        /// Rooms allowed.
        limit: usize,
    },
    /// Too many contacts.
    #[error("{count} contacts: at most {limit} are allowed")]
    TooManyContacts {
        /// Contacts given.
        count: usize,
        /// Contacts allowed.
        limit: usize,
    },
    /// A connection number that is 0 or can't be kept exactly everywhere.
    #[error("conn must be between 1 and 9007199254740991")]
    Conn,
    /// A device kind that is no short word.
    #[error("device kind must be 1 to 32 of a-z, 0-9, '-' and '_'")]
    Kind,
}

impl Invalid {
    /// The stable code that clients see.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Id(_) => "invalid_id",
            Self::MetaNotJson(_) => "invalid_meta",
            Self::MetaTooLarge { .. } => "meta_too_large",
            Self::TooManyRooms { .. } => "too_many_rooms",
            Self::TooManyContacts { .. } => "too_many_contacts",
            Self::Conn => "invalid_conn",
            Self::Kind => "invalid_kind",
        }
    }
}

impl Limits {
    /// Checks a session's state as it would be stored.
    ///
    /// # Errors
    /// Names the first bound that is broken.
    pub fn check(&self, state: &State) -> Result<(), Invalid> {
        if state.rooms.len() > self.rooms {
            return Err(Invalid::TooManyRooms {
                count: state.rooms.len(),
                limit: self.rooms,
            });
        }
        let metas = state
            .rooms
            .values()
            .filter_map(|m| m.meta.as_ref())
            .chain(&state.meta);
        for meta in metas {
            if meta.as_str().len() > self.meta_bytes {
                let size = meta.as_str().len();
                return Err(Invalid::MetaTooLarge {
                    size,
                    limit: self.meta_bytes,
                });
            }
        }
        Ok(())
    }
}
