//! What one watcher is told, noted. Every connection of a watcher is a watcher of its own in the
//! history: what the time between two of them hid from it can't be held against anybody.

use std::collections::{BTreeMap, BTreeSet};

use adsum_client::{Item, Left};
use adsum_core::Version;
use adsum_tests::history::{Event, Leaving, Seen, View};
use serde_json::Value;

use super::Scene;

pub(crate) struct Sight {
    scene: Scene,
    name: String,
    view: View,
    connections: u64,
    /// Whom it knows of, over its connections.
    shown: BTreeMap<String, Seen>,
    watching: bool,
    begun: bool,
}

impl Sight {
    pub(crate) fn new(scene: &Scene, name: String, view: View) -> Self {
        Self {
            scene: scene.clone(),
            name,
            view,
            connections: 0,
            shown: BTreeMap::new(),
            watching: false,
            begun: false,
        }
    }

    fn id(&self) -> String {
        format!("{}.{}", self.name, self.connections)
    }

    /// Whether what it is shown counts as dots that are right or wrong.
    fn counts(&self) -> bool {
        self.view.all && self.view.topic == "tenant"
    }

    fn show(&self) {
        if self.counts() {
            let shown: BTreeSet<_> = self.shown.keys().cloned().collect();
            let begun = self.watching && self.begun;
            self.scene
                .truth
                .show(&self.name, |known| *known = begun.then_some(shown));
        }
    }

    /// A connection stands.
    pub(crate) fn begin(&mut self, gateway: &str) {
        self.end();
        self.connections += 1;
        gateway.clone_into(&mut self.view.gateway);
        (self.watching, self.begun) = (true, false);
        let (watcher, view) = (self.id(), self.view.clone());
        self.scene.record.note(Event::Watching { watcher, view });
    }

    /// The connection is gone.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.watching) {
            let watcher = self.id();
            self.scene.record.note(Event::Unwatched { watcher });
            self.show();
        }
    }

    /// Told the topic whole.
    pub(crate) fn state(&mut self, members: Vec<Seen>, complete: bool) {
        self.shown = members.into_iter().map(|s| (s.user.clone(), s)).collect();
        self.begun = false;
        self.synced(complete);
    }

    /// What it knows is up to date. Told only once: afterwards there are differences.
    pub(crate) fn synced(&mut self, complete: bool) {
        if self.watching && !std::mem::replace(&mut self.begun, true) {
            let event = Event::State {
                watcher: self.id(),
                members: self.shown.values().cloned().collect(),
                settling: !complete,
            };
            self.scene.record.note(event);
            self.show();
        }
    }

    /// Told what changed.
    pub(crate) fn diff(&mut self, joins: Vec<Seen>, updates: Vec<Seen>, leaves: Vec<Leaving>) {
        for seen in joins.iter().chain(&updates) {
            self.shown.insert(seen.user.clone(), seen.clone());
        }
        for leave in &leaves {
            self.shown.remove(&leave.user);
        }
        // Before the first picture is whole, these are how it came about; and what waited to be
        // read when the connection was lost counts for the next picture.
        if !self.begun || !self.watching {
            return;
        }
        if self.counts() {
            self.scene.truth.show(&self.name, |known| {
                if let Some(known) = known {
                    known.extend(joins.iter().map(|s| s.user.clone()));
                    for leave in &leaves {
                        known.remove(&leave.user);
                    }
                }
            });
        }
        self.scene.record.note(Event::Diff {
            watcher: self.id(),
            joins,
            updates,
            leaves,
        });
    }
}

/// An item of our own client.
pub(crate) fn seen(item: &Item) -> Seen {
    Seen {
        user: item.user.as_str().to_owned(),
        status: item.status,
        kinds: item.devices.iter().map(|k| k.as_str().to_owned()).collect(),
        mark: item.meta.as_ref().and_then(|m| m.as_str().parse().ok()),
        v: item.v,
    }
}

/// A leave of our own client: without a reason it was found by comparison.
pub(crate) fn leaving(left: &Left) -> Leaving {
    Leaving {
        user: left.user.as_str().to_owned(),
        reason: left.reason,
        v: left.reason.map_or(Version::ZERO, |_| left.v),
    }
}

/// Items of a frame in JSON.
pub(crate) fn seen_in(list: &Value) -> Vec<Seen> {
    let seen = |item: &Value| {
        Some(Seen {
            user: item["user"].as_str()?.to_owned(),
            status: serde_json::from_value(item["status"].clone()).ok()?,
            kinds: serde_json::from_value(item["devices"].clone()).ok()?,
            mark: item["meta"].as_u64(),
            v: item["v"].as_str()?.parse().ok()?,
        })
    };
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(seen)
        .collect()
}

/// Leaves of a frame in JSON.
pub(crate) fn leaving_in(list: &Value) -> Vec<Leaving> {
    let leaving = |left: &Value| {
        Some(Leaving {
            user: left["user"].as_str()?.to_owned(),
            reason: serde_json::from_value(left["reason"].clone())
                .ok()
                .flatten(),
            v: left["v"].as_str()?.parse().ok()?,
        })
    };
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(leaving)
        .collect()
}
