//! Session operations.

use super::*;

impl ModelShard {
    /// Judging: who supersedes, or whether it is a duplicate.
    pub(super) fn judge(
        &self,
        call: Call<'_>,
        key: &SessionKey,
        stamp: Stamp,
    ) -> (Option<Conn>, bool) {
        let (r, t) = (self.session(key), self.valid_tomb(call, key));
        let r = r.map(|r| r.stamp);
        // 1.
        if t.is_some_and(|t| stamp.conn <= t) || r.is_some_and(|r| r.conn > stamp.conn) {
            return (r.map(|r| r.conn).into_iter().chain(t).max(), false);
        }
        // 2.
        (
            None,
            r.is_some_and(|r| r.conn == stamp.conn && stamp.rev <= r.rev),
        )
    }

    pub(crate) fn open(&mut self, call: Call<'_>, op: &Open) -> Checked<Opened> {
        self.begin(call, false)?;
        let (above, duplicate) = self.judge(call, &op.key, op.stamp);
        if let Some(conn) = above {
            return Ok(Opened::Superseded { conn });
        }
        let r = self.session(&op.key);
        if duplicate {
            let prefs = self.person(&op.key.owner).unwrap().prefs;
            return Ok(Opened::Ok {
                session: Box::new(r.unwrap()),
                prefs,
                committed: false,
            });
        }
        // 3.
        let by = op.holder.as_str();
        if self.deadline('c', by).is_some() || self.deadline('e', by).is_some() {
            return Ok(Opened::Gone);
        }
        let lease = self.deadline('h', by).or(self.deadline('d', by));
        if lease.is_some_and(|at| at < call.now) {
            return Ok(Opened::Gone);
        }
        // 4.
        if lease.is_none() {
            self.set_deadline('h', by, call.now + call.options.holder_ms);
        }
        // 5.
        let stored = self.stored_prefs(&op.key.owner).unwrap_or_default();
        let mut p = stored;
        if let Some(carried) = op.prefs {
            if carried.status.version > p.status.version {
                p.status = carried.status;
                p.frozen_at = carried.frozen_at;
            }
            if carried.visibility.version > p.visibility.version {
                p.visibility = carried.visibility;
            }
            if (p.status, p.visibility) != (stored.status, stored.visibility) {
                p.shown_at = p.shown_at.max(carried.shown_at);
            }
        }
        if p != stored {
            self.write_prefs(&op.key.owner, p);
        }
        // 6.
        let given = if op.opened_at != 0 && op.opened_at <= call.now {
            op.opened_at
        } else {
            call.now
        };
        let session = Session {
            holder: Holder::Gateway(op.holder.clone()),
            stamp: op.stamp,
            opened_at: r.as_ref().map_or(given, |r| r.opened_at),
            state: since(call, &op.state, r.as_ref()),
        };
        // 7 and 8.
        let committed = self.record(call, &op.key, r, session.clone(), p, op.origin.clone());
        Ok(Opened::Ok {
            session: Box::new(session),
            prefs: p,
            committed,
        })
    }

    pub(crate) fn touch(&mut self, call: Call<'_>, ops: &[Touch]) -> Checked<Vec<Touched>> {
        self.begin(call, false)?;
        Ok(ops.iter().map(|op| self.touch_one(call, op)).collect())
    }

    pub(super) fn touch_one(&mut self, call: Call<'_>, op: &Touch) -> Touched {
        let (above, duplicate) = self.judge(call, &op.key, op.stamp);
        if let Some(conn) = above {
            return Touched::Superseded { conn };
        }
        if duplicate {
            return Touched::Ok { committed: false };
        }
        let r = self.session(&op.key);
        let others = self.person(&op.key.owner).map_or(0, |p| p.sessions.len());
        if r.is_none() && others > 0 && others >= op.sessions_max {
            return Touched::Full;
        }
        let session = Session {
            holder: Holder::Own,
            stamp: op.stamp,
            opened_at: r.as_ref().map_or(call.now, |r| r.opened_at),
            state: since(call, &op.state, r.as_ref()),
        };
        let prefs = self.stored_prefs(&op.key.owner).unwrap_or_default();
        let committed = self.record(call, &op.key, r, session, prefs, op.origin.clone());
        self.set_deadline('s', &op.key.encode(), call.now + op.ttl_ms);
        Touched::Ok { committed }
    }

    pub(crate) fn alter(&mut self, call: Call<'_>, op: &Alter) -> Checked<Altered> {
        self.begin(call, false)?;
        let Some(r) = self.session(&op.key) else {
            return Ok(Altered::Unknown);
        };
        if r.stamp.conn < op.stamp.conn {
            return Ok(Altered::Unknown);
        }
        if r.stamp.conn > op.stamp.conn {
            return Ok(Altered::Superseded { conn: r.stamp.conn });
        }
        if op.stamp.rev <= r.stamp.rev {
            return Ok(Altered::Ok {
                session: Box::new(r),
                committed: false,
            });
        }
        let state = since(call, &op.state, Some(&r));
        let session = Session {
            stamp: op.stamp,
            state,
            ..r.clone()
        };
        let prefs = self.person(&op.key.owner).unwrap().prefs;
        let origin = op.origin.clone();
        let committed = self.record(call, &op.key, Some(r), session.clone(), prefs, origin);
        Ok(Altered::Ok {
            session: Box::new(session),
            committed,
        })
    }

