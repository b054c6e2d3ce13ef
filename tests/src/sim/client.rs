//! Clients: they connect, beat, change, move, break, vanish, say goodbye and come back, and
//! they set who may see them.

use adsum_core::{
    Activity, Conn, Kind, Membership, Meta, Reason, RoomId, SessionKey, State, hold::Word,
};

use super::world::{DAWN, World};
use crate::history::{Event, Gone, Said};

pub(super) struct Client {
    pub(super) key: SessionKey,
    pub(super) link: Option<usize>,
    pub(super) conn: Conn,
    said: Said,
    /// Counts its doings, so that what was planned before is forgotten.
    turn: u64,
    heard: u64,
    /// Its clock is set anew whenever it starts: numbers may go back.
    bad_clock: bool,
    /// It was started again, and does not know its last number.
    forgot: bool,
    /// Holds itself, by heartbeats that any gateway passes on.
    own: bool,
    rev: u64,
    answered: u64,
    /// The version of a setting that is asked for.
    pub(super) asking: Option<u64>,
}

impl Client {
    pub(super) fn new(key: SessionKey, conn: Conn, bad_clock: bool) -> Self {
        let said = Said {
            activity: Activity::Online,
            rooms: Vec::new(),
            mark: 0,
        };
        Self {
            key,
            link: None,
            conn,
            said,
            turn: 0,
            heard: 0,
            bad_clock,
            forgot: false,
            own: false,
            rev: 0,
            answered: 0,
            asking: None,
        }
    }

    /// One that holds itself.
    pub(super) fn on_its_own(self) -> Self {
        Self { own: true, ..self }
    }

    pub(super) fn names(&self) -> (String, String) {
        let (user, device) = (&self.key.owner.user, &self.key.device);
        (user.as_str().to_owned(), device.as_str().to_owned())
    }

    pub(super) const fn rev(&self) -> u64 {
        self.rev
    }

    pub(super) const fn answered(&self, rev: u64) -> bool {
        self.answered >= rev
    }

    /// Takes an answer; `false` if it is to an earlier connection.
    pub(super) fn heard_of(&mut self, conn: Conn, rev: u64) -> bool {
        let current = self.conn == conn;
        if current {
            self.answered = self.answered.max(rev);
        }
        current && self.link.is_some()
    }

    /// What it says now.
    pub(super) fn state(&self) -> State {
        let rooms = self.said.rooms.iter();
        let rooms = rooms.filter_map(|room| Some((RoomId::new(room.as_str()).ok()?, stay())));
        State {
            kind: Kind::new(self.key.device.as_str()).unwrap_or_default(),
            activity: self.said.activity,
            meta: Some(Meta::trusted(self.said.mark.to_string())),
            rooms: rooms.collect(),
        }
    }
}

fn stay() -> Membership {
    Membership::default()
}

/// What a state says, as it was said.
pub(super) fn said(state: &State) -> Said {
    Said {
        activity: state.activity,
        rooms: state.rooms.keys().map(|r| r.as_str().to_owned()).collect(),
        mark: state.meta.as_ref().map_or(0, mark),
    }
}

pub(super) fn mark(meta: &Meta) -> u64 {
    meta.as_str().parse().unwrap_or(0)
}

impl World {
    pub(super) fn next_rev(&mut self, c: usize) -> u64 {
        self.clients[c].rev += 1;
        self.clients[c].rev
    }

    pub(super) fn gone(&mut self, c: usize, how: Gone) {
        let (user, device) = self.clients[c].names();
        self.clients[c].turn += 1;
        self.clients[c].link = None;
        self.note(Event::Gone { user, device, how });
    }

    /// Does something if the client has done nothing else by then.
    pub(super) fn then(&mut self, c: usize, after: u64, job: impl FnOnce(&mut Self) + 'static) {
        let turn = self.clients[c].turn;
        self.at(after, move |w| {
            if w.clients[c].turn == turn {
                job(w);
            }
        });
    }

