//! One session of a hold: its newest state, and what of it the store still has to be told.

use super::Action;
use crate::{
    Conn, Incarnation, Origin, Prefs, Reason, Session, SessionKey, Stamp, State,
    store::{Alter, Close, Open},
};

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its client is here.
    Connected,
    /// It will be closed for this reason, at this time.
    Ending(Reason, u64),
    /// It is being closed.
    Closing(Reason),
}

/// What the store has to be told next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Nothing,
    Alter,
    Open,
    Close(Reason),
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) conn: Conn,
    pub(super) rev: u64,
    pub(super) state: State,
    /// Unless they are as everybody's are at first: most keep that.
    prefs: Option<Box<Prefs>>,
    pub(super) phase: Phase,
    /// Never recorded so far.
    pub(super) fresh: bool,
    /// The `rev` of the operation that is under way.
    pub(super) in_flight: Option<u64>,
    /// The number of the incarnation it was last opened under.
    pub(super) under: u64,
    opened_at: u64,
    pub(super) origin: Option<Origin>,
    want: Want,
    sent: Want,
}

impl Held {
    pub(super) fn new(conn: Conn, state: State, origin: Option<Origin>) -> Self {
        Self {
            conn,
            rev: 0,
            state,
            prefs: None,
            phase: Phase::Connected,
            fresh: true,
            in_flight: None,
            under: 0,
            opened_at: 0,
            origin,
            want: Want::Open,
            sent: Want::Nothing,
        }
    }

    /// A newer state. Rooms that it was in before keep the time of joining them.
    pub(super) fn change(&mut self, mut state: State, origin: Option<Origin>) {
        for (room, stay) in &mut state.rooms {
            if let Some(known) = self.state.rooms.get(room) {
                stay.since = known.since;
            }
        }
        self.state = state;
        self.origin = origin;
        if self.want == Want::Nothing {
            self.want = Want::Alter;
        }
    }

    pub(super) fn close(&mut self, reason: Reason) {
        self.phase = Phase::Closing(reason);
        self.want = Want::Close(reason);
    }

    /// It must be opened again, with its newest state; not if nobody is connected.
    pub(super) fn reopen(&mut self) {
        if self.phase == Phase::Connected {
            self.want = Want::Open;
        }
    }

    /// What was under way was not answered.
    pub(super) fn again(&mut self) {
        let rank = |want: Want| match want {
            Want::Nothing => 0,
            Want::Alter => 1,
            Want::Open => 2,
            Want::Close(_) => 3,
        };
        if rank(self.sent) > rank(self.want) {
            self.want = self.sent;
        }
    }

    /// The store has it: times that the store gave are carried from now on.
    pub(super) fn recorded(&mut self, session: &Session, prefs: Option<Prefs>) {
        self.fresh = false;
        self.opened_at = session.opened_at;
        if let Some(prefs) = prefs {
            self.prefer(prefs);
        }
        for (room, stay) in &mut self.state.rooms {
            if let Some(known) = session.state.rooms.get(room) {
                stay.since = known.since;
            }
        }
    }

    /// To be carried from now on when it is opened again, as far as it is newer.
    pub(super) fn prefer(&mut self, prefs: Prefs) {
        let known = self.prefs.as_deref().copied().unwrap_or_default();
        let newest = known.merge(prefs);
        if newest != known {
            self.prefs = Some(Box::new(newest));
        }
    }

    pub(super) fn wants_open(&self) -> bool {
        self.want == Want::Open
    }

    pub(super) fn wants_something(&self) -> bool {
        self.want != Want::Nothing
    }

    /// The next operation, unless one is under way.
    pub(super) fn next(
        &mut self,
        key: &SessionKey,
        holder: Incarnation,
        number: u64,
    ) -> Option<Action> {
        if self.in_flight.is_some() || self.want == Want::Nothing {
            return None;
        }
        self.rev += 1;
        self.in_flight = Some(self.rev);
        self.sent = std::mem::replace(&mut self.want, Want::Nothing);
        let (key, state) = (key.clone(), self.state.clone());
        let stamp = Stamp {
            conn: self.conn,
            rev: self.rev,
        };
        let origin = self.origin.take();
        Some(match self.sent {
            Want::Close(reason) => Action::Close(Close {
                key,
                stamp,
                reason,
                origin,
            }),
            Want::Alter => Action::Alter(Alter {
                key,
                stamp,
                state,
                origin,
            }),
            Want::Open | Want::Nothing => {
                self.under = number;
                let (opened_at, prefs) = (self.opened_at, self.prefs.as_deref().copied());
                Action::Open(Open {
                    key,
                    holder,
                    stamp,
                    state,
                    opened_at,
                    prefs,
                    origin,
                })
            }
        })
    }
}
