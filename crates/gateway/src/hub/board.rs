//! What the watchers of one topic have been told, and what they still have to be. No IO, no
//! clock: the topic's task says when.
//!
//! Watchers are told in groups, one per mode, each in its own rhythm. What a group was told last
//! is the newest picture with what is pending for the group taken back; so a newcomer gets just
//! what the others of its group have, and nothing is missed or told twice.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use adsum_core::{Diff, Item, Leave, Reason, UserId, Version};
use adsum_proto::client::Mode;

use super::{
    HubConfig,
    told::{Delivery, Entry, Gone, Told, TopicState},
};
use crate::sight::Sight;

/// Lists of contacts by user and version; `None` if not known.
pub(super) type Lists<'a> = &'a dyn Fn(&UserId, u64) -> Option<Arc<HashSet<UserId>>>;

/// Somebody who was touched since a group was last told.
#[derive(Debug)]
struct Pending {
    before: Option<Arc<Told>>,
    gone: Option<Arc<Gone>>,
}

#[derive(Debug, Default)]
struct Group {
    watchers: usize,
    pending: HashMap<UserId, Pending>,
    /// The count that was told last.
    count: Option<u64>,
    /// What was told last of whether all of the cluster can be heard.
    stale: bool,
    /// What was told last is whole: nothing of it was pending when the last part came.
    complete: bool,
    /// Shared by all who see just what everybody may see, until something is told.
    state: Option<Arc<TopicState>>,
}

/// A touched person whom not everybody may see, before or now: judged for each watcher.
#[derive(Debug)]
pub(super) struct Private {
    before: Option<Arc<Told>>,
    now: Option<Arc<Told>>,
    gone: Option<Arc<Gone>>,
    /// What a stranger is told.
    stranger: Option<Entry>,
}

/// What a group is to be told.
#[derive(Debug)]
pub(super) struct Flush {
    /// For all who see just what everybody may see; `None` if that is nothing.
    pub(super) shared: Option<Arc<Delivery>>,
    /// Entries about people whom everybody may see, before and now.
    public: Vec<Entry>,
    private: Vec<Private>,
    count: Option<u64>,
    stale: Option<bool>,
    now_ms: u64,
}

/// The picture.
#[derive(Debug)]
pub(super) struct Board {
    config: HubConfig,
    /// Counts mean something: not for the topic of one user.
    counted: bool,
    members: HashMap<UserId, Arc<Told>>,
    /// Those of the members whom not everybody may see.
    private: HashSet<UserId>,
    complete: bool,
    /// A part of the cluster can't be heard.
    stale: bool,
    mode: Mode,
    groups: [Group; 3],
}

const fn slot(mode: Mode) -> usize {
    match mode {
        Mode::Members => 0,
        Mode::Interval => 1,
        Mode::Count => 2,
    }
}

impl Board {
    pub(super) fn new(config: HubConfig, counted: bool) -> Self {
        Self {
            config,
            counted,
            members: HashMap::new(),
            private: HashSet::new(),
            complete: false,
            stale: false,
            mode: Mode::Members,
            groups: Default::default(),
        }
    }

    /// What the size of the topic demands.
    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    fn count(&self) -> Option<u64> {
        let public = self.members.len() - self.private.len();
        self.counted.then_some(public as u64)
    }

    pub(super) fn enter(&mut self, mode: Mode) {
        let (count, stale) = (self.count(), self.stale);
        let group = &mut self.groups[slot(mode)];
        if group.watchers == 0 {
            (group.count, group.stale, group.complete) = (count, stale, self.complete);
        }
        group.watchers += 1;
    }

    pub(super) fn leave(&mut self, mode: Mode) {
        let group = &mut self.groups[slot(mode)];
        group.watchers = group.watchers.saturating_sub(1);
        if group.watchers == 0 {
            *group = Group::default();
        }
    }

    /// Something is still to be told to this group.
    pub(super) fn pending(&self, mode: Mode) -> bool {
        let group = &self.groups[slot(mode)];
        let other = group.count != self.count() || group.stale != self.stale;
        !group.pending.is_empty() || (group.watchers > 0 && other)
    }

