//! What is done to sessions: open, touch, alter, close, kick. Which operation wins is decided
//! in [`judge`](Shard::judge).

use adsum_core::{
    Conn, DeviceId, Event, Holder, Incarnation, Manual, Membership, Origin, Prefs, Reason, Rooms,
    Session, SessionKey, Stamp, State, UserKey,
    plant::{Plant, planted},
    store::{Alter, Altered, Close, Closed, Open, Opened, Result, Touch, Touched},
};

use super::{
    index::Member,
    shard::{Call, Shard, Tomb},
};

/// How an operation that opens is judged.
enum Verdict {
    /// A newer connection is there, or this one was closed.
    Superseded(Conn),
    /// The session as the first copy of the operation, or a later one, left it.
    Duplicate(Session),
    /// To be recorded over this, if there is any.
    New(Option<Session>),
}

/// A session to be recorded over another.
struct Next<'a> {
    key: &'a SessionKey,
    before: Option<Session>,
    after: Session,
    prefs: Prefs,
    origin: &'a Option<Origin>,
}

impl Shard {
    pub(super) fn open(&mut self, call: &Call<'_>, op: &Open) -> Result<Opened> {
        self.begin(call)?;
        let before = match self.judge(call, &op.key, op.stamp) {
            Verdict::Superseded(conn) => return Ok(Opened::Superseded { conn }),
            Verdict::Duplicate(session) => {
                let prefs = self.copy_of_prefs(&op.key.owner);
                return Ok(Opened::Ok {
                    session: session.into(),
                    prefs,
                    committed: false,
                });
            }
            Verdict::New(before) => before,
        };
        if !self.hold(call, &op.holder) {
            return Ok(Opened::Gone);
        }
        let prefs = self.carry(&op.key.owner, op.prefs);
        let opened_at = before
            .as_ref()
            .map_or(known(op.opened_at, call.now), |b| b.opened_at);
        let after = Session {
            holder: Holder::Gateway(op.holder.clone()),
            stamp: op.stamp,
            opened_at,
            state: stay(&op.state, before.as_ref(), call.now),
        };
        let session = Box::new(after.clone());
        let next = Next {
            key: &op.key,
            before,
            after,
            prefs,
            origin: &op.origin,
        };
        let committed = self.record_session(call, next);
        Ok(Opened::Ok {
            session,
            prefs,
            committed,
        })
    }

    /// One of a batch, whose caller began the step.
    pub(super) fn touch(&mut self, call: &Call<'_>, op: &Touch) -> Touched {
        let before = match self.judge(call, &op.key, op.stamp) {
            Verdict::Superseded(conn) => return Touched::Superseded { conn },
            Verdict::Duplicate(_) => return Touched::Ok { committed: false },
            Verdict::New(before) => before,
        };
        let others = self.people.get(&op.key.owner);
        let others = others.map_or(0, |record| record.person.sessions.len());
        if before.is_none() && others > 0 && others >= op.sessions_max {
            return Touched::Full;
        }
        let prefs = self.prefs_of(&op.key.owner);
        let after = Session {
            holder: Holder::Own,
            stamp: op.stamp,
            opened_at: before.as_ref().map_or(call.now, |b| b.opened_at),
            state: stay(&op.state, before.as_ref(), call.now),
        };
        let next = Next {
            key: &op.key,
            before,
            after,
            prefs,
            origin: &op.origin,
        };
        let committed = self.record_session(call, next);
        let until = call.now.saturating_add(op.ttl_ms);
        self.deadlines.set(Member::Session(op.key.clone()), until);
        Touched::Ok { committed }
    }

    pub(super) fn alter(&mut self, call: &Call<'_>, op: &Alter) -> Result<Altered> {
        self.begin(call)?;
        let Some(before) = self
            .session(&op.key)
            .filter(|r| r.stamp.conn >= op.stamp.conn)
        else {
            return Ok(Altered::Unknown);
        };
        if before.stamp.conn > op.stamp.conn {
            return Ok(Altered::Superseded {
                conn: before.stamp.conn,
            });
        }
        let before = before.clone();
        if op.stamp.rev <= before.stamp.rev {
            return Ok(Altered::Ok {
                session: before.into(),
                committed: false,
            });
        }
        let state = stay(&op.state, Some(&before), call.now);
        let after = Session {
            stamp: op.stamp,
            state,
            ..before.clone()
        };
        let session = Box::new(after.clone());
        let prefs = self.copy_of_prefs(&op.key.owner);
        let next = Next {
            key: &op.key,
            before: Some(before),
            after,
            prefs,
            origin: &op.origin,
        };
        let committed = self.record_session(call, next);
        Ok(Altered::Ok { session, committed })
    }

