//! What the session is to be: what a hello says, whatever connection it goes over.

use std::collections::{BTreeMap, BTreeSet};

use adsum_core::{Activity, Digest, Kind, Manual, Meta, RoomId, Topic};
use adsum_proto::client::frame::{ClientBody, Hello, Join, Mode, Patch, Set, Watch};

/// The wished-for session, as far as it is confirmed, or was given at the start.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Intent {
    pub(crate) kind: Kind,
    pub(crate) activity: Activity,
    /// Said until it is confirmed, and then no more: it is the user's, on all devices, and a
    /// reconnect must not undo what another device did since.
    pub(crate) status: Patch<Manual>,
    pub(crate) meta: Option<Meta>,
    pub(crate) rooms: BTreeMap<RoomId, Option<Meta>>,
    pub(crate) watches: BTreeMap<Topic, Mode>,
    pub(crate) linger_ms: Option<u64>,
}

impl Intent {
    /// What a confirmed frame makes of it.
    pub(crate) fn apply(&mut self, body: &ClientBody) {
        match body {
            ClientBody::Join(join) => {
                self.rooms.insert(join.room.clone(), join.meta.clone());
            }
            ClientBody::Part(room) => {
                self.rooms.remove(room);
            }
            ClientBody::Watch(watch) => {
                self.watches.insert(watch.topic.clone(), watch.mode);
            }
            ClientBody::Unwatch(topics) => topics.iter().for_each(|topic| {
                self.watches.remove(topic);
            }),
            ClientBody::Set(set) => self.set(set),
            _ => {}
        }
    }

    fn set(&mut self, set: &Set) {
        self.activity = set.activity.unwrap_or(self.activity);
        self.meta = set.meta.clone().apply(self.meta.take());
    }

    /// As a hello, without token and numbers.
    pub(crate) fn hello(&self, digest: impl Fn(&Topic, Mode) -> Option<Digest>) -> Hello {
        let rooms = self.rooms.iter().map(|(room, meta)| join(room, meta));
        let watch = self.watches.iter().map(|(topic, mode)| Watch {
            topic: topic.clone(),
            mode: *mode,
            digest: digest(topic, *mode),
        });
        Hello {
            kind: self.kind.clone(),
            activity: self.activity,
            status: self.status,
            meta: self.meta.clone(),
            rooms: rooms.collect(),
            watch: watch.collect(),
            linger_ms: self.linger_ms,
            ..Hello::default()
        }
    }

    /// The frames that make this of what a hello said: it was written before the connection
    /// stood, and answers on the old one came in since.
    pub(crate) fn since(&self, said: &Self) -> Vec<ClientBody> {
        let mut bodies = Vec::new();
        for (room, meta) in &self.rooms {
            if said.rooms.get(room) != Some(meta) {
                bodies.push(ClientBody::Join(join(room, meta)));
            }
        }
        let parts = said.rooms.keys().filter(|r| !self.rooms.contains_key(*r));
        bodies.extend(parts.cloned().map(ClientBody::Part));
        bodies.extend(self.set_since(said));
        for (topic, mode) in &self.watches {
            if said.watches.get(topic) != Some(mode) {
                bodies.push(watch(topic, *mode, None));
            }
        }
        let kept: BTreeSet<_> = self.watches.keys().collect();
        let dropped = said.watches.keys().filter(|t| !kept.contains(t));
        let dropped: Vec<_> = dropped.cloned().collect();
        if !dropped.is_empty() {
            bodies.push(ClientBody::Unwatch(dropped));
        }
        bodies
    }

    fn set_since(&self, said: &Self) -> Option<ClientBody> {
        let mut set = Set::default();
        if self.activity != said.activity {
            set.activity = Some(self.activity);
        }
        if self.meta != said.meta {
            set.meta = self.meta.clone().map_or(Patch::Clear, Patch::Set);
        }
        (set != Set::default()).then_some(ClientBody::Set(set))
    }
}

fn join(room: &RoomId, meta: &Option<Meta>) -> Join {
    Join {
        room: room.clone(),
        meta: meta.clone(),
    }
}

/// The frame that watches a topic.
pub(crate) fn watch(topic: &Topic, mode: Mode, digest: Option<Digest>) -> ClientBody {
    ClientBody::Watch(Watch {
        topic: topic.clone(),
        mode,
        digest,
    })
}
