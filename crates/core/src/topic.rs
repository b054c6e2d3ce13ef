//! What can be watched.

use std::{fmt, str::FromStr};

use crate::{IdError, RoomId, UserId};

/// A room, a user, or the whole tenant. Spelled `room:<id>`, `user:<id>`, `tenant`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// All who are in a room.
    Room(RoomId),
    /// One user.
    User(UserId),
    /// Everybody in the tenant.
    Tenant,
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room(room) => write!(f, "room:{room}"),
            Self::User(user) => write!(f, "user:{user}"),
            Self::Tenant => f.write_str("tenant"),
        }
    }
}

/// Why a text is no topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTopic {
    /// None of the three spellings.
    #[error("a topic is room:<id>, user:<id> or tenant")]
    Spelling,
    /// The id is none.
    #[error(transparent)]
    Id(#[from] IdError),
}

impl FromStr for Topic {
    type Err = BadTopic;

    fn from_str(text: &str) -> Result<Self, BadTopic> {
        match text.split_once(':') {
            Some(("room", id)) => Ok(Self::Room(RoomId::new(id)?)),
            Some(("user", id)) => Ok(Self::User(UserId::new(id)?)),
            None if text == "tenant" => Ok(Self::Tenant),
            _ => Err(BadTopic::Spelling),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_round_trip_and_errors() {
        for text in ["room:a:b", "user:ü", "tenant"] {
            assert_eq!(text.parse::<Topic>().unwrap().to_string(), text);
        }
        assert_eq!("rooms:a".parse::<Topic>(), Err(BadTopic::Spelling));
        assert_eq!("".parse::<Topic>(), Err(BadTopic::Spelling));
        assert_eq!(
            "room:".parse::<Topic>(),
            Err(BadTopic::Id(IdError::Empty("room")))
        );
    }
}
