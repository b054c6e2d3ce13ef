//! Small worlds of people for the tests of core: generated changes of one shard, and what they
//! add up to.

use std::collections::HashMap;

use adsum_core::store::{Position, Snapshot};
use adsum_core::{
    Activity, Change, Conn, DeviceId, Event, Holder, Incarnation, Kind, Manual, Membership, Meta,
    Origin, Person, Prefs, Reason, RoomId, Session, Stamp, State, TenantId, UserId, UserKey,
    Version, Versioned, Visibility,
};
use proptest::prelude::*;

pub(crate) fn owner(n: u8) -> UserKey {
    // Two tenants that share user names: nothing may cross.
    let tenant = TenantId::new(if n % 4 == 3 { "beta" } else { "acme" }).unwrap();
    UserKey::new(tenant, UserId::new(format!("u{}", n % 4 % 3)).unwrap())
}

pub(crate) fn device(n: u8) -> DeviceId {
    DeviceId::new(format!("d{}", n % 3)).unwrap()
}

pub(crate) fn room(n: u8) -> RoomId {
    RoomId::new(format!("r{}", n % 3)).unwrap()
}

/// One thing that can happen to a shard.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Put {
        who: u8,
        device: u8,
        rooms: Vec<(u8, Option<u8>)>,
        away: bool,
        meta: Option<u8>,
    },
    Drop {
        who: u8,
        device: u8,
        reason: usize,
    },
    Prefer {
        who: u8,
        prefs: Prefs,
    },
    Epoch,
    Settled,
}

pub(crate) fn prefs() -> impl Strategy<Value = Prefs> {
    let manual = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Manual::Dnd)),
        1 => Just(Some(Manual::Invisible)),
    ];
    let who = prop_oneof![
        Just(Visibility::Everyone),
        Just(Visibility::Contacts),
        Just(Visibility::Nobody)
    ];
    let numbers = (0..9_u64, 0..9_u64, 0..3_u64, 0..3_u64);
    (manual, who, numbers).prop_map(|(status, seen, (sv, vv, contacts, shown_at))| Prefs {
        status: Versioned {
            value: status,
            version: sv,
        },
        visibility: Versioned {
            value: seen,
            version: vv,
        },
        contacts,
        frozen_at: if status == Some(Manual::Invisible) {
            77
        } else {
            0
        },
        shown_at,
    })
}

/// Steps within one epoch.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let rooms = prop::collection::vec((0..3_u8, prop::option::of(0..3_u8)), 0..3);
    prop_oneof![
        6 => (0..4_u8, 0..3_u8, rooms, any::<bool>(), prop::option::of(0..3_u8)).prop_map(
            |(who, device, rooms, away, meta)| Step::Put { who, device, rooms, away, meta }
        ),
        3 => (0..4_u8, 0..3_u8, 0..6_usize)
            .prop_map(|(who, device, reason)| Step::Drop { who, device, reason }),
        1 => (0..4_u8, prefs()).prop_map(|(who, prefs)| Step::Prefer { who, prefs }),
    ]
}

/// A session that is in one room.
pub(crate) fn session_in(room: &RoomId) -> Session {
    Session {
        holder: Holder::Gateway(Incarnation::new("gw~1").unwrap()),
        stamp: Stamp {
            conn: Conn::new(1).unwrap(),
            rev: 1,
        },
        opened_at: 1,
        state: State {
            rooms: [(room.clone(), Membership::default())]
                .into_iter()
                .collect(),
            ..State::default()
        },
    }
}

/// A shard that commits what happens to it: the source of truth in these tests.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    pub(crate) version: Version,
    pub(crate) settling: bool,
    pub(crate) people: HashMap<UserKey, Person>,
    pub(crate) prefs: HashMap<UserKey, Prefs>,
    pub(crate) log: Vec<Change>,
}

impl Default for Truth {
    fn default() -> Self {
        Self {
            version: Version::new(1, 0),
            settling: false,
            people: HashMap::new(),
            prefs: HashMap::new(),
            log: Vec::new(),
        }
    }
}