    fn next_conn(&mut self, c: usize) -> Option<Conn> {
        let mut clock = DAWN + self.now;
        let last = self.clients[c].conn.get();
        if self.clients[c].bad_clock && std::mem::take(&mut self.clients[c].forgot) {
            clock -= self.rng.range(0, 20_000);
            return Conn::new(clock).ok();
        }
        clock = clock.max(last + 1);
        Conn::new(clock).ok()
    }

    pub(super) fn connect(&mut self, c: usize) {
        let conn = self.next_conn(c);
        self.connect_as(c, conn);
    }

    pub(super) fn connect_as(&mut self, c: usize, conn: Option<Conn>) {
        if self.clients[c].link.is_some() {
            return;
        }
        let open: Vec<_> = (0..self.gateways.len())
            .filter(|g| !self.gateways[*g].draining)
            .filter(|g| !self.processes[self.gateways[*g].process].dead)
            .collect();
        let (Some(conn), false) = (conn, open.is_empty()) else {
            self.then(c, 500, move |w| w.connect(c));
            return;
        };
        let g = *self.rng.pick(&open);
        let client = &mut self.clients[c];
        client.turn += 1;
        client.conn = conn;
        client.link = Some(g);
        client.heard = self.now;
        let (user, device) = client.names();
        let said = client.said.clone();
        let own = client.own;
        let gateway = (!own).then(|| self.gateways[g].name.clone());
        self.note(Event::Hello {
            user,
            device,
            conn: conn.get(),
            gateway,
            said,
        });
        if own {
            (self.clients[c].rev, self.clients[c].answered) = (0, 0);
            self.touch(c);
            self.act_later(c);
            return;
        }
        let (process, after) = (self.gateways[g].process, self.rng.range(1, 10));
        self.later(process, after, move |w| {
            // A frozen gateway may read it when the client is long gone: it says hello all the
            // same, and finds the socket closed.
            w.welcome(g, c, conn);
            w.acked(c, conn);
        });
        self.expect_ack(c);
        self.beat_later(c);
        self.act_later(c);
    }

    fn acked(&mut self, c: usize, conn: Conn) {
        if self.clients[c].conn == conn {
            self.clients[c].heard = self.now;
        }
    }

    /// Gives the connection up if nothing is heard in time.
    fn expect_ack(&mut self, c: usize) {
        let asked = self.now;
        self.then(c, self.times.ack, move |w| {
            if w.clients[c].heard <= asked {
                let back = w.rng.range(10, 1_000);
                w.lost(c, Some(back));
            }
        });
    }

    fn beat_later(&mut self, c: usize) {
        let beat = self.times.beat;
        let after = self.rng.range(beat * 4 / 5, beat);
        self.then(c, after, move |w| w.beat(c));
    }

    fn beat(&mut self, c: usize) {
        let Client { link, conn, .. } = self.clients[c];
        let Some(g) = link else { return };
        let key = self.clients[c].key.clone();
        let process = self.gateways[g].process;
        let after = self.rng.range(1, 10);
        self.later(process, after, move |w| {
            if w.spoke(g, &key, conn) {
                w.acked(c, conn);
            }
        });
        self.expect_ack(c);
        self.beat_later(c);
    }

    /// The socket broke; comes back after a while, or never.
    pub(super) fn lost(&mut self, c: usize, back: Option<u64>) {
        let Client {
            link, conn, own, ..
        } = self.clients[c];
        let Some(g) = link else { return };
        if own {
            self.vanish(c);
            return;
        }
        let returns = back.is_some_and(|back| back <= self.times.linger);
        self.gone(c, Gone::Broken { returns });
        let (key, process) = (self.clients[c].key.clone(), self.gateways[g].process);
        let after = self.rng.range(1, 20);
        self.later(process, after, move |w| {
            w.over(g, &key, conn, Reason::Disconnect);
        });
        if let Some(back) = back {
            self.then(c, back, move |w| w.connect(c));
        }
    }

    /// Told to go elsewhere, or found its gateway dead.
    pub(super) fn sent_away(&mut self, c: usize, g: usize, conn: Conn) {
        let client = &self.clients[c];
        if client.link == Some(g) && client.conn == conn && !client.own {
            let back = self.rng.range(1, 500);
            self.lost(c, Some(back));
        }
    }