    /// Steps 7 and 8 of open; whether it was committed.
    pub(super) fn record(
        &mut self,
        call: Call<'_>,
        key: &SessionKey,
        r: Option<Session>,
        session: Session,
        prefs: Prefs,
        origin: Option<Origin>,
    ) -> bool {
        let keeps = r.as_ref().is_some_and(|r| r.holder == session.holder);
        if let Some(r) = &r
            && !keeps
        {
            self.release(key, &r.holder);
        }
        if let Holder::Gateway(holder) = &session.holder
            && !keeps
        {
            self.held.push(format!("{holder}\u{1f}{}", key.encode()));
        }
        let visible = r.as_ref().is_none_or(|r| {
            r.opened_at != session.opened_at
                || r.state != session.state
                || self.person(&key.owner).unwrap().prefs != prefs
        });
        self.write_session(key, session.clone(), prefs);
        if visible {
            let before = r
                .iter()
                .flat_map(|r| r.state.rooms.keys().cloned())
                .collect();
            self.commit(call, event(key, before, Some(session), prefs, None), origin);
        }
        visible
    }

    pub(crate) fn close(&mut self, call: Call<'_>, op: &Close) -> Checked<Closed> {
        self.begin(call, false)?;
        let r = self.session(&op.key).map(|r| r.stamp);
        if let Some(r) = r {
            if r.conn > op.stamp.conn {
                return Ok(Closed::Superseded { conn: r.conn });
            }
            if r.conn == op.stamp.conn && op.stamp.rev <= r.rev {
                return Ok(Closed::Ok { committed: false });
            }
        }
        self.bury(call, &op.key, op.stamp.conn);
        if r.is_some() {
            self.remove(call, &op.key, op.reason, op.origin.clone());
        }
        Ok(Closed::Ok {
            committed: r.is_some(),
        })
    }

    pub(super) fn remove(
        &mut self,
        call: Call<'_>,
        key: &SessionKey,
        why: Reason,
        origin: Option<Origin>,
    ) {
        let session = self.session(key).unwrap();
        let place = self
            .people
            .iter()
            .position(|(u, _)| *u == key.owner)
            .unwrap();
        let prefs = self.people[place].1.prefs;
        if self.people[place].1.sessions.len() == 1 {
            let invisible = prefs.status.value == INVISIBLE;
            let at = if invisible { prefs.frozen_at } else { call.now };
            if !(invisible && at == 0) {
                self.last_seen.retain(|(u, _)| *u != key.owner);
                self.last_seen.push((key.owner.clone(), at));
            }
            self.people.remove(place);
        } else {
            self.people[place].1.sessions.remove(&key.device);
        }
        self.release(key, &session.holder);
        let before = session.state.rooms.keys().cloned().collect();
        self.commit(call, event(key, before, None, prefs, Some(why)), origin);
    }

    pub(crate) fn kick(
        &mut self,
        call: Call<'_>,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Checked<Vec<DeviceId>> {
        self.begin(call, false)?;
        let sessions = self
            .person(user)
            .map(|p| p.sessions.clone())
            .unwrap_or_default();
        let mut closed = Vec::new();
        for (id, session) in sessions {
            if device.is_some_and(|wanted| *wanted != id) {
                continue;
            }
            let key = SessionKey::new(user.clone(), id.clone());
            self.bury(call, &key, session.stamp.conn);
            self.remove(call, &key, Reason::Kicked, None);
            closed.push(id);
        }
        Ok(closed)
    }

    pub(crate) fn purge(&mut self, call: Call<'_>, user: &UserKey) -> Checked<()> {
        self.kick(call, user, None)?;
        let had = self.stored_prefs(user).is_some();
        self.prefs.retain(|(u, _)| u != user);
        self.contacts.retain(|(u, _)| u != user);
        self.last_seen.retain(|(u, _)| u != user);
        if had {
            let prefs = Prefs::default();
            self.commit(
                call,
                Event::Prefs {
                    owner: user.clone(),
                    prefs,
                },
                None,
            );
        }
        Ok(())
    }
}

/// Each room's `since`.
fn since(call: Call<'_>, state: &State, r: Option<&Session>) -> State {
    let mut state = state.clone();
    for (room, stay) in &mut state.rooms {
        if let Some(known) = r.and_then(|r| r.state.rooms.get(room)) {
            stay.since = known.since;
        } else if stay.since == 0 || stay.since > call.now {
            stay.since = call.now;
        }
    }
    state
}

fn event(
    key: &SessionKey,
    rooms_before: Vec<adsum_core::RoomId>,
    after: Option<Session>,
    prefs: Prefs,
    reason: Option<Reason>,
) -> Event {
    let (owner, device) = (key.owner.clone(), key.device.clone());
    Event::Session {
        owner,
        device,
        rooms_before,
        after,
        prefs,
        reason,
    }
}
