//! Who a caller is, and what they may do until their token ends.

use adsum_core::{RoomId, TenantId, Topic, UserId};
use serde::{Deserialize, Serialize};

use super::{AuthError, Patterns, TopicPatterns};

/// What kind of caller a token is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person's device.
    #[default]
    User,
    /// A service of the customer.
    Service,
}

/// A caller, proved by a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The only tenant the caller can see or touch.
    pub tenant: TenantId,
    /// The user; a service may have none.
    pub user: Option<UserId>,
    /// What kind of caller.
    pub role: Role,
    /// The rooms that sessions may join.
    pub join: Patterns,
    /// The topics that may be watched, besides the caller's own user.
    pub watch: TopicPatterns,
    /// A service that sees everybody, whatever their visibility.
    pub see_all: bool,
    /// When the token ends, in ms since 1970.
    pub expires_at_ms: u64,
}

impl Identity {
    /// Whether a session of this caller may be in the room.
    #[must_use]
    pub fn may_join(&self, room: &RoomId) -> bool {
        self.join.allows(room.as_str())
    }

    /// Whether the topic may be watched or read. Everybody may watch themselves.
    #[must_use]
    pub fn may_watch(&self, topic: &Topic) -> bool {
        matches!((topic, &self.user), (Topic::User(user), Some(own)) if user == own)
            || self.watch.allows(topic)
    }

    /// What changes when a connection goes on with a new token.
    ///
    /// # Errors
    /// When it is for another tenant, user or role: that is another caller, who has to connect.
    pub fn refreshed_by<'a>(&'a self, new: &'a Self) -> Result<Changes<'a>, AuthError> {
        if self.tenant != new.tenant {
            return Err(AuthError::Tenant);
        }
        if self.user != new.user {
            return Err(AuthError::Subject);
        }
        if self.role != new.role {
            return Err(AuthError::Role);
        }
        Ok(Changes { old: self, new })
    }
}

/// The difference between a connection's old token and its new one.
#[derive(Debug, Clone, Copy)]
pub struct Changes<'a> {
    old: &'a Identity,
    new: &'a Identity,
}

impl Changes<'_> {
    /// Of the topics that are watched, those that no longer may be.
    #[must_use]
    pub fn topics_lost<'t>(&self, watched: impl IntoIterator<Item = &'t Topic>) -> Vec<Topic> {
        let watched = watched.into_iter();
        watched
            .filter(|t| !self.new.may_watch(t))
            .cloned()
            .collect()
    }

    /// Of the rooms that the session is in, those that it may no longer be in.
    #[must_use]
    pub fn rooms_lost<'r>(&self, joined: impl IntoIterator<Item = &'r RoomId>) -> Vec<RoomId> {
        let joined = joined.into_iter();
        joined.filter(|r| !self.new.may_join(r)).cloned().collect()
    }

    /// Whether other people are visible now than before, so that whatever is watched has to be
    /// sent again.
    #[must_use]
    pub fn sight_changed(&self) -> bool {
        self.old.see_all != self.new.see_all
    }
}
