//! What a gateway knows of its topics, in the real rosters, and what its watchers are told of
//! it, each with their own eyes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use adsum_core::{
    Change, Item, Leave, Pending, Reason, Roster, Topic, TopicState, UserId, UserKey, Version,
    states_of,
    store::{Shard, Store},
};
use adsum_dispatcher::Mark;
use adsum_proto::TopicKey;

use super::{client::mark, world::World};
use crate::history::{Event, Leaving, Seen, View};

pub(super) struct Picture {
    pub(super) key: TopicKey,
    needed: Vec<Shard>,
    roster: Roster,
    pending: Pending,
    parts: BTreeSet<Shard>,
    settling: BTreeSet<Shard>,
}

#[derive(Debug)]
struct Watcher {
    name: String,
    topic: usize,
    eyes: Option<UserId>,
    all: bool,
    /// Whom it was told of; `None` before the first state.
    shown: Option<BTreeMap<UserId, Arc<Item>>>,
}

#[derive(Default)]
pub(super) struct Pictures {
    pub(super) topics: Vec<Picture>,
    watchers: Vec<Watcher>,
    lists: BTreeMap<(UserId, u64), BTreeSet<UserId>>,
}

impl Pictures {
    fn sees(&self, watcher: &Watcher, item: &Item) -> bool {
        let listed = || {
            let list = self.lists.get(&(item.user.clone(), item.contacts));
            let list = list.zip(watcher.eyes.as_ref());
            list.is_some_and(|(list, eyes)| list.contains(eyes))
        };
        watcher.all || item.visible_to(watcher.eyes.as_ref(), listed)
    }

    /// Members and remembered absences of the largest topic.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let rosters = self.topics.iter().map(|t| &t.roster);
        let members = rosters.clone().map(Roster::len).max();
        let remembered = rosters.map(Roster::remembered).max();
        (members.unwrap_or(0), remembered.unwrap_or(0))
    }
}

fn seen(item: &Item) -> Seen {
    Seen {
        user: item.user.as_str().to_owned(),
        status: item.status,
        kinds: item.devices.iter().map(|k| k.as_str().to_owned()).collect(),
        mark: item.meta.as_ref().map(mark),
        v: item.v,
    }
}

/// Whether a watcher would see the same.
fn alike(a: &Item, b: &Item) -> bool {
    a.status == b.status && a.since == b.since && a.devices == b.devices && a.meta == b.meta
}

impl World {
    pub(super) fn start_pictures(&mut self, g: usize) {
        let (tenant, shards) = (self.tenant.clone(), self.plan.shards);
        let absent = self.times.absent;
        let store = &self.store;
        let picture = |topic: &Topic| {
            let needed = match topic {
                Topic::User(user) => {
                    vec![store.shard_of(&UserKey::new(tenant.clone(), user.clone()))]
                }
                _ => (0..shards).collect(),
            };
            Picture {
                key: (tenant.clone(), topic.clone()),
                needed,
                roster: Roster::new(absent),
                pending: Pending::default(),
                parts: BTreeSet::new(),
                settling: BTreeSet::new(),
            }
        };
        let topics: Vec<_> = self.topics.iter().map(picture).collect();
        let life = self.processes[self.gateways[g].process].life;
        let users: Vec<_> = self
            .clients
            .iter()
            .map(|c| c.key.owner.user.clone())
            .collect();
        let mut watchers = Vec::new();
        for (n, (topic, all)) in [(0, false), (1, false), (2, false), (0, true)]
            .into_iter()
            .enumerate()
        {
            let eyes = (n % 2 == 0 && !all).then(|| self.rng.pick(&users).clone());
            watchers.push(Watcher {
                name: format!("{}.{life}.w{n}", self.gateways[g].name),
                topic,
                eyes,
                all,
                shown: None,
            });
        }
        for watcher in &watchers {
            let view = View {
                gateway: self.gateways[g].name.clone(),
                topic: self.topics[watcher.topic].to_string(),
                eyes: watcher.eyes.as_ref().map(|u| u.as_str().to_owned()),
                all: watcher.all,
            };
            let watcher = watcher.name.clone();
            self.note(Event::Watching { watcher, view });
        }
        let pictures = &mut self.gateways[g].pictures;
        pictures.topics = topics;
        pictures.watchers = watchers;
        pictures.lists.clear();
    }

    pub(super) fn end_pictures(&mut self, g: usize) {
        let watchers = std::mem::take(&mut self.gateways[g].pictures.watchers);
        for watcher in watchers {
            let watcher = watcher.name;
            self.note(Event::Unwatched { watcher });
        }
    }

    pub(super) fn put_states(&mut self, g: usize, states: Vec<(Shard, TopicState)>) {
        let now = self.now;
        let pictures = &mut self.gateways[g].pictures;
        let mut touched = BTreeSet::new();
        for (shard, state) in states {
            let key = (state.tenant, state.topic);
            let Some(n) = pictures.topics.iter().position(|t| t.key == key) else {
                continue;
            };
            touched.insert(n);
            let Picture {
                roster, pending, ..
            } = &mut pictures.topics[n];
            roster.take(
                shard,
                &state.user,
                state.presence,
                state.version,
                now,
                pending,
            );
        }
        for topic in touched {
            self.tell(g, topic);
        }
    }

