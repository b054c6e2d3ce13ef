//! What one watcher is told, noted. Every connection is a watcher of its own in the history: what
//! the time between two of them hid can't be held against anybody.

use std::collections::BTreeMap;

use adsum_client::{Event as Told, Item};
use adsum_core::Version;
use adsum_tests::history::{Event, Leaving, Seen, View};

use super::Scene;

/// All go through the Service: which gateway is behind it is not theirs to know.
pub(crate) const GATEWAY: &str = "service";

pub(crate) struct Sight {
    scene: Scene,
    name: String,
    view: View,
    connections: u64,
    shown: BTreeMap<String, Seen>,
    watching: bool,
    begun: bool,
}

impl Sight {
    pub(crate) fn new(scene: &Scene, user: &str, topic: &str) -> Self {
        Self {
            scene: scene.clone(),
            name: user.to_owned(),
            view: View {
                gateway: GATEWAY.to_owned(),
                topic: topic.to_owned(),
                eyes: Some(user.to_owned()),
                all: false,
            },
            connections: 0,
            shown: BTreeMap::new(),
            watching: false,
            begun: false,
        }
    }

    fn id(&self) -> String {
        format!("{}.{}", self.name, self.connections)
    }

    pub(crate) fn hear(&mut self, told: &Told) {
        match told {
            Told::Connected { .. } => self.begin(),
            Told::Disconnected | Told::Ended(_) => self.end(),
            Told::Joined { item, .. } => self.diff(vec![seen(item)], vec![], vec![]),
            Told::Updated { item, .. } => self.diff(vec![], vec![seen(item)], vec![]),
            Told::Left { left, .. } => {
                let leaving = Leaving {
                    user: left.user.to_string(),
                    reason: left.reason,
                    // Without a reason it was found by comparison.
                    v: left.reason.map_or(Version::ZERO, |_| left.v),
                };
                self.diff(vec![], vec![], vec![leaving]);
            }
            Told::Synced { complete: true, .. } => self.synced(),
            _ => {}
        }
    }

    fn begin(&mut self) {
        self.end();
        self.connections += 1;
        (self.watching, self.begun) = (true, false);
        let (watcher, view) = (self.id(), self.view.clone());
        self.scene.record.note(Event::Watching { watcher, view });
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.watching) {
            let watcher = self.id();
            self.scene.record.note(Event::Unwatched { watcher });
        }
    }

    fn synced(&mut self) {
        if self.watching && !std::mem::replace(&mut self.begun, true) {
            self.scene.record.note(Event::State {
                watcher: self.id(),
                members: self.shown.values().cloned().collect(),
                settling: false,
            });
        }
    }

    fn diff(&mut self, joins: Vec<Seen>, updates: Vec<Seen>, leaves: Vec<Leaving>) {
        for seen in joins.iter().chain(&updates) {
            self.shown.insert(seen.user.clone(), seen.clone());
        }
        for leave in &leaves {
            self.shown.remove(&leave.user);
        }
        // Before the first picture is whole, these are how it came about.
        if self.begun && self.watching {
            self.scene.record.note(Event::Diff {
                watcher: self.id(),
                joins,
                updates,
                leaves,
            });
        }
    }
}

fn seen(item: &Item) -> Seen {
    Seen {
        user: item.user.to_string(),
        status: item.status,
        kinds: item.devices.iter().map(|k| k.as_str().to_owned()).collect(),
        mark: item.meta.as_ref().and_then(|m| m.as_str().parse().ok()),
        v: item.v,
    }
}
