//! Members and movers, and what the members have seen of the movers.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Load;
use crate::{
    engine::{Actor, Id},
    report::Times,
    speech::{Heard, Line},
};

/// Movers of an open loop: enough that one is always back when the next is to go.
const OPEN_LOOP: usize = 512;

/// Who a client is.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    Member { room: usize, place: usize },
    Mover(usize),
}

#[derive(Debug)]
pub(crate) struct Mover {
    id: Option<Id>,
    room: usize,
    /// Its place among the movers of its room.
    bit: usize,
    joined: bool,
    on_its_way: bool,
    since: Instant,
    seen: usize,
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) changes: u64,
    pub(crate) diffs: u64,
    pub(crate) frames: u64,
    pub(crate) duplicated: u64,
    pub(crate) resyncs: u64,
}

/// Everybody.
pub(crate) struct Fan {
    members: usize,
    roles: Vec<Option<Role>>,
    pub(crate) movers: Vec<Mover>,
    /// Whom each member takes to be in its room.
    present: Vec<Vec<bool>>,
    waiting_to_open: usize,
    waiting_for_state: usize,
    has_state: Vec<bool>,
    /// Movers that all members have seen.
    pub(crate) idle: Vec<usize>,
    pub(crate) counts: Counts,
    pub(crate) latency: Times,
    pub(crate) last: Times,
    /// Until it was there, whenever it was read, of those who note it.
    pub(crate) arrival: Times,
    arrived: Option<Instant>,
    pub(crate) failed: Option<String>,
    measuring: bool,
    last_diff: Option<Instant>,
    pub(crate) gap: Duration,
}

impl Fan {
    pub(crate) fn new(load: &Load) -> Result<Self> {
        let movers = match load.rate {
            Some(_) => OPEN_LOOP.max(load.rooms),
            None => load.window,
        };
        let per_room = movers.div_ceil(load.rooms);
        let mover = |n: usize| Mover {
            id: None,
            room: n % load.rooms,
            bit: n / load.rooms,
            joined: false,
            on_its_way: false,
            since: Instant::now(),
            seen: 0,
        };
        let members = load.rooms * load.members;
        Ok(Self {
            members: load.members,
            roles: Vec::new(),
            movers: (0..movers).map(mover).collect(),
            present: vec![vec![false; per_room]; members],
            waiting_to_open: 0,
            waiting_for_state: 0,
            has_state: vec![false; members],
            idle: (0..movers).collect(),
            counts: Counts::default(),
            latency: Times::new()?,
            last: Times::new()?,
            arrival: Times::new()?,
            arrived: None,
            failed: None,
            measuring: false,
            last_diff: None,
            gap: Duration::ZERO,
        })
    }

    pub(crate) fn add(&mut self, id: Id, role: Role) {
        self.waiting_to_open += 1;
        match &role {
            Role::Member { .. } => self.waiting_for_state += 1,
            Role::Mover(n) => self.movers[*n].id = Some(id),
        }
        if self.roles.len() <= id {
            self.roles.resize(id + 1, None);
        }
        self.roles[id] = Some(role);
    }

    pub(crate) fn connecting(&self) -> usize {
        self.waiting_to_open
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.waiting_to_open == 0 && self.waiting_for_state == 0
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            Some(why) => bail!("a client was lost: {why}"),
            None => Ok(()),
        }
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&mut self) {
        self.counts = Counts::default();
        self.latency.clear();
        self.last.clear();
        self.arrival.clear();
        self.gap = Duration::ZERO;
    }

    /// From now on it counts; or what comes is only looked at for what is missing or too much.
    pub(crate) fn measure(&mut self, measuring: bool) {
        self.measuring = measuring;
        self.last_diff = None;
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.movers.iter().all(|mover| !mover.on_its_way)
    }

    /// Diffs that did not come.
    pub(crate) fn missing(&self) -> u64 {
        let late = self.movers.iter().filter(|mover| mover.on_its_way);
        late.map(|mover| (self.members - mover.seen) as u64).sum()
    }

    /// A mover goes: who it is, whether it joins, and which room.
    pub(crate) fn go(&mut self, n: usize) -> Option<(Id, bool, usize)> {
        let mover = self.movers.get_mut(n)?;
        mover.joined = !mover.joined;
        mover.on_its_way = true;
        mover.seen = 0;
        mover.since = Instant::now();
        if self.measuring {
            self.counts.changes += 1;
        }
        Some((mover.id?, mover.joined, mover.room))
    }

    fn saw(&mut self, room: usize, place: usize, n: usize, joined: bool, now: Instant) {
        let Some(mover) = self.movers.get_mut(n).filter(|mover| mover.room == room) else {
            return;
        };
        let Some(known) = self.present[place].get_mut(mover.bit) else {
            return;
        };
        if *known == joined || joined != mover.joined || !mover.on_its_way {
            self.counts.duplicated += 1;
            return;
        }
        *known = joined;
        mover.seen += 1;
        let took = now.saturating_duration_since(mover.since);
        let arrival = self
            .arrived
            .map(|at| at.saturating_duration_since(mover.since));
        let all = mover.seen == self.members;
        if all {
            mover.on_its_way = false;
            self.idle.push(n);
        }
        if self.measuring {
            self.counts.diffs += 1;
            self.latency.add(took);
            if let Some(arrival) = arrival {
                self.arrival.add(arrival);
            }
            if all {
                self.last.add(took);
            }
            let before = self.last_diff.replace(now).unwrap_or(now);
            self.gap = self.gap.max(now.saturating_duration_since(before));
        }
    }
}

impl Actor for Fan {
    fn opened(&mut self, _: Id, _: Duration) {
        self.waiting_to_open -= 1;
    }

    fn arrived(&mut self, at: Option<Instant>) {
        self.arrived = at;
    }

    fn line(&mut self, id: Id, line: Line<'_>, now: Instant) {
        let Some(Some(Role::Member { room, place })) = self.roles.get(id) else {
            return;
        };
        let (user, joined) = match line {
            Line::Join(user) => (user, true),
            Line::Leave(user) => (user, false),
            Line::Update(_) => return,
        };
        // Members come, too, in the beginning.
        if let Some(n) = user.strip_prefix('x').and_then(|n| n.parse().ok()) {
            self.saw(*room, *place, n, joined, now);
        }
    }

    fn heard(&mut self, id: Id, heard: Heard, _: Instant) {
        match (heard, self.roles.get(id)) {
            (Heard::Diff, _) => self.counts.frames += u64::from(self.measuring),
            (Heard::State { .. }, Some(Some(Role::Member { place, .. }))) => {
                if std::mem::replace(&mut self.has_state[*place], true) {
                    self.counts.resyncs += 1;
                } else {
                    self.waiting_for_state -= 1;
                }
            }
            (Heard::Error(code), _) => self.failed = Some(code),
            _ => {}
        }
    }

    fn closed(&mut self, _: Id, why: String) {
        self.failed = Some(why);
    }
}