    /// Whether every part is there. What a group was told is whole only once it was told all that
    /// came before.
    pub(super) fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
        for group in &mut self.groups {
            let whole = complete && (group.complete || group.pending.is_empty());
            if group.complete != whole {
                (group.complete, group.state) = (whole, None);
            }
        }
    }

    /// Whether a state of this group is complete.
    pub(super) const fn is_complete(&self, mode: Mode) -> bool {
        self.groups[slot(mode)].complete
    }

    /// Whether a part of the cluster can't be heard now.
    pub(super) const fn set_stale(&mut self, stale: bool) {
        self.stale = stale;
    }

    /// Takes what changed.
    pub(super) fn take(&mut self, diff: &Diff, now_ms: u64) {
        for item in diff.joins.iter().chain(&diff.updates) {
            self.put(item);
        }
        for leave in &diff.leaves {
            self.remove(leave, now_ms);
        }
        self.climb();
    }

    /// Takes the whole picture in place of what was known. `left` tells of those who are missing
    /// why they left and when, as far as that is known.
    pub(super) fn replace(
        &mut self,
        items: &[Arc<Item>],
        left: impl Fn(&UserId) -> Option<(Option<Reason>, u64, Version)>,
        now_ms: u64,
    ) {
        let here: HashSet<_> = items.iter().map(|item| &item.user).collect();
        let away = self
            .members
            .values()
            .filter(|t| !here.contains(&t.item.user));
        let away: Vec<_> = away.map(|told| Arc::clone(&told.item)).collect();
        for item in items {
            let same = |told: &Arc<Told>| told.item.v == item.v && told.item.looks_like(item);
            if !self.members.get(&item.user).is_some_and(same) {
                self.put(item);
            }
        }
        for item in away {
            let (reason, last_seen, version) = left(&item.user).unwrap_or_default();
            let leave = Leave {
                item,
                reason,
                last_seen,
                version,
            };
            self.remove(&leave, now_ms);
        }
        self.climb();
    }

    /// A list of contacts has come: who may see this person is to be judged again.
    pub(super) fn judge_again(&mut self, user: &UserId) {
        if self.private.contains(user) {
            let before = self.members.get(user).cloned();
            self.touch(user, before, None);
        }
    }

    fn put(&mut self, item: &Arc<Item>) {
        let told = Told::new(Arc::clone(item));
        let before = self.members.insert(item.user.clone(), told);
        if item.public() {
            self.private.remove(&item.user);
        } else {
            self.private.insert(item.user.clone());
        }
        self.touch(&item.user, before, None);
    }

    fn remove(&mut self, leave: &Leave, now_ms: u64) {
        let user = &leave.item.user;
        let before = self.members.remove(user);
        self.private.remove(user);
        self.touch(user, before, Some(Gone::new(leave, now_ms)));
    }

    fn touch(&mut self, user: &UserId, before: Option<Arc<Told>>, gone: Option<Arc<Gone>>) {
        for group in self.groups.iter_mut().filter(|g| g.watchers > 0) {
            let pending = group.pending.entry(user.clone());
            let pending = pending.or_insert_with(|| Pending {
                before: before.clone(),
                gone: None,
            });
            pending.gone.clone_from(&gone);
        }
    }

    /// The ladder: up above a threshold, down again 10 % below it.
    fn climb(&mut self) {
        let Some(count) = self.count() else { return };
        let above = |limit: usize, there: bool| {
            let limit = limit as u64;
            count > if there { limit - limit / 10 } else { limit }
        };
        self.mode = if above(self.config.count_above, self.mode == Mode::Count) {
            Mode::Count
        } else if above(self.config.interval_above, self.mode >= Mode::Interval) {
            Mode::Interval
        } else {
            Mode::Members
        };
    }

    /// What a group was told last, as a watcher with these eyes sees it, and whom of it not
    /// everybody sees.
    pub(super) fn state(
        &mut self,
        mode: Mode,
        sight: &Sight,
        lists: Lists<'_>,
    ) -> (Arc<TopicState>, BTreeSet<UserId>) {
        let shared = self.shared_state(mode);
        if mode == Mode::Count {
            return (shared, BTreeSet::new());
        }
        let group = &self.groups[slot(mode)];
        let sees = |told: &&Arc<Told>| sight.sees(&told.item, lists);
        let hidden = |told: &&Arc<Told>| !told.item.public();
        let here = self
            .private
            .iter()
            .filter(|u| !group.pending.contains_key(*u));
        let here = here.filter_map(|user| self.members.get(user));
        let before = group.pending.values().filter_map(|p| p.before.as_ref());
        let extra: Vec<_> = here.chain(before.filter(hidden)).filter(sees).collect();
        if extra.is_empty() {
            return (shared, BTreeSet::new());
        }
        let seen = extra.iter().map(|told| told.item.user.clone()).collect();
        let mut members = shared.members.clone();
        members.extend(extra.into_iter().cloned());
        let own = TopicState::new(mode, shared.complete, members, shared.count, shared.stale);
        (Arc::new(own), seen)
    }

    fn shared_state(&mut self, mode: Mode) -> Arc<TopicState> {
        let count = self.count();
        let group = &mut self.groups[slot(mode)];
        if let Some(state) = &group.state {
            return Arc::clone(state);
        }
        let public = |told: &&Arc<Told>| told.item.public();
        let here = self.members.values();
        let here = here.filter(|told| !group.pending.contains_key(&told.item.user));
        let before = group.pending.values().filter_map(|p| p.before.as_ref());
        let all = here.chain(before).filter(public).cloned();
        let members: Vec<_> = match mode {
            Mode::Count => all.take(self.config.sample).collect(),
            _ => all.collect(),
        };
        let told = match mode {
            Mode::Count => group.count.or(count),
            _ => count.map(|_| members.len() as u64),
        };
        let state = Arc::new(TopicState::new(
            mode,
            group.complete,
            members,
            told,
            group.stale,
        ));
        group.state = Some(Arc::clone(&state));
        state
    }

    /// What this group is to be told now; from here on it was.
    pub(super) fn flush(&mut self, mode: Mode, now_ms: u64) -> Flush {
        let count = self.count();
        let group = &mut self.groups[slot(mode)];
        let counted = group.count != count;
        let stale = (group.stale != self.stale).then_some(self.stale);
        (group.count, group.stale, group.complete) = (count, self.stale, self.complete);
        group.state = None;
        let pending = std::mem::take(&mut group.pending);
        let (mut public, mut private) = (Vec::new(), Vec::new());
        if mode != Mode::Count {
            for (user, Pending { before, gone }) in pending {
                let now = self.members.get(&user).cloned();
                let open =
                    |told: &Option<Arc<Told>>| told.as_ref().is_none_or(|told| told.item.public());
                if open(&before) && open(&now) {
                    let (was, is) = (before.is_some(), now.is_some());
                    public.extend(entry(was, is, &before, &now, &gone, now_ms));
                    continue;
                }
                let seen =
                    |told: &Option<Arc<Told>>| told.as_ref().is_some_and(|told| told.item.public());
                let (was, is) = (seen(&before), seen(&now));
                let stranger = entry(was, is, &before, &now, &gone, now_ms);
                private.push(Private {
                    before,
                    now,
                    gone,
                    stranger,
                });
            }
        }
        let strangers = private.iter().filter_map(|p| p.stranger.clone());
        let entries: Vec<_> = public.iter().cloned().chain(strangers).collect();
        let tell = !entries.is_empty() || (mode == Mode::Count && counted) || stale.is_some();
        Flush {
            shared: tell.then(|| Arc::new(Delivery::new(entries, count, stale))),
            public,
            private,
            count,
            stale,
            now_ms,
        }
    }
}

