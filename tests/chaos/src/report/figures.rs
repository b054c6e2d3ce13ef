//! Latencies, read off histories: how long changes take to watchers, how long departures take to
//! be told, and how long nothing was told after a fault.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use adsum_tests::history::{Event, Gone, History, Leaving, Seen};

use crate::{
    nemesis::{Kind, Struck},
    times::Times,
};

/// Latencies of one sort, in ms.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    /// While nothing else was broken.
    pub clean: Vec<u64>,
    /// All of them.
    pub all: Vec<u64>,
}

/// What histories show. Each sort is named.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// From a departure to the watchers who see everybody.
    pub departures: BTreeMap<&'static str, Latencies>,
    /// The longest delivery after a fault, one for each.
    pub gaps: BTreeMap<&'static str, Latencies>,
    /// The largest that anything ever was, and its limit.
    pub sizes: BTreeMap<String, (u64, u64)>,
    /// Sweeps that were checked against the highest fence.
    pub sweeps: u64,
    /// When a change was made, and how long it took to each watcher who sees everybody.
    pub deliveries: Vec<(u64, u64)>,
}

/// The sorts of departures.
pub(super) const GRACEFUL: &str = "graceful leave";
/// A broken socket.
pub(super) const BROKEN: &str = "broken socket with linger";
/// A client that says nothing.
pub(super) const SILENT: &str = "silent client";
/// A client whose gateway died.
pub(super) const KILLED: &str = "gateway killed";

/// Changes made within this time after a fault count for its gap.
const AFTER: u64 = 4_000;

struct Departure {
    sort: &'static str,
    at: u64,
    /// The fault that caused it, if one did.
    cause: Option<usize>,
}

struct Reader<'a> {
    struck: &'a [Struck],
    times: Times,
    figures: Figures,
    /// Watchers who see everybody: since when, and the last mark of each user.
    watchers: HashMap<String, (u64, HashMap<String, u64>)>,
    devices: HashMap<String, BTreeSet<String>>,
    gateways: HashMap<(String, String), String>,
    /// Marks of users with one device, and when they were said.
    said: HashMap<String, Vec<(u64, u64)>>,
    several: BTreeSet<String>,
    gone: HashMap<String, Departure>,
}

impl Figures {
    /// Adds what a round shows.
    pub fn add(&mut self, history: &History, struck: &[Struck], times: Times) {
        let mut reader = Reader {
            struck,
            times,
            figures: std::mem::take(self),
            watchers: HashMap::new(),
            devices: HashMap::new(),
            gateways: HashMap::new(),
            said: HashMap::new(),
            several: BTreeSet::new(),
            gone: HashMap::new(),
        };
        let before = reader.figures.deliveries.len();
        for entry in &history.entries {
            reader.read(entry.at, &entry.event);
        }
        *self = reader.figures;
        for one in struck {
            let name = match one.kind {
                Kind::DispatcherKilled => "dispatcher killed",
                Kind::MasterKilled => "Redis master killed",
                _ => continue,
            };
            let near = self.deliveries[before..].iter();
            let near = near.filter(|(at, _)| (one.begin..one.begin + AFTER).contains(at));
            let Some(longest) = near.map(|(_, took)| *took).max() else {
                continue;
            };
            let gaps = self.gaps.entry(name).or_default();
            gaps.all.push(longest);
            if !struck
                .iter()
                .any(|other| other != one && near_by(one, other))
            {
                gaps.clean.push(longest);
            }
        }
    }
}

/// Whether another fault may have to do with what was delivered after this one.
const fn near_by(one: &Struck, other: &Struck) -> bool {
    other.begin <= one.begin + 2 * AFTER && other.end + AFTER >= one.begin
}

