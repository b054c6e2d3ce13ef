//! One walk through a history: keeps the truth and what each watcher knows, and asks the
//! invariants at every step.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use adsum_core::Version;

use super::{
    Invariant, Violation, bounds::Bounds, device::Device, settings::Past, story, trouble::Trouble,
    watcher::Watcher,
};
use crate::history::{Event, Fault, History};

/// Violations that are told of one invariant: the first are the ones to look at.
const FEW: usize = 3;

pub(super) struct Judge<'a> {
    history: &'a History,
    pub(super) bounds: &'a Bounds,
    pub(super) users: BTreeMap<String, BTreeMap<String, Device>>,
    pub(super) settings: BTreeMap<String, Past>,
    /// Until then the store may forget what it is told.
    flushed_until: u64,
    pub(super) watchers: BTreeMap<String, Watcher>,
    pub(super) trouble: Trouble,
    pub(super) shards: BTreeMap<String, u16>,
    /// When a user's clients did something that can make them come.
    pub(super) arrivals: BTreeMap<String, Vec<u64>>,
    /// Gateways that go: since when, until when they are there, and how long sessions are safe.
    drained: BTreeMap<String, (u64, u64, u64)>,
    commits: BTreeMap<(u16, Version), String>,
    fences: BTreeMap<u16, (u64, u64)>,
    /// Users to be looked at, once everybody must know that they are gone.
    due: BinaryHeap<Reverse<(u64, String)>>,
    violations: Vec<Violation>,
    counts: BTreeMap<Invariant, usize>,
    pub(super) place: usize,
    pub(super) at: u64,
}

impl<'a> Judge<'a> {
    pub(super) fn new(history: &'a History, bounds: &'a Bounds) -> Self {
        Self {
            history,
            bounds,
            users: BTreeMap::new(),
            settings: BTreeMap::new(),
            flushed_until: 0,
            watchers: BTreeMap::new(),
            trouble: Trouble::default(),
            shards: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            drained: BTreeMap::new(),
            commits: BTreeMap::new(),
            fences: BTreeMap::new(),
            due: BinaryHeap::new(),
            violations: Vec::new(),
            counts: BTreeMap::new(),
            place: 0,
            at: 0,
        }
    }

    pub(super) fn run(mut self) -> Vec<Violation> {
        let history = self.history;
        for (place, entry) in history.entries.iter().enumerate() {
            (self.place, self.at) = (place, entry.at);
            self.look_at_due();
            self.step(&entry.event);
        }
        self.violations
    }

