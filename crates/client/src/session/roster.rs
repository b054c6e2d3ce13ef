//! What a client knows of one topic, and how it turns states and diffs into what really changed.
//! A state is never told as it is: only its difference to what the app has seen already.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

use adsum_core::{Digest, Topic, UserId};
use adsum_proto::client::frame::{Item, Left, Members, Mode, PresenceDiff, PresenceState};

use crate::{Event, View};

/// The picture of one topic. It outlives connections.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    members: BTreeMap<UserId, Arc<Item>>,
    digest: Digest,
    /// As the server tells it, which may be higher than what was asked for.
    mode: Mode,
    /// Whether there was a state since the watch began.
    known: bool,
    complete: bool,
    /// A part of the cluster can't be heard.
    stale: bool,
    count: Option<u64>,
    /// Of the last frame on this connection; `None` while a state is awaited.
    offset: Option<u64>,
    /// What the awaited state may answer `unchanged` to.
    asked: Option<Digest>,
}

/// What a frame leads to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// What the app is told.
    pub(crate) events: Vec<Event>,
    /// What is known is not to be trusted: ask for the state.
    pub(crate) stale: bool,
}

impl Outcome {
    fn stale() -> Self {
        Self {
            events: Vec::new(),
            stale: true,
        }
    }
}

impl Roster {
    /// What a watch in this mode may name as known; nothing is resumed in mode `count`.
    pub(crate) fn resume(&self, wanted: Mode) -> Option<Digest> {
        let detailed = self.mode != Mode::Count && wanted != Mode::Count;
        (self.known && detailed).then_some(self.digest)
    }

    /// From now on a state is awaited; diffs before it belong to something that is over.
    pub(crate) fn expect(&mut self, asked: Option<Digest>) {
        self.offset = None;
        self.asked = asked;
    }

    /// Whether all of the cluster has answered.
    pub(crate) fn complete(&self) -> bool {
        self.complete
    }

    /// The picture for the app.
    pub(crate) fn view(&self) -> View {
        View {
            members: self.members.values().cloned().collect(),
            count: self.count.unwrap_or(self.members.len() as u64),
            mode: self.mode,
            complete: self.known && self.complete,
            stale: self.stale,
            digest: self.digest,
        }
    }

    /// Takes a state in.
    pub(crate) fn state(&mut self, state: PresenceState) -> Outcome {
        let PresenceState {
            topic,
            offset,
            mode,
            members,
            stale,
        } = state;
        let asked = self.asked.take();
        let Some(members) = members else {
            let mut outcome = self.unchanged(topic.clone(), offset, mode, asked);
            if !outcome.stale {
                self.heard(&topic, Some(stale), &mut outcome.events);
            }
            return outcome;
        };
        self.offset = Some(offset);
        let mut events = Vec::new();
        let complete = members.complete;
        let count = members.count;
        if mode == Mode::Count {
            self.sample(members);
        } else {
            self.reconcile(&topic, members, &mut events);
        }
        self.mode = mode;
        self.known = true;
        self.complete = complete;
        events.push(Event::Synced {
            topic: topic.clone(),
            mode,
            complete,
            resumed: false,
        });
        // After the sync: in mode `count` that one says to forget all before it.
        self.counted(&topic, count, &mut events);
        self.heard(&topic, Some(stale), &mut events);
        Outcome {
            events,
            stale: false,
        }
    }

    /// Takes a diff in.
    pub(crate) fn diff(&mut self, diff: PresenceDiff) -> Outcome {
        let Some(last) = self.offset else {
            return Outcome::default();
        };
        if last.checked_add(1) != Some(diff.offset) {
            return Outcome::stale();
        }
        self.offset = Some(diff.offset);
        let topic = diff.topic;
        let mut events = Vec::new();
        for left in diff.leaves {
            self.remove(&topic, left, &mut events);
        }
        for item in diff.joins.into_iter().chain(diff.updates) {
            self.put(&topic, item, &mut events);
        }
        if self.mode == Mode::Count {
            // Only a sample: who comes and goes in it is not who comes and goes in the topic.
            events.clear();
        }
        self.counted(&topic, diff.count, &mut events);
        self.heard(&topic, diff.stale, &mut events);
        Outcome {
            events,
            stale: false,
        }
    }

    /// The server says that the digest fits. It was taken when the watch was sent; what came
    /// since, on another connection, is not covered by it.
    fn unchanged(
        &mut self,
        topic: Topic,
        offset: u64,
        mode: Mode,
        asked: Option<Digest>,
    ) -> Outcome {
        if !self.known || asked != Some(self.digest) {
            return Outcome::stale();
        }
        self.offset = Some(offset);
        self.mode = mode;
        self.complete = true;
        let synced = Event::Synced {
            topic,
            mode,
            complete: true,
            resumed: true,
        };
        Outcome {
            events: vec![synced],
            stale: false,
        }
    }

    fn sample(&mut self, members: Members) {
        self.clear();
        for item in members.members {
            self.members.insert(item.user.clone(), Arc::new(item));
        }
    }

    /// The difference. Of an incomplete state absence is not inferred: who is missing may follow.
    fn reconcile(&mut self, topic: &Topic, members: Members, events: &mut Vec<Event>) {
        if self.mode == Mode::Count {
            self.clear();
        }
        if members.complete {
            let there: BTreeSet<&UserId> = members.members.iter().map(|i| &i.user).collect();
            let gone = self.members.values().filter(|i| !there.contains(&i.user));
            for item in gone.cloned().collect::<Vec<_>>() {
                self.remove(topic, absence(&item), events);
            }
        }
        for item in members.members {
            self.put(topic, item, events);
        }
    }

    fn put(&mut self, topic: &Topic, item: Item, events: &mut Vec<Event>) {
        let item = Arc::new(item);
        self.digest.add(&item.user, item.v);
        let before = self.members.insert(item.user.clone(), item.clone());
        let topic = || topic.clone();
        match before {
            None => events.push(Event::Joined {
                topic: topic(),
                item,
            }),
            Some(before) => {
                self.digest.remove(&before.user, before.v);
                if !looks_like(&before, &item) {
                    events.push(Event::Updated {
                        topic: topic(),
                        item,
                    });
                }
            }
        }
    }

    fn remove(&mut self, topic: &Topic, left: Left, events: &mut Vec<Event>) {
        if let Some(item) = self.members.remove(&left.user) {
            self.digest.remove(&item.user, item.v);
            events.push(Event::Left {
                topic: topic.clone(),
                left: Arc::new(left),
            });
        }
    }

    fn counted(&mut self, topic: &Topic, count: Option<u64>, events: &mut Vec<Event>) {
        if let Some(count) = count
            && self.count.replace(count) != Some(count)
        {
            events.push(Event::Count {
                topic: topic.clone(),
                count,
            });
        }
    }

    fn heard(&mut self, topic: &Topic, stale: Option<bool>, events: &mut Vec<Event>) {
        if let Some(stale) = stale
            && std::mem::replace(&mut self.stale, stale) != stale
        {
            events.push(Event::Stale {
                topic: topic.clone(),
                stale,
            });
        }
    }

    fn clear(&mut self) {
        self.members.clear();
        self.digest = Digest::default();
    }
}

/// A departure that was not told but seen: why and when is not known.
fn absence(item: &Item) -> Left {
    Left {
        user: item.user.clone(),
        reason: None,
        last_seen: None,
        v: item.v,
    }
}

/// All but the number of the change: a reload gives new numbers to people who stayed as they were.
fn looks_like(a: &Item, b: &Item) -> bool {
    a.status == b.status && a.since == b.since && a.devices == b.devices && a.meta == b.meta
}
