//! Between the words of core and what the feed carries. A peer may be of another release, so
//! nothing is taken on trust.

use std::sync::Arc;

use adsum_core::{
    IdError, Invalid, Item, Kind, Meta, Origin, Presence, Reason, RoomId, Status, TenantId, Topic,
    TopicState, UserId, Version, Visibility,
};

use crate::feed;

/// A topic of a tenant.
pub type TopicKey = (TenantId, Topic);

/// A frame that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field that must be there is not.
    #[error("frame without {0}")]
    Missing(&'static str),
    /// A field with a value that means nothing.
    #[error("frame with an unknown {0}")]
    Unknown(&'static str),
    /// An id that is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Something else that breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

type Result<T> = std::result::Result<T, Malformed>;

/// Writes a version.
#[must_use]
pub const fn version_to(version: Version) -> feed::Cursor {
    feed::Cursor {
        epoch: version.epoch,
        seq: version.seq,
    }
}

/// Reads a version.
#[must_use]
pub const fn version_from(cursor: &feed::Cursor) -> Version {
    Version::new(cursor.epoch, cursor.seq)
}

fn version(cursor: Option<&feed::Cursor>) -> Result<Version> {
    cursor
        .map(version_from)
        .ok_or(Malformed::Missing("version"))
}

/// Writes a topic.
#[must_use]
pub fn topic_to(tenant: &TenantId, topic: &Topic) -> feed::TopicRef {
    use feed::topic_ref::Topic as To;
    let topic = match topic {
        Topic::Room(room) => To::Room(room.to_string()),
        Topic::User(user) => To::User(user.to_string()),
        Topic::Tenant => To::All(true),
    };
    feed::TopicRef {
        tenant: tenant.to_string(),
        topic: Some(topic),
    }
}

/// Reads a topic.
///
/// # Errors
/// When it names none.
pub fn topic_from(topic: &feed::TopicRef) -> Result<TopicKey> {
    use feed::topic_ref::Topic as From;
    let tenant = TenantId::new(topic.tenant.as_str())?;
    let topic = match topic.topic.as_ref().ok_or(Malformed::Missing("topic"))? {
        From::Room(room) => Topic::Room(RoomId::new(room.as_str())?),
        From::User(user) => Topic::User(UserId::new(user.as_str())?),
        From::All(_) => Topic::Tenant,
    };
    Ok((tenant, topic))
}

const STATUSES: [(Status, feed::Status); 6] = [
    (Status::Online, feed::Status::Online),
    (Status::Away, feed::Status::Away),
    (Status::Busy, feed::Status::Busy),
    (Status::Dnd, feed::Status::Dnd),
    (Status::Invisible, feed::Status::Invisible),
    (Status::Offline, feed::Status::Offline),
];

/// Writes a person in a topic.
#[must_use]
pub fn item_to(item: &Item) -> feed::Item {
    let status = STATUSES
        .iter()
        .find(|(s, _)| *s == item.status)
        .map(|(_, to)| *to);
    feed::Item {
        user: item.user.to_string(),
        status: status.unwrap_or(feed::Status::Unspecified).into(),
        devices: item.devices.iter().map(|k| k.as_str().to_owned()).collect(),
        meta: item.meta.as_ref().map(|m| m.as_str().to_owned()),
        since: item.since,
        v: Some(version_to(item.v)),
        visibility: match item.visibility {
            Visibility::Everyone => feed::Visibility::Everyone,
            Visibility::Contacts => feed::Visibility::Contacts,
            Visibility::Nobody => feed::Visibility::Nobody,
        }
        .into(),
        contacts: item.contacts,
        frozen_at: item.frozen_at,
    }
}

/// Reads a person in a topic.
///
/// # Errors
/// When a field is missing or means nothing. An unknown visibility is refused, never widened.
pub fn item_from(item: feed::Item) -> Result<Arc<Item>> {
    let status = STATUSES
        .iter()
        .find(|(_, to)| i32::from(*to) == item.status);
    let visibility = match feed::Visibility::try_from(item.visibility) {
        Ok(feed::Visibility::Everyone) => Visibility::Everyone,
        Ok(feed::Visibility::Contacts) => Visibility::Contacts,
        Ok(feed::Visibility::Nobody) => Visibility::Nobody,
        Err(_) => return Err(Malformed::Unknown("visibility")),
    };
    let devices = item.devices.into_iter().map(Kind::new);
    let mut devices = devices.collect::<std::result::Result<Vec<_>, _>>()?;
    // It may have taken over the room of what was decoded.
    devices.shrink_to_fit();
    Ok(Arc::new(Item {
        user: UserId::new(item.user)?,
        status: status
            .map(|(s, _)| *s)
            .ok_or(Malformed::Unknown("status"))?,
        devices,
        meta: item.meta.map(Meta::trusted),
        since: item.since,
        v: version(item.v.as_ref())?,
        visibility,
        contacts: item.contacts,
        frozen_at: item.frozen_at,
    }))
}

/// Writes a state; `committed_us` and `routed_us` are for those who measure.
#[must_use]
pub fn state_to(state: &TopicState, committed_us: u64, routed_us: u64) -> feed::State {
    use feed::state::Presence as To;
    let presence = match &state.presence {
        Presence::Here(item) => To::Here(item_to(item)),
        Presence::Absent { reason, last_seen } => To::Absent(feed::Absent {
            user: state.user.to_string(),
            reason: reason.map_or(0, |r| u32::try_from(r.code()).unwrap_or_default()),
            last_seen: *last_seen,
        }),
    };
    let origin = state.origin.as_ref().map(|o| feed::Origin {
        at_us: o.at_us,
        traceparent: o.traceparent.as_deref().map(str::to_owned),
        committed_us,
        routed_us,
    });
    feed::State {
        topic: Some(topic_to(&state.tenant, &state.topic)),
        version: Some(version_to(state.version)),
        presence: Some(presence),
        origin,
    }
}

/// Reads a state.
///
/// # Errors
/// When a field is missing or means nothing.
pub fn state_from(state: feed::State) -> Result<TopicState> {
    use feed::state::Presence as From;
    let (tenant, topic) = topic_from(&state.topic.ok_or(Malformed::Missing("topic"))?)?;
    let (user, presence) = match state.presence.ok_or(Malformed::Missing("presence"))? {
        From::Here(item) => {
            let item = item_from(item)?;
            (item.user.clone(), Presence::Here(item))
        }
        From::Absent(absent) => {
            let reason = Reason::from_code(absent.reason.into());
            let reason = reason.ok_or(Malformed::Unknown("reason"))?;
            let presence = Presence::Absent {
                reason,
                last_seen: absent.last_seen,
            };
            (UserId::new(absent.user)?, presence)
        }
    };
    let origin = state.origin.map(|o| Origin {
        at_us: o.at_us,
        traceparent: o.traceparent.map(Arc::from),
    });
    let version = version(state.version.as_ref())?;
    Ok(TopicState {
        tenant,
        topic,
        user,
        presence,
        version,
        origin,
    })
}