    /// Takes a change of this gateway's own ahead of the feed, where its shard's part is whole and of
    /// the same epoch.
    pub(super) fn foresee(&mut self, g: usize, shard: Shard, whole: Option<&Change>) {
        let Some(change) = whole else { return };
        let pictures = &self.gateways[g].pictures;
        let known = |key: TopicKey| {
            let picture = pictures.topics.iter().find(|t| t.key == key);
            picture.is_some_and(|picture| {
                let whole = picture.parts.contains(&shard) && !picture.settling.contains(&shard);
                whole && picture.roster.settled_in(shard) == Some(change.version.epoch)
            })
        };
        let states = states_of(change).into_iter();
        let states = states.filter(|s| known((s.tenant.clone(), s.topic.clone())));
        let states = states.map(|state| (shard, state)).collect();
        self.put_states(g, states);
    }

    pub(super) fn put_part(
        &mut self,
        g: usize,
        shard: Shard,
        key: &TopicKey,
        members: Vec<(Arc<Item>, Version)>,
        at: Mark,
    ) {
        let now = self.now;
        let pictures = &mut self.gateways[g].pictures;
        let Some(n) = pictures.topics.iter().position(|t| t.key == *key) else {
            return;
        };
        let picture = &mut pictures.topics[n];
        if !picture.needed.contains(&shard) {
            return;
        }
        let pending = &mut picture.pending;
        picture
            .roster
            .take_part(shard, members, at.version, at.settling, now, pending);
        picture.parts.insert(shard);
        if at.settling {
            picture.settling.insert(shard);
        } else {
            picture.settling.remove(&shard);
        }
        self.tell(g, n);
    }

    pub(super) fn put_list(&mut self, g: usize, user: &UserKey, version: u64, list: &[UserId]) {
        let list = list.iter().cloned().collect();
        let pictures = &mut self.gateways[g].pictures;
        pictures.lists.insert((user.user.clone(), version), list);
        for topic in 0..self.topics.len() {
            let picture = &self.gateways[g].pictures.topics[topic];
            if let Some(item) = picture.roster.get(&user.user).cloned() {
                self.tell_watchers(g, topic, &[item], &[]);
            }
        }
    }

    fn tell(&mut self, g: usize, topic: usize) {
        let picture = &mut self.gateways[g].pictures.topics[topic];
        let mut diff = picture.pending.tell(&picture.roster);
        diff.joins.append(&mut diff.updates);
        diff.joins.sort_by(|a, b| a.user.cmp(&b.user));
        diff.leaves.sort_by(|a, b| a.item.user.cmp(&b.item.user));
        self.tell_watchers(g, topic, &diff.joins, &diff.leaves);
        self.first_states(g, topic);
    }

    fn tell_watchers(&mut self, g: usize, topic: usize, here: &[Arc<Item>], gone: &[Leave]) {
        let count = self.gateways[g].pictures.watchers.len();
        for n in 0..count {
            let pictures = &self.gateways[g].pictures;
            let watcher = &pictures.watchers[n];
            if watcher.topic != topic || watcher.shown.is_none() {
                continue;
            }
            let sees: Vec<_> = here
                .iter()
                .map(|item| pictures.sees(watcher, item))
                .collect();
            let event = self.gateways[g].pictures.watchers[n].learn(here, &sees, gone);
            if let Some(event) = event {
                self.note(event);
            }
        }
    }

    /// Watchers who wait for a whole picture get it once all parts are there.
    fn first_states(&mut self, g: usize, topic: usize) {
        let pictures = &self.gateways[g].pictures;
        let picture = &pictures.topics[topic];
        if picture.parts.len() < picture.needed.len() {
            return;
        }
        let settling = !picture.settling.is_empty();
        let waiting = |w: &Watcher| w.topic == topic && w.shown.is_none();
        for n in 0..pictures.watchers.len() {
            let pictures = &self.gateways[g].pictures;
            let watcher = &pictures.watchers[n];
            if !waiting(watcher) {
                continue;
            }
            let members = pictures.topics[topic].roster.members();
            let shown: BTreeMap<_, _> = members
                .filter(|item| pictures.sees(watcher, item))
                .map(|item| (item.user.clone(), item.clone()))
                .collect();
            let event = Event::State {
                watcher: watcher.name.clone(),
                members: shown.values().map(|item| seen(item)).collect(),
                settling,
            };
            self.gateways[g].pictures.watchers[n].shown = Some(shown);
            self.note(event);
        }
    }
}

impl Watcher {
    /// Takes what changed; answers what it is told.
    fn learn(&mut self, here: &[Arc<Item>], sees: &[bool], gone: &[Leave]) -> Option<Event> {
        let shown = self.shown.as_mut()?;
        let (mut joins, mut updates, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        for (item, sees) in here.iter().zip(sees) {
            match (shown.get(&item.user), sees) {
                (None, true) => joins.push(seen(item)),
                (Some(known), true) if !alike(known, item) => updates.push(seen(item)),
                (Some(_), false) => leaves.push(Leaving {
                    user: item.user.as_str().to_owned(),
                    reason: Some(Reason::Leave),
                    v: item.v,
                }),
                _ => {}
            }
            if *sees {
                shown.insert(item.user.clone(), item.clone());
            } else {
                shown.remove(&item.user);
            }
        }
        for leave in gone {
            if shown.remove(&leave.item.user).is_some() {
                leaves.push(Leaving {
                    user: leave.item.user.as_str().to_owned(),
                    reason: leave.reason,
                    v: leave.version,
                });
            }
        }
        let nothing = joins.is_empty() && updates.is_empty() && leaves.is_empty();
        let watcher = self.name.clone();
        (!nothing).then_some(Event::Diff {
            watcher,
            joins,
            updates,
            leaves,
        })
    }
}
