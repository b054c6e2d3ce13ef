//! The invariants about what watchers are told.

use adsum_core::{Activity, Reason, Status, Version};

use super::{
    Invariant,
    device::{Away, Device},
    judge::Judge,
    settings::Settings,
    trouble::Whose,
    watcher::Watcher,
};
use crate::history::{Leaving, Seen};

impl Judge<'_> {
    fn lag(&self, watcher: &Watcher) -> u64 {
        self.trouble
            .lag(&watcher.view.gateway, self.at, self.bounds)
    }

    /// A watcher is shown a person: `came` if it did not show them before.
    fn shown(&mut self, name: &str, seen: &Seen, came: bool) {
        self.check_private(name, seen);
        self.check_newer(name, &seen.user, seen.v, seen.mark);
        if came {
            self.check_arrival(name, &seen.user);
        }
        if let Some(watcher) = self.watchers.get_mut(name) {
            let known = watcher.known.entry(seen.user.clone()).or_default();
            known.seen = Some(seen.clone());
        }
    }

    fn check_private(&mut self, name: &str, seen: &Seen) {
        let Some(watcher) = self.watchers.get(name) else {
            return;
        };
        let from = self.at.saturating_sub(self.lag(watcher));
        let settings = self.settings.get(&seen.user);
        let allowed = settings.is_none_or(|s| s.may_see(&seen.user, watcher.eyes(), from));
        if !watcher.view.all && !allowed {
            let eyes = watcher.eyes().unwrap_or("a stranger").to_owned();
            let what = format!(
                "{} hides from {eyes}, yet {name} was shown {:?}",
                seen.user, seen.status
            );
            self.violated(Invariant::Private, Some(&seen.user), Some(name), what);
        }
    }

    /// No older number and no older word after a newer one, but for what a failover lost.
    fn check_newer(&mut self, name: &str, user: &str, v: Version, mark: Option<u64>) {
        let since = match self.watchers.get(name) {
            Some(watcher) => self.at.saturating_sub(self.lag(watcher)),
            None => return,
        };
        let shard = self.shards.get(user).copied();
        let single = self
            .users
            .get(user)
            .is_some_and(|devices| devices.len() == 1);
        let Some(watcher) = self.watchers.get_mut(name) else {
            return;
        };
        let known = watcher.known.entry(user.to_owned()).or_default();
        let mut old = None;
        if v < known.v && v != Version::ZERO {
            old = Some((known.v_since, format!("{v} after {}", known.v)));
        }
        if let Some(mark) = mark.filter(|mark| single && *mark < known.mark) {
            old = old.or(Some((
                known.mark_since,
                format!("word {mark} after word {}", known.mark),
            )));
        }
        if v >= known.v {
            (known.v, known.v_since) = (v, since);
        }
        if let Some(mark) = mark.filter(|mark| *mark >= known.mark) {
            (known.mark, known.mark_since) = (mark, since);
        }
        if let Some((since, what)) = old
            && !self.trouble.lost_since(shard, since, self.bounds)
        {
            let what = format!("{name} was told of {user}: {what}");
            self.violated(Invariant::Order, Some(user), Some(name), what);
        }
    }

    /// Whoever left and comes again must have done something for it.
    fn check_arrival(&mut self, name: &str, user: &str) {
        let Some(watcher) = self.watchers.get(name) else {
            return;
        };
        let Some(left_at) = watcher.known.get(user).and_then(|k| k.left_at) else {
            return;
        };
        let from = left_at.saturating_sub(self.lag(watcher));
        let arrivals = self.arrivals.get(user).into_iter().flatten();
        let came = arrivals.rev().any(|at| *at >= from);
        let shard = self.shards.get(user).copied();
        if !came && !self.trouble.upset(shard, from, self.at) {
            let what = format!("{name} was told that {user} came, who had left and did nothing");
            self.violated(Invariant::Once, Some(user), Some(name), what);
        }
    }

    pub(super) fn state(&mut self, name: &str, members: &[Seen], settling: bool) {
        for seen in members {
            self.shown(name, seen, false);
        }
        let Some(watcher) = self.watchers.get_mut(name) else {
            return;
        };
        watcher.begun = true;
        let missing = |user: &String| !members.iter().any(|seen| seen.user == *user);
        let absent: Vec<_> = self.everybody().into_iter().filter(missing).collect();
        for user in absent {
            if let Some(watcher) = self.watchers.get_mut(name)
                && let Some(known) = watcher.known.get_mut(&user)
            {
                known.seen = None;
            }
            if !settling {
                self.check_offline(name, &user, None);
            }
        }
    }

    pub(super) fn diff(
        &mut self,
        name: &str,
        joins: &[Seen],
        updates: &[Seen],
        leaves: &[Leaving],
    ) {
        for (seen, join) in joins
            .iter()
            .map(|s| (s, true))
            .chain(updates.iter().map(|s| (s, false)))
        {
            let shown = self.watchers.get(name).and_then(|w| w.shows(&seen.user));
            if shown.is_some() == join {
                let told = if join {
                    "came again"
                } else {
                    "changed, but was not there"
                };
                let what = format!("{name} was told that {} {told}", seen.user);
                self.violated(Invariant::Once, Some(&seen.user), Some(name), what);
            }
            self.shown(name, seen, join);
        }
        for leave in leaves {
            let shown = self.watchers.get(name).and_then(|w| w.shows(&leave.user));
            if shown.is_none() {
                let what = format!("{name} was told twice that {} left", leave.user);
                self.violated(Invariant::Once, Some(&leave.user), Some(name), what);
            }
            self.check_newer(name, &leave.user, leave.v, None);
            self.check_offline(name, &leave.user, leave.reason);
            let at = self.at;
            if let Some(watcher) = self.watchers.get_mut(name) {
                let known = watcher.known.entry(leave.user.clone()).or_default();
                known.seen = None;
                known.left_at = Some(at);
            }
        }
    }

    /// A watcher is told, or shown by omission, that somebody is not there.
    fn check_offline(&mut self, name: &str, user: &str, reason: Option<Reason>) {
        let Some(watcher) = self.watchers.get(name) else {
            return;
        };
        if !watcher.concerns(user) {
            return;
        }
        let from = self.at.saturating_sub(self.lag(watcher));
        let lists = self.bounds.slack_ms == 0 && self.trouble.none();
        let settings = self.settings.get(user);
        let visible = settings.is_none_or(|s| s.sees(user, watcher.eyes(), from, lists));
        let visible = visible || watcher.view.all;
        let devices = self.users.get(user).into_iter().flatten();
        let held = devices.filter_map(|(device, d)| {
            let since = d.held(watcher.room(), self.at)?;
            (since <= from).then(|| (device.clone(), since))
        });
        let held = held.min_by_key(|(_, since)| *since);
        if let Some((device, since)) = held.filter(|_| visible) {
            let since = super::story::seconds(since);
            let told = reason.map_or("not there".to_owned(), |r| format!("gone ({})", r.as_str()));
            let what = format!(
                "{user} has been well on {device} since {since}, yet {name} ({}) was told: {told}",
                watcher.view.topic
            );
            self.violated(Invariant::NoFalseOffline, Some(user), Some(name), what);
        }
    }

    /// By when all that a user's devices did so far must be known.
    pub(super) fn latest(&self, user: &str) -> u64 {
        let bounds = self.bounds;
        let devices = self.users.get(user).into_iter().flat_map(|d| d.values());
        let due = |device: &Device| {
            let departures = device.departures();
            departures.map(|away| self.due_of(user, away, None)).max()
        };
        let devices = devices.filter_map(due).max().unwrap_or(0);
        let hidden = self.hidden_by(user, self.hidden(user), None);
        devices.max(hidden) + bounds.told_ms + bounds.slack_ms
    }

    /// By when a device's departure must be known: to one who watches, or to most.
    fn due_of(&self, user: &str, away: &Away, watched: Option<&str>) -> u64 {
        let whose = Whose {
            gateway: away.gateway.as_deref(),
            shard: self.shards.get(user).copied(),
            own: away.gateway.is_none(),
            watched,
        };
        self.trouble.due(away.at, away.within, whose, self.bounds)
    }

    /// By when it must be known that a user hides since this time: recorded is recorded, through
    /// whichever gateway.
    fn hidden_by(&self, user: &str, at: u64, watched: Option<&str>) -> u64 {
        let whose = Whose {
            gateway: None,
            shard: self.shards.get(user).copied(),
            own: false,
            watched,
        };
        self.trouble.due(at, 0, whose, self.bounds)
    }

    fn hidden(&self, user: &str) -> u64 {
        let settings = self.settings.get(user);
        settings
            .and_then(|s| s.hidden_since(user, None))
            .unwrap_or(0)
    }

    /// Everybody must know by now where this user is not.
    pub(super) fn overdue(&mut self, user: &str) {
        let mut late = Vec::new();
        for (name, watcher) in &self.watchers {
            let Some(seen) = watcher.shows(user) else {
                continue;
            };
            let (told, gateway) = (self.bounds.told_ms, watcher.view.gateway.as_str());
            if self.lag(watcher) > told {
                continue;
            }
            let devices = self.users.get(user).into_iter().flat_map(|d| d.values());
            let (here, away): (Vec<_>, Vec<_>) = devices.partition(|d| d.here(watcher.room()));
            let gone = away.iter().map(|d| d.away(watcher.room())).max();
            let settings = self.settings.get(user).filter(|_| !watcher.view.all);
            let hidden = settings.and_then(|s| s.hidden_since(user, watcher.eyes()));
            let slack = told + self.bounds.slack_ms;
            let over = |due: u64| due + slack < self.at;
            let late_by = |away: &Away| over(self.due_of(user, away, Some(gateway)));
            if here.is_empty() && gone.as_ref().is_some_and(late_by) {
                let since = gone.map(|away| away.at);
                late.push((name.clone(), "gone", since, seen.status));
            } else if hidden.is_some_and(|at| over(self.hidden_by(user, at, Some(gateway)))) {
                late.push((name.clone(), "hidden", hidden, seen.status));
            }
        }
        for (name, how, since, status) in late {
            let since = super::story::seconds(since.unwrap_or(0));
            let what = format!("{user} is {how} since {since}, yet {name} still shows {status}");
            self.violated(Invariant::BoundedSilence, Some(user), Some(&name), what);
        }
    }

    /// The end: every picture equals the truth.
    pub(super) fn converged(&mut self) {
        let mut wrong = Vec::new();
        for (name, watcher) in &self.watchers {
            if !watcher.begun {
                wrong.push((
                    name.clone(),
                    None,
                    format!("{name} was never told anything"),
                ));
                continue;
            }
            for (user, devices) in &self.users {
                if !watcher.concerns(user) {
                    continue;
                }
                let past = self.settings.get(user);
                if past.is_some_and(|p| p.forgotten || p.open()) {
                    continue;
                }
                let settings = past.map(|p| p.newest()).unwrap_or_default();
                let visible = watcher.view.all || settings.admit(user, watcher.eyes());
                let truth = truth(devices.iter(), watcher.room(), &settings).filter(|_| visible);
                let shown = watcher.shows(user);
                if !agree(truth.as_ref(), shown) {
                    let what = format!(
                        "{user} is {}, but {name} ({}) shows {}",
                        spell(truth.as_ref()),
                        watcher.view.topic,
                        shown.map_or("nobody".to_owned(), |s| format!(
                            "{} on {:?}, word {:?}",
                            s.status, s.kinds, s.mark
                        )),
                    );
                    wrong.push((name.clone(), Some(user.clone()), what));
                }
            }
        }
        for (name, user, what) in wrong {
            self.violated(Invariant::Converge, user.as_deref(), Some(&name), what);
        }
    }
}