    /// What the gateway says of its session.
    pub(super) fn hear(&mut self, c: usize, g: usize, conn: Conn, word: &Word) {
        let client = &self.clients[c];
        if client.link != Some(g) || client.conn != conn {
            return;
        }
        let (user, device) = client.names();
        match word {
            Word::Recorded(session) => {
                let said = said(&session.state);
                self.note(Event::Recorded { user, device, said });
            }
            Word::Superseded(recorded) => {
                // A clock that was set back: once above what is recorded.
                let conn = Conn::new(recorded.get() + 1).ok();
                self.gone(c, Gone::Broken { returns: true });
                self.then(c, 5, move |w| w.connect_as(c, conn));
            }
            Word::Replaced | Word::Kicked => {
                let word = format!("{word:?}").to_lowercase();
                self.note(Event::Ousted { user, device, word });
                self.gone(c, Gone::Broken { returns: true });
                self.then(c, 100, move |w| w.connect(c));
            }
            Word::Away | Word::Closed(_) => {}
        }
    }

    fn act_later(&mut self, c: usize) {
        let after = self.rng.range(400, 7_000);
        let turn = self.clients[c].turn;
        self.at(after, move |w| {
            if w.clients[c].turn == turn && w.clients[c].link.is_some() && !w.calm {
                w.do_something(c);
            }
        });
    }

    fn do_something(&mut self, c: usize) {
        match self.rng.below(100) {
            0..30 => self.change(c, false),
            30..50 => self.change(c, true),
            50..62 => self.goodbye(c),
            62..68 => self.vanish(c),
            68..80 => {
                let back = *self.rng.pick(&[20, 300, 2_000, 3_000]);
                self.lost(c, Some(back));
            }
            80..84 => {
                let back = *self.rng.pick(&[None, Some(9_000), Some(25_000)]);
                self.lost(c, back);
            }
            _ if self.plan.settings => {
                self.prefer(c);
                self.act_later(c);
            }
            _ => self.act_later(c),
        }
    }

    fn change(&mut self, c: usize, rooms: bool) {
        let Client { link, conn, .. } = self.clients[c];
        let Some(g) = link else { return };
        let away = self.rng.chance(400);
        let said = &mut self.clients[c].said;
        said.mark += 1;
        said.activity = if away {
            Activity::Away
        } else {
            Activity::Online
        };
        if rooms {
            let room = "r".to_owned();
            said.rooms = if said.rooms.is_empty() {
                vec![room]
            } else {
                Vec::new()
            };
        }
        let said = said.clone();
        let (user, device) = self.clients[c].names();
        self.note(Event::Change { user, device, said });
        if self.clients[c].own {
            self.touch(c);
            self.act_later(c);
            return;
        }
        let (process, after) = (self.gateways[g].process, self.rng.range(1, 10));
        self.later(process, after, move |w| w.changed(g, c, conn));
        self.act_later(c);
    }

    fn goodbye(&mut self, c: usize) {
        let Client { link, conn, .. } = self.clients[c];
        let Some(g) = link else { return };
        let key = self.clients[c].key.clone();
        self.gone(c, Gone::Goodbye);
        if self.clients[c].own {
            self.delete(c);
            self.return_after(c, &[1_000, 5_000, 15_000]);
            return;
        }
        let (process, after) = (self.gateways[g].process, self.rng.range(1, 10));
        self.later(process, after, move |w| {
            w.over(g, &key, conn, Reason::Leave)
        });
        self.return_after(c, &[50, 1_000, 5_000, 15_000]);
    }

    fn vanish(&mut self, c: usize) {
        let own = self.clients[c].own;
        self.gone(c, if own { Gone::Unheld } else { Gone::Silent });
        self.return_after(c, &[3_000, 10_000, 25_000]);
    }

    fn return_after(&mut self, c: usize, times: &[u64]) {
        self.clients[c].forgot = true;
        // One in a few does not come back.
        if !self.rng.chance(250) {
            let back = *self.rng.pick(times);
            self.then(c, back, move |w| w.connect(c));
        }
    }
}