impl Flush {
    /// What one watcher is told. `seen` are those that only some may see and it was told of.
    pub(super) fn of(
        &self,
        sight: &Sight,
        seen: &mut BTreeSet<UserId>,
        lists: Lists<'_>,
    ) -> Option<Arc<Delivery>> {
        let mut own = Vec::new();
        let mut like_others = true;
        for person in &self.private {
            let user = person.user();
            let was = match &person.before {
                Some(before) => before.item.public() || seen.contains(user),
                None => false,
            };
            let now = person.now.as_ref();
            let is = now.is_some_and(|told| sight.sees(&told.item, lists));
            if is && now.is_some_and(|told| !told.item.public()) {
                seen.insert(user.clone());
            } else {
                seen.remove(user);
            }
            let told = entry(
                was,
                is,
                &person.before,
                &person.now,
                &person.gone,
                self.now_ms,
            );
            like_others &= told.is_none() && person.stranger.is_none()
                || matches!(
                    (&told, &person.stranger),
                    (Some(Entry::Join(_)), Some(Entry::Join(_)))
                        | (Some(Entry::Update(_)), Some(Entry::Update(_)))
                        | (Some(Entry::Leave(_)), Some(Entry::Leave(_)))
                );
            own.extend(told);
        }
        if like_others {
            return self.shared.clone();
        }
        let entries: Vec<_> = self.public.iter().cloned().chain(own).collect();
        let tell = !entries.is_empty() || self.stale.is_some();
        tell.then(|| Arc::new(Delivery::new(entries, self.count, self.stale)))
    }
}

impl Private {
    fn user(&self) -> &UserId {
        let told = self.now.as_ref().or(self.before.as_ref());
        // One of the two is there: `open` holds when both are absent.
        #[allow(clippy::expect_used)]
        &told.expect("a private entry has a person").item.user
    }
}

/// The line about somebody who was or was not seen, and is or is not.
fn entry(
    was: bool,
    is: bool,
    before: &Option<Arc<Told>>,
    now: &Option<Arc<Told>>,
    gone: &Option<Arc<Gone>>,
    now_ms: u64,
) -> Option<Entry> {
    match (was, is) {
        (false, true) => now.clone().map(Entry::Join),
        (true, true) => {
            let (before, now) = (before.as_ref()?, now.as_ref()?);
            (!before.looks_like(now)).then(|| Entry::Update(Arc::clone(now)))
        }
        (true, false) => {
            let hidden = || now.as_ref().map(|told| Gone::hidden(&told.item, now_ms));
            gone.clone().or_else(hidden).map(Entry::Leave)
        }
        (false, false) => None,
    }
}