/// A person as they should be shown.
struct Truth {
    status: Status,
    kinds: Vec<String>,
    marks: Vec<u64>,
}

fn truth<'a>(
    devices: impl Iterator<Item = (&'a String, &'a Device)> + Clone,
    room: Option<&str>,
    settings: &Settings,
) -> Option<Truth> {
    let here = devices.clone().filter(|(_, d)| d.here(room));
    let kinds: Vec<_> = here.clone().map(|(device, _)| device.clone()).collect();
    let all = devices.filter(|(_, d)| d.present);
    let active = |d: &Device| {
        d.said
            .as_ref()
            .is_some_and(|s| s.activity == Activity::Online)
    };
    let status = match settings.status {
        Some(manual) => manual.into(),
        None if all.clone().any(|(_, d)| active(d)) => Status::Online,
        None => Status::Away,
    };
    let marks = here
        .filter_map(|(_, d)| Some(d.said.as_ref()?.mark))
        .collect();
    (!kinds.is_empty()).then_some(Truth {
        status,
        kinds,
        marks,
    })
}

fn agree(truth: Option<&Truth>, shown: Option<&Seen>) -> bool {
    match (truth, shown) {
        (None, None) => true,
        (Some(truth), Some(shown)) => {
            let mark = shown.mark.is_none_or(|mark| truth.marks.contains(&mark));
            truth.status == shown.status && truth.kinds == shown.kinds && mark
        }
        _ => false,
    }
}

fn spell(truth: Option<&Truth>) -> String {
    truth.map_or("not there".to_owned(), |t| {
        format!("{} on {:?}, word {:?}", t.status, t.kinds, t.marks)
    })
}
