//! What a hold makes of the store's answers: what is recorded, what was superseded, and when
//! everything must be opened again.

use super::{Action, Hold, RETRY_MS, Renewing, Word};
use crate::{
    Conn, Holder, SessionKey,
    store::{Alter, Altered, Answer, Close, Closed, Open, Opened, Renewed, Result},
};

impl Hold {
    /// The answer to an open.
    pub fn opened(&mut self, op: &Open, answer: Result<Answer<Opened>>, now: u64) -> Vec<Action> {
        let Some(answer) = self.heard(&op.key, op.stamp.conn, op.stamp.rev, answer, now) else {
            return self.healed();
        };
        let (key, current) = (&op.key, self.incarnation.clone());
        let Some(held) = self.sessions.get_mut(key) else {
            return self.healed();
        };
        let mut actions = Vec::new();
        match answer {
            Opened::Ok { session, prefs, .. } => {
                if session.holder == Holder::Gateway(op.holder.clone()) {
                    held.recorded(&session, Some(prefs));
                    self.known |= op.holder == current;
                    let word = Word::Recorded(session);
                    actions.push(Action::Tell(key.clone(), op.stamp.conn, word));
                    if op.holder != current {
                        held.reopen();
                    }
                } else {
                    // Another gateway opened the same connection later: go above it.
                    held.rev = held.rev.max(session.stamp.rev);
                    held.reopen();
                }
            }
            Opened::Superseded { conn } => {
                let word = match (held.fresh, conn == op.stamp.conn) {
                    (true, _) => Word::Superseded(conn),
                    // Nobody but a service closes a connection that is still here.
                    (false, true) => Word::Kicked,
                    (false, false) => Word::Replaced,
                };
                self.drop_session(key);
                actions.push(Action::Tell(key.clone(), op.stamp.conn, word));
            }
            Opened::Gone => {
                held.reopen();
                if op.holder == current {
                    self.take_new_incarnation();
                }
            }
        }
        actions.extend(self.healed());
        actions.extend(self.send(key));
        actions
    }

    /// The answer to a change.
    pub fn altered(
        &mut self,
        op: &Alter,
        answer: Result<Answer<Altered>>,
        now: u64,
    ) -> Vec<Action> {
        let Some(answer) = self.heard(&op.key, op.stamp.conn, op.stamp.rev, answer, now) else {
            return self.healed();
        };
        let key = &op.key;
        let Some(held) = self.sessions.get_mut(key) else {
            return self.healed();
        };
        let mut actions = Vec::new();
        match answer {
            Altered::Ok { session, .. } => {
                held.recorded(&session, None);
                let word = Word::Recorded(session);
                actions.push(Action::Tell(key.clone(), op.stamp.conn, word));
            }
            Altered::Superseded { .. } => {
                self.drop_session(key);
                actions.push(Action::Tell(key.clone(), op.stamp.conn, Word::Replaced));
            }
            Altered::Unknown => held.reopen(),
        }
        actions.extend(self.healed());
        actions.extend(self.send(key));
        actions
    }

    /// The answer to a close.
    pub fn closed(&mut self, op: &Close, answer: Result<Answer<Closed>>, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let answer = self.heard(&op.key, op.stamp.conn, op.stamp.rev, answer, now);
        if let Some(Closed::Ok { .. } | Closed::Superseded { .. }) = answer {
            self.drop_session(&op.key);
            let word = Word::Closed(op.reason);
            actions.push(Action::Tell(op.key.clone(), op.stamp.conn, word));
        }
        actions.extend(self.healed());
        actions
    }

    /// The answer to a renewal.
    pub fn renewed(&mut self, answer: Result<Answer<Renewed>>, now: u64) -> Vec<Action> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => {
                self.renewing = None;
                self.failed();
                return Vec::new();
            }
        };
        self.answered(answer.epoch, now);
        let Some(renewing) = self.renewing.take() else {
            return Vec::new();
        };
        self.renewed_at = now;
        match answer.value {
            Renewed::Gone if self.is_lost(&renewing) => self.take_new_incarnation(),
            Renewed::Ok { held } if renewing.incarnation == self.incarnation => {
                self.compare(held, &renewing);
            }
            _ => {}
        }
        self.healed()
    }

    /// The number is right if connected ≤ held ≤ connected + ending. Wrong twice, with nothing
    /// under way, and all is opened again.
    fn compare(&mut self, held: u64, renewing: &Renewing) {
        if !renewing.quiet || renewing.operations != self.operations || !self.quiet() {
            return;
        }
        let (least, most) = (self.connected() as u64, self.sessions.len() as u64);
        if (least..=most).contains(&held) {
            self.mismatches = 0;
            return;
        }
        self.mismatches += 1;
        if self.mismatches >= 2 {
            self.take_new_incarnation();
        }
    }

    pub(super) fn quiet(&self) -> bool {
        self.sessions
            .values()
            .all(|s| s.in_flight.is_none() && !s.wants_something())
    }

    fn failed(&mut self) {
        self.failures += 1;
    }

    /// The shard answered: notes its epoch and its health.
    fn answered(&mut self, epoch: u64, now: u64) {
        if self.doubtful(now) {
            self.calm_at = now + self.times.calm_ms;
        }
        self.failures = 0;
        if epoch > self.epoch {
            let first = self.epoch == 0;
            self.epoch = epoch;
            if !first {
                self.calm_at = now + self.times.calm_ms;
                self.take_new_incarnation();
            }
        }
    }

    /// Takes the answer if it is to the operation under way of this connection.
    fn heard<T>(
        &mut self,
        key: &SessionKey,
        conn: Conn,
        rev: u64,
        answer: Result<Answer<T>>,
        now: u64,
    ) -> Option<T> {
        let ours = self
            .sessions
            .get_mut(key)
            .filter(|held| held.conn == conn && held.in_flight == Some(rev));
        if let Some(held) = ours {
            held.in_flight = None;
            if answer.is_err() {
                held.again();
                self.retries.push(key.clone());
                self.retry_at = now + RETRY_MS;
            }
        } else if answer.is_ok() {
            // Late, of a connection that was replaced: it still tells the epoch.
            let answer = answer.ok()?;
            self.answered(answer.epoch, now);
            return None;
        }
        match answer {
            Ok(answer) => {
                self.answered(answer.epoch, now);
                Some(answer.value)
            }
            Err(_) => {
                self.failed();
                None
            }
        }
    }
}
