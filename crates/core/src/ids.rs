//! Ids given by the customer, and the keys made of them. Checked once, at the door; cheap to
//! clone after that.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Joins ids into keys. A control character, so no id can contain it.
pub(crate) const JOIN: char = '\u{1f}';
const MAX_BYTES: usize = 128;

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// No bytes at all.
    #[error("{0} id is empty: it needs 1 to 128 bytes")]
    Empty(&'static str),
    /// Longer than 128 bytes.
    #[error("{0} id has {1} bytes: at most 128 are allowed")]
    TooLong(&'static str, usize),
    /// A control character inside.
    #[error("{0} id contains a control character")]
    Control(&'static str),
    /// Bytes from a store that are not UTF-8, or keys with too few or too many parts.
    #[error("{0} key is malformed")]
    Malformed(&'static str),
}

fn check(what: &'static str, text: &str) -> Result<(), IdError> {
    match text.len() {
        0 => Err(IdError::Empty(what)),
        n if n > MAX_BYTES => Err(IdError::TooLong(what, n)),
        _ if text.chars().any(char::is_control) => Err(IdError::Control(what)),
        _ => Ok(()),
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "Arc<str>", into = "Arc<str>")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and keeps the text.
            ///
            /// # Errors
            /// When it is empty, longer than 128 bytes or has a control character.
            pub fn new(text: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, IdError> {
                check($what, text.as_ref())?;
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl TryFrom<Arc<str>> for $name {
            type Error = IdError;
            fn try_from(text: Arc<str>) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// A customer's space; nothing crosses it.
    TenantId,
    "tenant"
);
id!(
    /// A room of a tenant.
    RoomId,
    "room"
);
id!(
    /// A user of a tenant.
    UserId,
    "user"
);
id!(
    /// A device of a user.
    DeviceId,
    "device"
);
id!(
    /// A node of the cluster.
    NodeId,
    "node"
);
id!(
    /// One life of a gateway in one shard: what holds the sessions of its connections.
    /// Spelled `<node>~<number>`, so that a reader of Redis knows the gateway.
    Incarnation,
    "incarnation"
);

impl Incarnation {
    /// The incarnation of a node with a number that the node never used before.
    ///
    /// # Errors
    /// When the node's id leaves no room for the number.
    pub fn of(node: &NodeId, number: u64) -> Result<Self, IdError> {
        Self::new(format!("{node}~{number:x}"))
    }

    /// The gateway's node id.
    #[must_use]
    pub fn node(&self) -> &str {
        self.0.rsplit_once('~').map_or(&*self.0, |(node, _)| node)
    }
}

/// A user in a tenant: what a shard is chosen by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UserKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
}

impl UserKey {
    /// A key of checked parts.
    #[must_use]
    pub fn new(tenant: TenantId, user: UserId) -> Self {
        Self { tenant, user }
    }

    /// `tenant 0x1F user`: how it is stored and hashed.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{}{JOIN}{}", self.tenant, self.user)
    }

    /// Shows the bytes of [`encode`](Self::encode) to somebody who does not keep them.
    pub(crate) fn with_bytes<T>(&self, show: impl FnOnce(&[u8]) -> T) -> T {
        let mut room = [0; 2 * MAX_BYTES + JOIN.len_utf8()];
        let mut used = 0;
        let mut join = [0; JOIN.len_utf8()];
        let join: &str = JOIN.encode_utf8(&mut join);
        for part in [&*self.tenant.0, join, &*self.user.0] {
            // No id is longer than it may be.
            room[used..used + part.len()].copy_from_slice(part.as_bytes());
            used += part.len();
        }
        show(&room[..used])
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// When the bytes are no such key.
    pub fn decode(bytes: &[u8]) -> Result<Self, IdError> {
        let [tenant, user] = split(bytes, "user")?;
        Ok(Self {
            tenant: TenantId::new(tenant)?,
            user: UserId::new(user)?,
        })
    }
}

/// A device of a user in a tenant: the thing that beats.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// Whose it is.
    pub owner: UserKey,
    /// Which of the user's devices.
    pub device: DeviceId,
}

impl SessionKey {
    /// A key of checked parts.
    #[must_use]
    pub fn new(owner: UserKey, device: DeviceId) -> Self {
        Self { owner, device }
    }

    /// `tenant 0x1F user 0x1F device`.
    #[must_use]
    pub fn encode(&self) -> String {
        format!(
            "{}{JOIN}{}{JOIN}{}",
            self.owner.tenant, self.owner.user, self.device
        )
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// When the bytes are no such key.
    pub fn decode(bytes: &[u8]) -> Result<Self, IdError> {
        let [tenant, user, device] = split(bytes, "session")?;
        let owner = UserKey {
            tenant: TenantId::new(tenant)?,
            user: UserId::new(user)?,
        };
        Ok(Self {
            owner,
            device: DeviceId::new(device)?,
        })
    }
}

fn split<'a, const N: usize>(bytes: &'a [u8], what: &'static str) -> Result<[&'a str; N], IdError> {
    let text = std::str::from_utf8(bytes).map_err(|_| IdError::Malformed(what))?;
    let mut parts = text.split(JOIN);
    let mut out = [""; N];
    for slot in &mut out {
        *slot = parts.next().ok_or(IdError::Malformed(what))?;
    }
    if parts.next().is_some() {
        return Err(IdError::Malformed(what));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_control_characters() {
        assert!(UserId::new("ü").is_ok());
        assert!(UserId::new("x".repeat(128)).is_ok());
        assert_eq!(UserId::new(""), Err(IdError::Empty("user")));
        assert_eq!(
            UserId::new("x".repeat(129)),
            Err(IdError::TooLong("user", 129))
        );
        for bad in ["a\u{1f}b", "a\nb", "\u{7f}", "\u{85}"] {
            assert_eq!(RoomId::new(bad), Err(IdError::Control("room")), "{bad:?}");
        }
    }

    #[test]
    fn keys_round_trip_and_refuse_other_shapes() {
        let owner = UserKey::new(TenantId::new("t").unwrap(), UserId::new("u").unwrap());
        assert_eq!(
            UserKey::decode(owner.encode().as_bytes()),
            Ok(owner.clone())
        );
        let key = SessionKey::new(owner, DeviceId::new("d").unwrap());
        assert_eq!(SessionKey::decode(key.encode().as_bytes()), Ok(key.clone()));
        assert!(UserKey::decode(key.encode().as_bytes()).is_err());
        assert!(SessionKey::decode(b"t\x1fu").is_err());
        assert!(SessionKey::decode(&[0xff, 0x1f, b'u', 0x1f, b'd']).is_err());
    }

    #[test]
    fn an_incarnation_knows_its_node() {
        let node = NodeId::new("gw~1").unwrap();
        assert_eq!(Incarnation::of(&node, 255).unwrap().node(), "gw~1");
    }
}