    pub(super) fn close(&mut self, call: &Call<'_>, op: &Close) -> Result<Closed> {
        self.begin(call)?;
        let recorded = self.session(&op.key).map(|r| r.stamp);
        match recorded {
            Some(r) if r.conn > op.stamp.conn && !planted(Plant::CloseWithoutConn) => {
                return Ok(Closed::Superseded { conn: r.conn });
            }
            Some(r) if r.conn == op.stamp.conn && op.stamp.rev <= r.rev => {
                return Ok(Closed::Ok { committed: false });
            }
            _ => {}
        }
        self.bury(call, &op.key, op.stamp.conn);
        let committed = self.remove_session(call, &op.key, op.reason, &op.origin);
        Ok(Closed::Ok { committed })
    }

    pub(super) fn kick(
        &mut self,
        call: &Call<'_>,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Vec<DeviceId>> {
        self.begin(call)?;
        let sessions = self
            .people
            .get(user)
            .into_iter()
            .flat_map(|r| &r.person.sessions);
        let wanted: Vec<_> = sessions
            .filter(|(d, _)| device.is_none_or(|wanted| wanted == *d))
            .map(|(d, session)| (d.clone(), session.stamp.conn))
            .collect();
        for (device, conn) in &wanted {
            let key = SessionKey::new(user.clone(), device.clone());
            self.bury(call, &key, *conn);
            self.remove_session(call, &key, Reason::Kicked, &None);
        }
        Ok(wanted.into_iter().map(|(device, _)| device).collect())
    }

    fn judge(&self, call: &Call<'_>, key: &SessionKey, stamp: Stamp) -> Verdict {
        let tomb = self.tomb(call, key);
        let recorded = self.session(key);
        let newer = recorded.map(|r| r.stamp.conn);
        if tomb.is_some_and(|closed| stamp.conn <= closed)
            || newer.is_some_and(|conn| conn > stamp.conn)
        {
            return Verdict::Superseded(newer.max(tomb).unwrap_or(stamp.conn));
        }
        match recorded {
            Some(r) if r.stamp.conn == stamp.conn && stamp.rev <= r.stamp.rev => {
                Verdict::Duplicate(r.clone())
            }
            recorded => Verdict::New(recorded.cloned()),
        }
    }

    /// Whether the holder may hold; gives it a deadline if it has none.
    fn hold(&mut self, call: &Call<'_>, holder: &Incarnation) -> bool {
        let condemned = [
            Member::Lost(holder.clone()),
            Member::Drained(holder.clone()),
        ];
        if condemned.iter().any(|m| self.deadlines.get(m).is_some()) {
            return false;
        }
        let living = Member::Holder(holder.clone());
        let draining = Member::Draining(holder.clone());
        match self
            .deadlines
            .get(&living)
            .or_else(|| self.deadlines.get(&draining))
        {
            Some(deadline) => deadline >= call.now,
            None => {
                self.deadlines
                    .set(living, call.now.saturating_add(call.options.holder_ms));
                true
            }
        }
    }

    /// The user's preferences with what a gateway carried through a loss.
    fn carry(&mut self, user: &UserKey, carried: Option<Prefs>) -> Prefs {
        let stored = self.prefs_of(user);
        let merged = stored.merge(carried.unwrap_or_default());
        if merged != stored {
            self.prefs.insert(user.clone(), merged);
        }
        merged
    }

