//! What a token allows, as patterns: an exact id, `prefix*`, or `*`. Whatever no pattern names is
//! denied.
//!
//! A `*` at the end is always a wildcard, so issuers must not make patterns of ids that their
//! users choose; the claim `rooms` takes such ids as they are.

use std::collections::BTreeSet;

use adsum_core::{IdError, RoomId, Topic, UserId};

/// A set of ids. Allows nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    all: bool,
    exact: BTreeSet<Box<str>>,
    prefixes: Vec<Box<str>>,
}

impl Patterns {
    /// Allows everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Whether any pattern names the id.
    #[must_use]
    pub fn allows(&self, id: &str) -> bool {
        self.all || self.exact.contains(id) || self.prefixes.iter().any(|p| id.starts_with(&**p))
    }

    pub(super) fn add_exact(&mut self, id: &str) {
        self.exact.insert(id.into());
    }

    fn add(
        &mut self,
        text: &str,
        check: impl Fn(&str) -> Result<(), IdError>,
    ) -> Result<(), IdError> {
        match text.strip_suffix('*') {
            Some("") => self.all = true,
            Some(prefix) => {
                check(prefix)?;
                self.prefixes.push(prefix.into());
            }
            None => {
                check(text)?;
                self.add_exact(text);
            }
        }
        Ok(())
    }

    /// A pattern of rooms.
    pub(super) fn add_rooms(&mut self, text: &str) -> Result<(), IdError> {
        self.add(text, |id| RoomId::new(id).map(drop))
    }

    /// A pattern of users.
    pub(super) fn add_users(&mut self, text: &str) -> Result<(), IdError> {
        self.add(text, |id| UserId::new(id).map(drop))
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.all |= other.all;
        self.exact.extend(other.exact.iter().cloned());
        self.prefixes.extend(other.prefixes.iter().cloned());
    }
}

/// A set of topics, from patterns spelled `room:…`, `user:…`, `tenant`, or `*` for them all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPatterns {
    /// The rooms among them.
    pub rooms: Patterns,
    /// The users among them.
    pub users: Patterns,
    /// Whether the whole tenant is among them.
    pub tenant: bool,
}

/// Why a text is no pattern of topics.
pub(super) enum BadPattern {
    Spelling,
    Id(IdError),
}

impl TopicPatterns {
    /// Allows everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            rooms: Patterns::all(),
            users: Patterns::all(),
            tenant: true,
        }
    }

    /// Whether any pattern names the topic.
    #[must_use]
    pub fn allows(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Room(room) => self.rooms.allows(room.as_str()),
            Topic::User(user) => self.users.allows(user.as_str()),
            Topic::Tenant => self.tenant,
        }
    }

    // The kind is read first, so that no wildcard reaches from one kind of topic into another:
    // `t*` is an error, not the tenant.
    pub(super) fn add(&mut self, text: &str) -> Result<(), BadPattern> {
        match text.split_once(':') {
            Some(("room", rooms)) => self.rooms.add_rooms(rooms).map_err(BadPattern::Id),
            Some(("user", users)) => self.users.add_users(users).map_err(BadPattern::Id),
            None if text == "tenant" => {
                self.tenant = true;
                Ok(())
            }
            None if text == "*" => {
                *self = Self::all();
                Ok(())
            }
            _ => Err(BadPattern::Spelling),
        }
    }
}
