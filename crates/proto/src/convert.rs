//! Between the words of core and what the feed carries. A peer may be of another release, so
//! nothing is taken on trust.

use std::sync::Arc;

use adsum_core::{
    DeviceId, IdError, Invalid, Item, Kind, Manual, Meta, Origin, Prefs, Presence, Reason, RoomId,
    SessionKey, Status, TenantId, Topic, TopicState, UserId, UserKey, Version, Versioned,
    Visibility,
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

fn status_to(status: Status) -> feed::Status {
    let known = STATUSES.iter().find(|(s, _)| *s == status);
    known.map_or(feed::Status::Unspecified, |(_, to)| *to)
}

fn status_from(number: i32) -> Result<Status> {
    let known = STATUSES.iter().find(|(_, to)| i32::from(*to) == number);
    known
        .map(|(status, _)| *status)
        .ok_or(Malformed::Unknown("status"))
}

const fn visibility_to(visibility: Visibility) -> feed::Visibility {
    match visibility {
        Visibility::Everyone => feed::Visibility::Everyone,
        Visibility::Contacts => feed::Visibility::Contacts,
        Visibility::Nobody => feed::Visibility::Nobody,
    }
}

/// One that is not known is refused, never widened.
fn visibility_from(number: i32) -> Result<Visibility> {
    match feed::Visibility::try_from(number) {
        Ok(feed::Visibility::Everyone) => Ok(Visibility::Everyone),
        Ok(feed::Visibility::Contacts) => Ok(Visibility::Contacts),
        Ok(feed::Visibility::Nobody) => Ok(Visibility::Nobody),
        Err(_) => Err(Malformed::Unknown("visibility")),
    }
}

/// Writes a person in a topic.
#[must_use]
pub fn item_to(item: &Item) -> feed::Item {
    feed::Item {
        user: item.user.to_string(),
        status: status_to(item.status).into(),
        devices: item.devices.iter().map(|k| k.as_str().to_owned()).collect(),
        meta: item.meta.as_ref().map(|m| m.as_str().to_owned()),
        since: item.since,
        v: Some(version_to(item.v)),
        visibility: visibility_to(item.visibility).into(),
        contacts: item.contacts,
        frozen_at: item.frozen_at,
    }
}

/// Reads a person in a topic.
///
/// # Errors
/// When a field is missing or means nothing. An unknown visibility is refused, never widened.
pub fn item_from(item: feed::Item) -> Result<Arc<Item>> {
    let devices = item.devices.into_iter().map(Kind::new);
    let mut devices = devices.collect::<std::result::Result<Vec<_>, _>>()?;
    // It may have taken over the room of what was decoded.
    devices.shrink_to_fit();
    Ok(Arc::new(Item {
        user: UserId::new(item.user)?,
        status: status_from(item.status)?,
        devices,
        meta: item.meta.map(Meta::trusted),
        since: item.since,
        v: version(item.v.as_ref())?,
        visibility: visibility_from(item.visibility)?,
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

/// A session that was changed without its gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which one.
    pub session: SessionKey,
    /// What its user prefers now, without the list of contacts; `None`: it may be closed.
    pub prefs: Option<Prefs>,
}

/// Writes a check.
#[must_use]
pub fn check_to(check: &Check) -> feed::Check {
    let prefs = check.prefs.map(|prefs| feed::Prefs {
        status: prefs
            .status
            .value
            .map_or(feed::Status::Unspecified, |manual| status_to(manual.into()))
            .into(),
        status_version: prefs.status.version,
        visibility: visibility_to(prefs.visibility.value).into(),
        visibility_version: prefs.visibility.version,
        frozen_at: prefs.frozen_at,
        shown_at: prefs.shown_at,
    });
    let SessionKey { owner, device } = &check.session;
    feed::Check {
        tenant: owner.tenant.to_string(),
        user: owner.user.to_string(),
        device: device.to_string(),
        prefs,
    }
}

/// Reads a check.
///
/// # Errors
/// When a field means nothing.
pub fn check_from(check: feed::Check) -> Result<Check> {
    let owner = UserKey::new(TenantId::new(check.tenant)?, UserId::new(check.user)?);
    Ok(Check {
        session: SessionKey::new(owner, DeviceId::new(check.device)?),
        prefs: check.prefs.as_ref().map(prefs_from).transpose()?,
    })
}

fn prefs_from(prefs: &feed::Prefs) -> Result<Prefs> {
    let manual = match feed::Status::try_from(prefs.status) {
        Ok(feed::Status::Unspecified) => None,
        Ok(feed::Status::Away) => Some(Manual::Away),
        Ok(feed::Status::Busy) => Some(Manual::Busy),
        Ok(feed::Status::Dnd) => Some(Manual::Dnd),
        Ok(feed::Status::Invisible) => Some(Manual::Invisible),
        _ => return Err(Malformed::Unknown("manual status")),
    };
    Ok(Prefs {
        status: Versioned {
            value: manual,
            version: prefs.status_version,
        },
        visibility: Versioned {
            value: visibility_from(prefs.visibility)?,
            version: prefs.visibility_version,
        },
        contacts: 0,
        frozen_at: prefs.frozen_at,
        shown_at: prefs.shown_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prefs: Option<Prefs>) -> Check {
        let owner = UserKey::new(TenantId::new("t").unwrap(), UserId::new("ann").unwrap());
        Check {
            session: SessionKey::new(owner, DeviceId::new("phone").unwrap()),
            prefs,
        }
    }

    #[test]
    fn checks_arrive_as_they_were_sent() {
        let manual = [Manual::Away, Manual::Busy, Manual::Dnd, Manual::Invisible];
        let statuses = manual.into_iter().map(Some).chain([None]);
        let prefs = statuses.zip(3..).map(|(value, version)| Prefs {
            status: Versioned { value, version },
            visibility: Versioned {
                value: Visibility::Nobody,
                version: 2,
            },
            contacts: 0,
            frozen_at: 9,
            shown_at: 7,
        });
        for check in prefs.map(Some).chain([None]).map(check) {
            assert_eq!(check_from(check_to(&check)), Ok(check));
        }
    }

    #[test]
    fn settings_that_mean_nothing_are_refused() {
        let sent = |bend: fn(&mut feed::Prefs)| {
            let mut to = check_to(&check(Some(Prefs::default())));
            to.prefs.as_mut().map(bend).unwrap();
            check_from(to)
        };
        // Nobody chooses to be offline or online.
        for bend in [
            (|p| p.status = feed::Status::Offline.into()) as fn(&mut feed::Prefs),
            |p| p.status = feed::Status::Online.into(),
            |p| p.status = 77,
        ] {
            assert_eq!(sent(bend), Err(Malformed::Unknown("manual status")));
        }
        let wide = sent(|p| p.visibility = 9);
        assert_eq!(wide, Err(Malformed::Unknown("visibility")));
    }
}