impl Truth {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let Version { epoch, seq } = self.version;
        let position = Position {
            epoch,
            seq,
            first: 1,
            settling: self.settling,
        };
        Snapshot {
            position,
            people: self.people.clone(),
        }
    }

    /// Lets the step happen; nothing visible changed means nothing committed.
    pub(crate) fn step(&mut self, step: &Step) -> Option<Change> {
        let at = 1000 + self.version.seq;
        let event = match step {
            Step::Epoch => {
                self.version.epoch += 10;
                self.settling = true;
                Event::Epoch
            }
            Step::Settled => {
                self.settling = false;
                Event::Settled
            }
            Step::Put {
                who,
                device: d,
                rooms,
                away,
                meta,
            } => self.put(&owner(*who), &device(*d), rooms, *away, *meta, at)?,
            Step::Drop {
                who,
                device: d,
                reason,
            } => {
                let (owner, device) = (owner(*who), device(*d));
                let person = self.people.get_mut(&owner)?;
                let old = person.sessions.remove(&device)?;
                let prefs = person.prefs;
                if person.sessions.is_empty() {
                    self.people.remove(&owner);
                }
                let rooms_before = old.state.rooms.keys().cloned().collect();
                let reason = Some(Reason::ALL[*reason]);
                Event::Session {
                    owner,
                    device,
                    rooms_before,
                    after: None,
                    prefs,
                    reason,
                }
            }
            Step::Prefer { who, prefs } => {
                let owner = owner(*who);
                self.prefs.insert(owner.clone(), *prefs);
                if let Some(person) = self.people.get_mut(&owner) {
                    person.prefs = *prefs;
                }
                Event::Prefs {
                    owner,
                    prefs: *prefs,
                }
            }
        };
        self.version.seq += 1;
        if let Event::Session { owner, .. } | Event::Prefs { owner, .. } = &event
            && let Some(person) = self.people.get_mut(owner)
        {
            person.version = self.version;
        }
        let origin = at.is_multiple_of(2).then_some(Origin {
            at_us: at,
            traceparent: None,
        });
        let change = Change {
            version: self.version,
            at,
            event,
            origin,
        };
        self.log.push(change.clone());
        Some(change)
    }

    fn put(
        &mut self,
        owner: &UserKey,
        device: &DeviceId,
        rooms: &[(u8, Option<u8>)],
        away: bool,
        meta: Option<u8>,
        at: u64,
    ) -> Option<Event> {
        let known = self.people.get(owner).and_then(|p| p.sessions.get(device));
        let since = |room: &RoomId| {
            known
                .and_then(|s| s.state.rooms.get(room))
                .map_or(at, |stay| stay.since)
        };
        let json = |n: &u8| Meta::trusted(format!("{{\"n\":{n}}}"));
        let rooms = rooms.iter().map(|(n, meta)| {
            let room = room(*n);
            let stay = Membership {
                since: since(&room),
                meta: meta.as_ref().map(json),
            };
            (room, stay)
        });
        let state = State {
            kind: Kind::new(if away { "mobile" } else { "web" }).unwrap(),
            activity: if away {
                Activity::Away
            } else {
                Activity::Online
            },
            meta: meta.as_ref().map(json),
            rooms: rooms.collect(),
        };
        let session = Session {
            holder: Holder::Gateway(Incarnation::new("gw~1").unwrap()),
            stamp: Stamp {
                conn: Conn::new(at).unwrap(),
                rev: 1,
            },
            opened_at: known.map_or(at, |s| s.opened_at),
            state,
        };
        if known.is_some_and(|s| s.looks_like(&session)) {
            return None;
        }
        let rooms_before = known.map(|s| s.state.rooms.keys().cloned().collect());
        let prefs = self.prefs.get(owner).copied().unwrap_or_default();
        let person = self.people.entry(owner.clone()).or_default();
        person.prefs = prefs;
        person.sessions.insert(device.clone(), session.clone());
        Some(Event::Session {
            owner: owner.clone(),
            device: device.clone(),
            rooms_before: rooms_before.unwrap_or_default(),
            after: Some(session),
            prefs,
            reason: None,
        })
    }
}