    /// Notes a violation, unless there are enough of its sort.
    pub(super) fn violated(
        &mut self,
        invariant: Invariant,
        who: Option<&str>,
        watcher: Option<&str>,
        what: String,
    ) {
        let count = self.counts.entry(invariant).or_default();
        *count += 1;
        if *count > FEW {
            return;
        }
        let story = story::tell(self.history, self.place, who, watcher);
        self.violations.push(Violation {
            invariant,
            at: self.at,
            what,
            story,
            seed: self.history.seed,
        });
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Lives { user, shard } => drop(self.shards.insert(user.clone(), *shard)),
            Event::Hello { .. }
            | Event::Change { .. }
            | Event::Recorded { .. }
            | Event::Gone { .. } => self.client(event),
            Event::Ousted { user, device, .. } if self.behind(user, device) => {}
            Event::Ousted { user, device, word } => {
                let what = format!("{user} on {device} was told `{word}` on its only connection");
                self.violated(Invariant::NoFalseOffline, Some(user), None, what);
            }
            Event::Asked { user, setting } => {
                let past = self.settings.entry(user.clone()).or_default();
                past.asked(setting);
                if self.at <= self.flushed_until {
                    past.forget();
                }
                self.arrived(user);
            }
            Event::Set { user } => {
                let at = self.at;
                self.settings.entry(user.clone()).or_default().recorded(at);
                self.arrived(user);
                self.expect(user);
            }
            Event::Broke { fault, lasts } => self.broke(fault, *lasts),
            Event::Committed { shard, v, what } => self.committed(*shard, *v, what),
            Event::Claimed { shard, fence, .. } => {
                let highest = self.fences.entry(*shard).or_default();
                *highest = (*highest).max(*fence);
            }
            Event::Swept {
                shard,
                reaper,
                fence,
            } => self.swept(*shard, reaper, *fence),
            Event::Watching { watcher, view } => {
                let view = Watcher::new(view.clone());
                self.watchers.insert(watcher.clone(), view);
            }
            Event::State {
                watcher,
                members,
                settling,
            } => self.state(watcher, members, *settling),
            Event::Diff {
                watcher,
                joins,
                updates,
                leaves,
            } => self.diff(watcher, joins, updates, leaves),
            Event::Unwatched { watcher } => drop(self.watchers.remove(watcher)),
            Event::Size { what, size, limit } => {
                if size > limit {
                    let what = format!("{what}: {size}, at most {limit} are allowed");
                    self.violated(Invariant::Bounded, None, None, what);
                }
            }
            Event::Calm => {}
            Event::End => self.converged(),
        }
    }

    fn client(&mut self, event: &Event) {
        let (at, bounds) = (self.at, self.bounds);
        let (Event::Hello { user, device, .. }
        | Event::Change { user, device, .. }
        | Event::Recorded { user, device, .. }
        | Event::Gone { user, device, .. }) = event
        else {
            return;
        };
        let shard = self.shards.get(user).copied();
        let devices = self.users.entry(user.clone()).or_default();
        let known = devices.entry(device.clone()).or_default();
        match event {
            Event::Hello {
                gateway,
                said,
                conn,
                ..
            } => known.hello(gateway.as_ref(), *conn, said, bounds),
            Event::Change { said, .. } => known.say(said, at),
            Event::Recorded { said, .. } => {
                known.recorded(said, at);
                let gateway = known.gateway.clone();
                let gateway = gateway.as_deref();
                // What is held by a gateway that goes is held no longer than the rest.
                let drained = gateway.and_then(|g| self.drained.get(g));
                if let Some((from, _, fine_for)) = drained.filter(|d| d.1 > at) {
                    known.doubt(*from, *fine_for);
                }
                if gateway.is_some_and(|g| self.trouble.worn(g, shard, at, bounds)) {
                    known.doubt(at, 0);
                }
            }
            Event::Gone { how, .. } => known.go(*how, at, bounds),
            _ => {}
        }
        match event {
            Event::Gone { .. } => self.expect(user),
            Event::Change { .. } => {
                self.arrived(user);
                self.expect(user);
            }
            _ => self.arrived(user),
        }
    }

    fn behind(&self, user: &str, device: &str) -> bool {
        let device = self.users.get(user).and_then(|d| d.get(device));
        device.is_some_and(|d| d.behind)
    }

    fn arrived(&mut self, user: &str) {
        self.arrivals
            .entry(user.to_owned())
            .or_default()
            .push(self.at);
    }

    /// Somebody may have gone: to be looked at when that must be known.
    fn expect(&mut self, user: &str) {
        let latest = self.latest(user);
        self.due.push(Reverse((latest + 1, user.to_owned())));
    }

    fn look_at_due(&mut self) {
        while let Some(Reverse((at, _))) = self.due.peek()
            && *at <= self.at
            && let Some(Reverse((_, user))) = self.due.pop()
        {
            let latest = self.latest(&user);
            if latest >= self.at {
                // Something broke meanwhile.
                self.due.push(Reverse((latest + 1, user)));
            } else {
                self.overdue(&user);
            }
        }
    }

    fn broke(&mut self, fault: &Fault, lasts: u64) {
        let (at, bounds) = (self.at, self.bounds);
        self.trouble.add(fault, lasts, at, bounds);
        let fine_for = match fault {
            Fault::GatewayKilled(_) => Some(bounds.unheld()),
            Fault::GatewayDrained(_) => Some(bounds.drained()),
            Fault::GatewayFrozen(_) | Fault::GatewayCut(_) if lasts > bounds.holder_ms / 2 => {
                Some(bounds.unheld())
            }
            _ => None,
        };
        let broken = match fault {
            Fault::GatewayKilled(g)
            | Fault::GatewayDrained(g)
            | Fault::GatewayFrozen(g)
            | Fault::GatewayCut(g) => Some(g),
            _ => None,
        };
        let jump = match fault {
            Fault::ClockStep(step) => u64::try_from(*step).unwrap_or(0),
            _ => 0,
        };
        for (.., fine_for) in self.drained.values_mut() {
            *fine_for = fine_for.saturating_sub(jump);
        }
        if let Fault::GatewayDrained(gateway) = fault {
            let drained = (at, at + lasts, bounds.drained());
            self.drained.insert(gateway.clone(), drained);
        }
        let shards = &self.shards;
        let users = self.users.iter_mut();
        let devices = users.flat_map(|(user, devices)| {
            let shard = shards.get(user).copied();
            devices.values_mut().map(move |device| (shard, device))
        });
        for (shard, device) in devices {
            device.hurry(jump);
            let Some(gateway) = device.gateway.clone() else {
                continue;
            };
            if self.trouble.worn(&gateway, shard, at, bounds) {
                device.doubt(at, 0);
            } else if let Some(fine_for) = fine_for
                && broken == Some(&gateway)
            {
                device.doubt(at, fine_for);
            }
        }
        if let Fault::Flush(_) = fault {
            self.settings.values_mut().for_each(Past::forget);
            self.flushed_until = at + lasts;
        }
    }

    fn committed(&mut self, shard: u16, v: Version, what: &str) {
        if let Some(before) = self.commits.insert((shard, v), what.to_owned())
            && before != what
        {
            let what = format!("{v} of shard {shard} was two changes: {before}; then {what}");
            self.violated(Invariant::Order, None, None, what);
        }
    }

    /// A server that was deposed may accept what was on its way to it, and forgets it: that is
    /// a lost write, and its fence is of an epoch that ended.
    fn swept(&mut self, shard: u16, reaper: &str, fence: (u64, u64)) {
        let highest = self.fences.get(&shard).copied().unwrap_or_default();
        let lost =
            fence.0 < highest.0 && self.trouble.lost_since(Some(shard), self.at, self.bounds);
        if fence < highest && !lost {
            let what = format!(
                "{reaper} swept shard {shard} with fence {fence:?}, though {highest:?} was claimed"
            );
            self.violated(Invariant::SingleReaper, None, None, what);
        }
    }

    /// All users that anybody was told of or that did anything.
    pub(super) fn everybody(&self) -> BTreeSet<String> {
        self.users.keys().cloned().collect()
    }
}
