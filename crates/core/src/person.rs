//! What all the sessions and preferences of one user add up to.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Activity, DeviceId, Kind, Meta, Prefs, RoomId, Session, Status, UserId, Version, Visibility,
    plant::{Plant, planted},
};

/// A user with at least one session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Person {
    /// Of their last change.
    pub version: Version,
    /// Their settings.
    pub prefs: Prefs,
    /// By device.
    pub sessions: BTreeMap<DeviceId, Session>,
}

/// A person as seen in one topic. Carries the truth; who may see it is decided by
/// [`visible_to`](Self::visible_to) before anything is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Who.
    pub user: UserId,
    /// The true status, `invisible` included.
    pub status: Status,
    /// The kinds of their devices in this topic, sorted; one per device.
    pub devices: Vec<Kind>,
    /// Of the session that came last into this topic. Not of the highest `conn`: a silent
    /// reconnect raises that without a change, and pictures must not depend on it.
    pub meta: Option<Meta>,
    /// First open; in a room: the join; but never before their user came out of hiding. ms.
    pub since: u64,
    /// The last change visible in this topic.
    pub v: Version,
    /// Who may see it.
    pub visibility: Visibility,
    /// The version of the list of contacts that goes with it.
    pub contacts: u64,
    /// While invisible: the public last seen, ms; else 0. What others are told when they stop
    /// seeing the person.
    pub frozen_at: u64,
}

impl Item {
    /// Whether a watcher would see the same: all but the number of the change.
    #[must_use]
    pub fn looks_like(&self, other: &Self) -> bool {
        self.status == other.status
            && self.since == other.since
            && self.visibility == other.visibility
            && self.contacts == other.contacts
            && self.devices == other.devices
            && self.meta == other.meta
    }

    /// Whether everybody who watches may see this person: what counts and samples include.
    #[must_use]
    pub fn public(&self) -> bool {
        self.status != Status::Invisible && self.visibility == Visibility::Everyone
    }

    /// Whether `watcher` may see this person. `contacts` is asked only when a list decides;
    /// it answers whether the watcher is on the list of this version, `false` if not known.
    pub fn visible_to(&self, watcher: Option<&UserId>, contacts: impl FnOnce() -> bool) -> bool {
        if watcher == Some(&self.user) || planted(Plant::LeakyPrivacy) {
            return true;
        }
        if self.status == Status::Invisible {
            return false;
        }
        match self.visibility {
            Visibility::Everyone => true,
            Visibility::Contacts => watcher.is_some() && contacts(),
            Visibility::Nobody => false,
        }
    }
}

impl Person {
    /// The manual status if set, else `online` if any device is active, else `away` if any
    /// device is there, else `offline`.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.sessions.is_empty() {
            return Status::Offline;
        }
        if let Some(manual) = self.prefs.status.value {
            return manual.into();
        }
        let active = self
            .sessions
            .values()
            .any(|s| s.state.activity == Activity::Online);
        if active { Status::Online } else { Status::Away }
    }

    /// The person as a whole: what watchers of the user and of the tenant see.
    #[must_use]
    pub fn item(&self, user: &UserId) -> Option<Arc<Item>> {
        let since = self.sessions.values().map(|s| s.opened_at).min()?;
        let (_, newest) = self
            .sessions
            .iter()
            .max_by_key(|(device, s)| (s.opened_at, *device))?;
        let meta = newest.state.meta.clone();
        Some(self.seen(user, self.sessions.values(), meta, since))
    }

    /// The person in a room; `None` if no session of theirs is there.
    #[must_use]
    pub fn item_in(&self, user: &UserId, room: &RoomId) -> Option<Arc<Item>> {
        let here = || {
            self.sessions
                .iter()
                .filter_map(|(d, s)| Some((d, s, s.state.rooms.get(room)?)))
        };
        let since = here().map(|(_, _, stay)| stay.since).min()?;
        let (_, newest, stay) = here().max_by_key(|(device, _, stay)| (stay.since, *device))?;
        let meta = stay.meta.clone().or_else(|| newest.state.meta.clone());
        Some(self.seen(user, here().map(|(_, s, _)| s), meta, since))
    }

    fn seen<'a>(
        &self,
        user: &UserId,
        sessions: impl Iterator<Item = &'a Session>,
        meta: Option<Meta>,
        since: u64,
    ) -> Arc<Item> {
        let mut devices: Vec<_> = sessions.map(|s| s.state.kind.clone()).collect();
        devices.sort_unstable();
        Arc::new(Item {
            user: user.clone(),
            status: self.status(),
            devices,
            meta,
            since: since.max(self.prefs.shown_at),
            v: self.version,
            visibility: self.prefs.visibility.value,
            contacts: self.prefs.contacts,
            frozen_at: self.prefs.frozen_at,
        })
    }
}
