//! How a gateway holds its sessions in one shard: which operation to send next, when to renew,
//! when to open everything again. Takes events and times, answers with actions; no IO.
//!
//! Operations of one session are serial, and each carries the whole state, so nothing is queued:
//! what counts is the newest state and whether it was sent. One that was not answered is followed
//! by another with a higher `rev`; if the first arrives late it is ignored.
//!
//! On a new epoch, or when the shard does not know the holder any more, the gateway takes a new
//! incarnation and opens all connected sessions under it; the old one lapses with whatever nobody
//! opened again. So presence heals by itself, ghosts included.

mod answers;
mod session;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use session::{Held, Phase};

use crate::{
    Conn, Incarnation, NodeId, Origin, Prefs, Reason, Session, SessionKey, State,
    store::{Alter, Close, Lease, Open},
};

/// Before what was not answered is sent again: the store itself has tried for a while.
const RETRY_MS: u64 = 100;

/// Times of a hold, ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTimes {
    /// Between two renewals.
    pub renew_ms: u64,
    /// After the shard answers again, or its epoch changed, closes wait for so long: whoever
    /// reconnected elsewhere meanwhile comes first.
    pub calm_ms: u64,
    /// Sessions whose time is up are closed at whole multiples of this: those of all shards and,
    /// as far as clocks agree, of all gateways together. A server that is asked several things at
    /// once spends a fraction on each.
    pub together_ms: u64,
}

/// What the gateway is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send, and give the answer to [`Hold::opened`].
    Open(Open),
    /// Send, and give the answer to [`Hold::altered`].
    Alter(Alter),
    /// Send, and give the answer to [`Hold::closed`].
    Close(Close),
    /// Send, and give the answer to [`Hold::renewed`].
    Renew(Incarnation, Lease),
    /// Tell the session's connection.
    Tell(SessionKey, Conn, Word),
}

/// What a connection is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The store has this state of it.
    Recorded(Box<Session>),
    /// A newer connection of the device took over; it must not come back by itself.
    Replaced,
    /// It was never let in: a newer connection is recorded, or it was closed by a service. A
    /// client whose clock was set back may go above this one once.
    Superseded(Conn),
    /// It had better go elsewhere: its shard can't be renewed from here, though others can, or
    /// all of them have to go.
    Away,
    /// It was closed by a service, and must not come back by itself.
    Kicked,
    /// It is closed in the store.
    Closed(Reason),
}

/// The sessions of one gateway in one shard.
#[derive(Debug)]
pub struct Hold {
    node: NodeId,
    times: HoldTimes,
    number: u64,
    incarnation: Incarnation,
    /// Something is opened under it, so the shard may know it.
    used: bool,
    /// The shard said that it knows it.
    known: bool,
    epoch: u64,
    /// Boxed: a table has room for more than are in it.
    sessions: HashMap<SessionKey, Box<Held>>,
    /// Sessions that end when their time comes, by that time.
    ending: BTreeSet<(u64, SessionKey)>,
    renew_at: u64,
    renewing: Option<Renewing>,
    /// When it was last looked what is due.
    ticked_at: u64,
    failures: u32,
    calm_at: u64,
    renewed_at: u64,
    mismatches: u32,
    /// Counts operations, to know whether any was under way during a renewal.
    operations: u64,
    drain: Option<u64>,
    /// What was not answered, to be sent again at the next tick.
    retries: Vec<SessionKey>,
    retry_at: u64,
}

#[derive(Debug)]
struct Renewing {
    sent_at: u64,
    incarnation: Incarnation,
    /// The shard knew the incarnation before.
    known: bool,
    operations: u64,
    quiet: bool,
}

impl Hold {
    /// An empty hold. `number` must be higher than any that this node id used before.
    ///
    /// # Errors
    /// When the node's id leaves no room for the number.
    pub fn new(
        node: NodeId,
        number: u64,
        times: HoldTimes,
        now: u64,
    ) -> Result<Self, crate::IdError> {
        let incarnation = Incarnation::of(&node, number)?;
        Ok(Self {
            node,
            times,
            number,
            incarnation,
            used: false,
            known: false,
            epoch: 0,
            sessions: HashMap::new(),
            ending: BTreeSet::new(),
            renew_at: now,
            renewing: None,
            ticked_at: now,
            failures: 0,
            calm_at: now,
            renewed_at: now,
            mismatches: 0,
            operations: 0,
            drain: None,
            retries: Vec::new(),
            retry_at: 0,
        })
    }

    /// The sessions that are here, connected or not.
    pub fn sessions(&self) -> impl Iterator<Item = (&SessionKey, Conn, &State)> {
        self.sessions
            .iter()
            .map(|(key, held)| (key, held.conn, &held.state))
    }