    /// Writes a session with its indexes; commits if others can see a difference.
    fn record_session(&mut self, call: &Call<'_>, next: Next<'_>) -> bool {
        let Next {
            key,
            before,
            after,
            prefs,
            origin,
        } = next;
        if before.as_ref().is_none_or(|b| b.holder != after.holder) {
            if let Some(before) = &before {
                self.release(key, &before.holder);
            }
            if let Holder::Gateway(holder) = &after.holder {
                self.held.add(holder, key);
            }
        }
        let person = &mut self.record(&key.owner).person;
        let same = before.as_ref().is_some_and(|b| b.looks_like(&after));
        let visible = !same || person.prefs != prefs;
        person.prefs = prefs;
        person.sessions.insert(key.device.clone(), after.clone());
        if visible {
            let rooms = before.map(|b| b.state.rooms).unwrap_or_default();
            let event = session_event(key, &rooms, Some(after), prefs, None);
            self.commit(call, event, origin.clone());
        }
        visible
    }

    /// Closes a session, if it is recorded. Last seen comes first, so that nobody who finds the
    /// session gone finds no last seen.
    pub(super) fn remove_session(
        &mut self,
        call: &Call<'_>,
        key: &SessionKey,
        reason: Reason,
        origin: &Option<Origin>,
    ) -> bool {
        let Some(session) = self.session(key).cloned() else {
            return false;
        };
        let prefs = self.copy_of_prefs(&key.owner);
        let last = self
            .people
            .get(&key.owner)
            .is_some_and(|r| r.person.sessions.len() == 1);
        if last {
            let invisible = prefs.status.value == Some(Manual::Invisible);
            let seen = if invisible { prefs.frozen_at } else { call.now };
            if !invisible || seen != 0 {
                self.seen.set(key.owner.clone(), seen);
            }
            self.drop_record(&key.owner);
        } else if let Some(record) = self.people.get_mut(&key.owner) {
            record.person.sessions.remove(&key.device);
        }
        self.release(key, &session.holder);
        let event = session_event(key, &session.state.rooms, None, prefs, Some(reason));
        self.commit(call, event, origin.clone());
        true
    }

    fn release(&mut self, key: &SessionKey, holder: &Holder) {
        match holder {
            Holder::Own => drop(self.deadlines.remove(&Member::Session(key.clone()))),
            Holder::Gateway(holder) => self.held.remove(holder, key),
        }
    }

    /// The connection that was closed, while that counts.
    fn tomb(&self, call: &Call<'_>, key: &SessionKey) -> Option<Conn> {
        self.tombs
            .get(key)
            .filter(|t| call.now < t.until)
            .map(|t| t.conn)
    }

    /// Leaves a tombstone, never below the one that stands.
    fn bury(&mut self, call: &Call<'_>, key: &SessionKey, conn: Conn) {
        let conn = self.tomb(call, key).map_or(conn, |old| old.max(conn));
        let until = call.now.saturating_add(call.options.tomb_ms);
        self.tombs.insert(key.clone(), Tomb { conn, until });
        self.deadlines.set(Member::Tomb(key.clone()), until);
    }

    pub(super) fn session(&self, key: &SessionKey) -> Option<&Session> {
        self.people
            .get(&key.owner)?
            .person
            .sessions
            .get(&key.device)
    }

    /// The person's copy of the preferences.
    fn copy_of_prefs(&self, user: &UserKey) -> Prefs {
        self.people
            .get(user)
            .map(|r| r.person.prefs)
            .unwrap_or_default()
    }
}

/// A time given by a caller, if it can be true; else now.
const fn known(given: u64, now: u64) -> u64 {
    if given != 0 && given <= now {
        given
    } else {
        now
    }
}

/// The state, with the time of every stay: the recorded one where there is one.
fn stay(state: &State, before: Option<&Session>, now: u64) -> State {
    let mut state = state.clone();
    for (room, stay) in &mut state.rooms {
        let recorded = before.and_then(|b| b.state.rooms.get(room));
        stay.since = recorded.map_or(known(stay.since, now), |r: &Membership| r.since);
    }
    state
}

fn session_event(
    key: &SessionKey,
    before: &Rooms,
    after: Option<Session>,
    prefs: Prefs,
    reason: Option<Reason>,
) -> Event {
    Event::Session {
        owner: key.owner.clone(),
        device: key.device.clone(),
        rooms_before: before.keys().cloned().collect(),
        after,
        prefs,
        reason,
    }
}
