//! The truth of one device, as its own client knows it: whether it is there, since when it was
//! surely held without a gap, and by when everybody must know that it is gone.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use crate::history::{Gone, Said};

/// That a device is not there.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Away {
    /// Since when.
    pub(super) at: u64,
    /// How long that may stay unnoticed.
    pub(super) within: u64,
    /// Who held it then; nobody if it held itself.
    pub(super) gateway: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Device {
    /// Connected, or about to be again.
    pub(super) present: bool,
    pub(super) gateway: Option<String>,
    pub(super) said: Option<Said>,
    highest: u64,
    /// Its clock was set back, so its connection has a lower number than an earlier one.
    pub(super) behind: bool,
    /// Held without a gap since.
    held_since: Option<u64>,
    /// The same in a room.
    in_room_since: BTreeMap<String, u64>,
    /// When it was last recorded: what holds itself is held for a while after.
    recorded_at: u64,
    own_ms: u64,
    /// Nobody surely holds it since, which is fine for so long.
    gap: Option<(u64, u64)>,
    gone: Away,
    left_room: BTreeMap<String, Away>,
}

impl Device {
    pub(super) fn hello(
        &mut self,
        gateway: Option<&String>,
        conn: u64,
        said: &Said,
        bounds: &Bounds,
    ) {
        self.present = true;
        // Something older with a higher number may be under way, and will win.
        self.behind = conn < self.highest;
        self.highest = self.highest.max(conn);
        self.gateway = gateway.cloned();
        self.own_ms = bounds.ttl_ms.saturating_sub(1_500);
        self.say(said, 0);
    }

    /// Says something else of itself: rooms that it left are not held any more.
    pub(super) fn say(&mut self, said: &Said, at: u64) {
        if let Some(before) = &self.said {
            for room in before.rooms.iter().filter(|r| !said.rooms.contains(r)) {
                self.in_room_since.remove(room);
                let away = Away {
                    at,
                    within: 0,
                    gateway: self.gateway.clone(),
                };
                self.left_room.insert(room.clone(), away);
            }
        }
        self.said = Some(said.clone());
    }

    pub(super) fn recorded(&mut self, said: &Said, at: u64) {
        if !self.present {
            return;
        }
        if self.late(at) {
            self.unhold();
        }
        self.gap = None;
        self.recorded_at = at;
        self.held_since.get_or_insert(at);
        let Some(newest) = &self.said else { return };
        let both = said.rooms.iter().filter(|room| newest.rooms.contains(room));
        for room in both {
            self.in_room_since.entry(room.clone()).or_insert(at);
        }
    }

    pub(super) fn go(&mut self, how: Gone, at: u64, bounds: &Bounds) {
        let within = match how {
            Gone::Broken { returns: true } => {
                self.doubt(at, bounds.away());
                return;
            }
            Gone::Goodbye => 0,
            Gone::Broken { returns: false } => bounds.linger_ms,
            Gone::Silent | Gone::Unheld => bounds.ttl_ms + 1_000,
        };
        self.present = false;
        self.gone = Away {
            at,
            within,
            gateway: self.gateway.clone(),
        };
        self.gap = None;
        self.unhold();
    }

    /// Nobody surely holds it from now on; fine for so long.
    pub(super) fn doubt(&mut self, at: u64, fine_for: u64) {
        if self.present {
            let (from, before) = self.gap.unwrap_or((at, fine_for));
            self.gap = Some((from, before.min(fine_for)));
        }
    }

    /// The clock that its deadline is judged by jumps ahead.
    pub(super) fn hurry(&mut self, jump: u64) {
        self.recorded_at = self.recorded_at.saturating_sub(jump);
        if let Some((_, fine_for)) = &mut self.gap {
            *fine_for = fine_for.saturating_sub(jump);
        }
    }

    fn late(&self, at: u64) -> bool {
        let own = self.gateway.is_none() && at - self.recorded_at > self.own_ms;
        own || self
            .gap
            .is_some_and(|(from, fine_for)| at - from > fine_for)
    }

    fn unhold(&mut self) {
        self.held_since = None;
        self.in_room_since.clear();
    }

    /// Since when it is surely held, in a room or at all.
    pub(super) fn held(&self, room: Option<&str>, at: u64) -> Option<u64> {
        if !self.present || self.behind || self.late(at) {
            return None;
        }
        match room {
            Some(room) => self.in_room_since.get(room).copied(),
            None => self.held_since,
        }
    }

    /// There, as far as its client knows.
    pub(super) fn here(&self, room: Option<&str>) -> bool {
        let said = self.said.as_ref();
        let within = |room: &str| said.is_some_and(|s| s.rooms.iter().any(|r| r == room));
        self.present && room.is_none_or(within)
    }

    /// All that it went from, and has not come back to.
    pub(super) fn departures(&self) -> impl Iterator<Item = &Away> {
        let gone = (!self.present).then_some(&self.gone);
        let left = self.left_room.iter();
        let left = left.filter(|(room, _)| self.present && !self.here(Some(room)));
        gone.into_iter().chain(left.map(|(_, away)| away))
    }

    /// Since when it is not there; it may never have been.
    pub(super) fn away(&self, room: Option<&str>) -> Away {
        if self.present {
            let left = room.and_then(|room| self.left_room.get(room));
            return left.cloned().unwrap_or_default();
        }
        self.gone.clone()
    }
}