    /// How many sessions are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.sessions
            .values()
            .filter(|s| s.phase == Phase::Connected)
            .count()
    }

    /// Tells all who are connected that they had better go elsewhere.
    #[must_use]
    pub fn send_away(&self) -> Vec<Action> {
        let here = self.sessions.iter();
        let here = here.filter(|(_, held)| held.phase == Phase::Connected);
        here.map(|(key, held)| Action::Tell(key.clone(), held.conn, Word::Away))
            .collect()
    }

    /// Answered with "gone" in this epoch, the renewal under way says that the shard forgot a
    /// holder it knew: whoever is connected was closed behind our back.
    #[must_use]
    pub fn was_swept(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.renewing.as_ref().is_some_and(|r| self.is_lost(r))
    }

    /// Whether "gone" means lost. A renewal may be sent before the first open and answered after
    /// it, or overtake it: then nobody knew the holder yet, and nothing is wrong.
    fn is_lost(&self, renewing: &Renewing) -> bool {
        renewing.known && renewing.incarnation == self.incarnation
    }

    /// Where the next operation of a session comes from.
    pub fn caused_by(&mut self, key: &SessionKey, conn: Conn, origin: Option<Origin>) {
        if let Some(held) = self.current(key, conn)
            && origin.is_some()
        {
            held.origin = origin;
        }
    }

    /// The incarnation that holds them.
    #[must_use]
    pub const fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// When the shard last answered a renewal: for how long these users can't be held safely.
    #[must_use]
    pub const fn renewed_at(&self) -> u64 {
        self.renewed_at
    }

    /// A client said hello. One with an older connection of the same device is replaced.
    pub fn hello(
        &mut self,
        key: SessionKey,
        conn: Conn,
        state: State,
        origin: Option<Origin>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(known) = self.sessions.get(&key) {
            if known.conn == conn && !matches!(known.phase, Phase::Closing(_)) {
                return self.hello_again(&key, state, origin);
            }
            if known.conn >= conn {
                return vec![Action::Tell(key, conn, Word::Superseded(known.conn))];
            }
            self.forget_end(&key);
            if let Some(old) = self.sessions.remove(&key)
                && old.phase == Phase::Connected
            {
                actions.push(Action::Tell(key.clone(), old.conn, Word::Replaced));
            }
        }
        self.sessions
            .insert(key.clone(), Box::new(Held::new(conn, state, origin)));
        actions.extend(self.send(&key));
        actions
    }

    /// A hello that was said before, by a client that did not hear the answer.
    fn hello_again(
        &mut self,
        key: &SessionKey,
        state: State,
        origin: Option<Origin>,
    ) -> Vec<Action> {
        self.forget_end(key);
        if let Some(held) = self.sessions.get_mut(key) {
            held.phase = Phase::Connected;
            held.change(state, origin);
            held.reopen();
        }
        self.send(key)
    }

    /// A connected client changed what it says of itself.
    pub fn set(
        &mut self,
        key: &SessionKey,
        conn: Conn,
        state: State,
        origin: Option<Origin>,
    ) -> Vec<Action> {
        match self.current(key, conn) {
            Some(held) if held.phase == Phase::Connected => held.change(state, origin),
            _ => return Vec::new(),
        }
        self.send(key)
    }

    /// New preferences of the session's owner: carried from now on when it is opened again.
    pub fn prefer(&mut self, key: &SessionKey, prefs: Prefs) {
        if let Some(held) = self.sessions.get_mut(key) {
            held.prefer(prefs);
        }
    }

    /// Ends a session at a time: at once for a goodbye, otherwise together with others, after the
    /// linger time for a broken socket, soon for silence. Only goodbyes do not wait for a shard
    /// that is in doubt.
    pub fn end(&mut self, key: &SessionKey, conn: Conn, reason: Reason, at: u64) -> Vec<Action> {
        let Some(held) = self.current(key, conn) else {
            return Vec::new();
        };
        if matches!(held.phase, Phase::Closing(_)) {
            return Vec::new();
        }
        self.forget_end(key);
        let together = at.checked_next_multiple_of(self.times.together_ms);
        let at = together.unwrap_or(at);
        let Some(held) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        if reason == Reason::Leave {
            held.close(reason);
            return self.send(key);
        }
        held.phase = Phase::Ending(reason, at);
        self.ending.insert((at, key.clone()));
        Vec::new()
    }

    /// A client that was believed silent spoke after all.
    pub fn spoke(&mut self, key: &SessionKey, conn: Conn) -> Vec<Action> {
        let number = self.number;
        let held = self.current(key, conn);
        if !held.is_some_and(|held| matches!(held.phase, Phase::Ending(..))) {
            return Vec::new();
        }
        self.forget_end(key);
        let Some(held) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        held.phase = Phase::Connected;
        if held.under != number {
            // All others were opened under a new incarnation while this one was given up.
            held.reopen();
        }
        self.send(key)
    }

    /// The session may have been closed behind our back: asks the store, by opening it again.
    pub fn check(&mut self, key: &SessionKey) -> Vec<Action> {
        if let Some(held) = self.sessions.get_mut(key) {
            held.reopen();
        }
        self.send(key)
    }

    /// The last renewal: the gateway goes, its sessions have until then to turn up elsewhere.
    pub fn drain(&mut self, lease_ms: u64) -> Vec<Action> {
        self.drain = Some(lease_ms);
        if !self.used {
            return Vec::new();
        }
        vec![Action::Renew(
            self.incarnation.clone(),
            Lease::Drain(lease_ms),
        )]
    }

    /// What is due. To be called at [`next`](Self::next).
    pub fn tick(&mut self, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        self.ticked_at = now;
        if self.drain.is_none() && self.renewing.is_none() && now >= self.renew_at {
            // Counted from when it was due, so that shards which renew together go on doing so.
            let next = self.renew_at + self.times.renew_ms;
            self.renew_at = match next > now {
                true => next,
                false => now + self.times.renew_ms,
            };
            self.renewing = Some(Renewing {
                sent_at: now,
                incarnation: self.incarnation.clone(),
                known: self.known,
                operations: self.operations,
                quiet: self.quiet(),
            });
            actions.push(Action::Renew(self.incarnation.clone(), Lease::Usual));
        }
        if self.calm(now) {
            while let Some((at, key)) = self.ending.first().cloned()
                && at <= now
            {
                self.ending.remove(&(at, key.clone()));
                if let Some(held) = self.sessions.get_mut(&key)
                    && let Phase::Ending(reason, _) = held.phase
                {
                    held.close(reason);
                    actions.extend(self.send(&key));
                }
            }
        }
        if now >= self.retry_at {
            for key in std::mem::take(&mut self.retries) {
                actions.extend(self.send(&key));
            }
        }
        actions
    }

    /// When [`tick`](Self::tick) has something to do next; it may be in the past.
    #[must_use]
    pub fn next(&self) -> u64 {
        let renew = self.drain.is_none() && self.renewing.is_none();
        let renew = if renew { self.renew_at } else { u64::MAX };
        let retry = if self.retries.is_empty() {
            u64::MAX
        } else {
            self.retry_at
        };
        let end = match self.ending.first() {
            // In doubt the next answer is waited for.
            Some((at, _)) if !self.doubtful(self.ticked_at) => (*at).max(self.calm_at),
            _ => u64::MAX,
        };
        renew.min(retry).min(end)
    }

    fn calm(&self, now: u64) -> bool {
        !self.doubtful(now) && now >= self.calm_at
    }

    /// Whether the shard does not answer: with errors, or not at all. A call may take seconds
    /// before it fails, and one that hung and was answered in the end is no error.
    fn doubtful(&self, now: u64) -> bool {
        let patience = self.times.renew_ms / 2;
        let silent = |r: &Renewing| now > r.sent_at + patience;
        self.failures > 1 || self.renewing.as_ref().is_some_and(silent)
    }

    fn current(&mut self, key: &SessionKey, conn: Conn) -> Option<&mut Held> {
        let held = self.sessions.get_mut(key).map(|held| &mut **held);
        held.filter(|held| held.conn == conn)
    }

    fn forget_end(&mut self, key: &SessionKey) {
        if let Some(Phase::Ending(_, at)) = self.sessions.get(key).map(|held| held.phase) {
            self.ending.remove(&(at, key.clone()));
        }
    }

    fn drop_session(&mut self, key: &SessionKey) {
        self.forget_end(key);
        self.sessions.remove(key);
    }

    fn take_new_incarnation(&mut self) {
        self.number += 1;
        // The node's id had room for the first number, and they are written in hexadecimal.
        let Ok(incarnation) = Incarnation::of(&self.node, self.number) else {
            return;
        };
        self.incarnation = incarnation;
        self.used = false;
        self.known = false;
        self.mismatches = 0;
        let connected = self
            .sessions
            .values_mut()
            .filter(|s| s.phase == Phase::Connected);
        connected.for_each(|held| held.reopen());
    }

    /// Sends what a new incarnation made necessary.
    fn healed(&mut self) -> Vec<Action> {
        if self.used || self.drain.is_some() {
            return Vec::new();
        }
        let wanting = self.sessions.iter().filter(|(_, s)| s.wants_open());
        let keys: Vec<_> = wanting.map(|(key, _)| key.clone()).collect();
        keys.iter().flat_map(|key| self.send(key)).collect()
    }

    /// The next operation of a session, unless one is under way.
    fn send(&mut self, key: &SessionKey) -> Vec<Action> {
        let (incarnation, number) = (self.incarnation.clone(), self.number);
        let Some(held) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        let Some(action) = held.next(key, incarnation, number) else {
            return Vec::new();
        };
        self.operations += 1;
        self.used |= matches!(action, Action::Open(_));
        vec![action]
    }
}