impl Reader<'_> {
    fn read(&mut self, at: u64, event: &Event) {
        match event {
            Event::Hello {
                user,
                device,
                gateway,
                ..
            } => {
                let devices = self.devices.entry(user.clone()).or_default();
                devices.insert(device.clone());
                if devices.len() > 1 {
                    self.several.insert(user.clone());
                }
                self.gone.remove(user);
                let key = (user.clone(), device.clone());
                self.gateways
                    .insert(key, gateway.clone().unwrap_or_default());
            }
            Event::Change { user, said, .. } => {
                let marks = self.said.entry(user.clone()).or_default();
                if marks.last().is_none_or(|(mark, _)| said.mark > *mark) {
                    marks.push((said.mark, at));
                }
            }
            Event::Gone { user, device, how } => self.depart(at, user, device, *how),
            Event::Watching { watcher, view } if view.all && view.topic == "tenant" => {
                self.watchers.insert(watcher.clone(), (at, HashMap::new()));
            }
            Event::State {
                watcher, members, ..
            } => {
                members
                    .iter()
                    .for_each(|seen| self.see(None, watcher, seen));
            }
            Event::Diff {
                watcher,
                joins,
                updates,
                leaves,
            } => {
                for seen in joins.iter().chain(updates) {
                    self.see(Some(at), watcher, seen);
                }
                leaves
                    .iter()
                    .for_each(|leave| self.left(at, watcher, leave));
            }
            Event::Size { what, size, limit } => {
                let largest = self.figures.sizes.entry(what.clone()).or_default();
                *largest = (largest.0.max(*size), *limit);
            }
            Event::Swept { .. } => self.figures.sweeps += 1,
            _ => {}
        }
    }

    fn depart(&mut self, at: u64, user: &str, device: &str, how: Gone) {
        if how == (Gone::Broken { returns: true }) {
            return;
        }
        // What was not told by now need not be told any more.
        self.said.remove(user);
        let sort = match how {
            Gone::Goodbye => GRACEFUL,
            Gone::Broken { .. } => BROKEN,
            Gone::Silent => SILENT,
            Gone::Unheld => return,
        };
        let devices = self.devices.entry(user.to_owned()).or_default();
        devices.remove(device);
        // Of several devices the last to be told decides, which need not be the last to go.
        if !devices.is_empty() || self.several.contains(user) {
            return;
        }
        let key = (user.to_owned(), device.to_owned());
        let gateway = self.gateways.get(&key).cloned().unwrap_or_default();
        let killed = self.struck.iter().position(|s| {
            s.kind == Kind::GatewayKilled && s.target == gateway && s.begin <= at && at <= s.end
        });
        let departure = match killed.filter(|_| sort == BROKEN) {
            Some(n) => Departure {
                sort: KILLED,
                at: self.struck[n].begin,
                cause: Some(n),
            },
            None => Departure {
                sort,
                at,
                cause: None,
            },
        };
        self.gone.insert(user.to_owned(), departure);
    }

    fn see(&mut self, at: Option<u64>, watcher: &str, seen: &Seen) {
        let Some((since, known)) = self.watchers.get_mut(watcher) else {
            return;
        };
        let Some(mark) = seen.mark else { return };
        let last = known.insert(seen.user.clone(), mark).unwrap_or(0);
        let (Some(at), false) = (at, self.several.contains(&seen.user)) else {
            return;
        };
        let said = self.said.get(&seen.user).into_iter().flatten();
        for (_, said_at) in said
            .rev()
            .take_while(|(m, _)| *m > last)
            .filter(|(m, _)| *m <= mark)
        {
            let took = at.saturating_sub(*said_at);
            if said_at >= since {
                self.figures.deliveries.push((*said_at, took));
            }
        }
    }

    fn left(&mut self, at: u64, watcher: &str, leave: &Leaving) {
        let (true, Some(gone)) = (
            self.watchers.contains_key(watcher),
            self.gone.get(&leave.user),
        ) else {
            return;
        };
        // Told before it happened: an earlier departure's.
        if at < gone.at {
            return;
        }
        let settling = self.times.ttl() + self.times.holder();
        let disturbed =
            self.struck.iter().enumerate().any(|(n, s)| {
                Some(n) != gone.cause && s.begin <= at && s.end + settling >= gone.at
            });
        let took = at - gone.at;
        let latencies = self.figures.departures.entry(gone.sort).or_default();
        latencies.all.push(took);
        if !disturbed {
            latencies.clean.push(took);
        }
    }
}
