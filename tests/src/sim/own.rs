//! Clients that hold themselves: each heartbeat goes to whichever gateway, carries everything,
//! and is sent again under a higher number when no answer comes.

use adsum_core::{
    Conn, Reason, Stamp,
    store::{Close, Store, Touch, Touched},
};

use super::{client::said, world::World};
use crate::history::{Event, Gone};

/// Before a heartbeat that was not answered is sent again, ms.
const RETRY: u64 = 600;

impl World {
    /// Any gateway that answers.
    fn door(&mut self) -> Option<usize> {
        let open = (0..self.gateways.len()).filter(|g| self.awake(self.gateways[*g].process));
        let open: Vec<_> = open.collect();
        (!open.is_empty()).then(|| *self.rng.pick(&open))
    }

    /// Beats, now and from now on.
    pub(super) fn touch(&mut self, c: usize) {
        let beat = self.times.beat;
        let rev = self.next_rev(c);
        let after = self.rng.range(beat * 4 / 5, beat);
        self.then(c, after, move |w| {
            if w.clients[c].rev() == rev {
                w.touch(c);
            }
        });
        self.then(c, RETRY, move |w| {
            if w.clients[c].rev() == rev && !w.clients[c].answered(rev) {
                w.touch(c);
            }
        });
        let Some(g) = self.door() else { return };
        let client = &self.clients[c];
        let (conn, state) = (client.conn, client.state());
        let touch = Touch {
            key: client.key.clone(),
            stamp: Stamp { conn, rev },
            state: state.clone(),
            ttl_ms: self.times.ttl,
            sessions_max: 100,
            origin: None,
        };
        let (process, store) = (self.gateways[g].process, self.gateways[g].store.clone());
        let call = async move { store.touch(vec![touch]).await };
        self.spawn(process, call, move |w, answers| {
            let answer = answers.ok().and_then(|mut answers| answers.pop());
            match answer.map(|answer| answer.value) {
                Some(Touched::Ok { .. }) if w.clients[c].heard_of(conn, rev) => {
                    let (user, device) = w.clients[c].names();
                    let said = said(&state);
                    w.note(Event::Recorded { user, device, said });
                }
                Some(Touched::Superseded { conn: above }) => w.go_above(c, conn, above),
                _ => {}
            }
        });
    }

    /// Its clock was set back, or it was closed for good reason: once above what is recorded.
    fn go_above(&mut self, c: usize, conn: Conn, above: Conn) {
        let client = &self.clients[c];
        if client.link.is_none() || client.conn != conn {
            return;
        }
        self.gone(c, Gone::Unheld);
        let conn = Conn::new(above.get() + 1).ok();
        self.then(c, 5, move |w| w.connect_as(c, conn));
    }

    /// Says goodbye until that is heard, or until it is back.
    pub(super) fn delete(&mut self, c: usize) {
        let rev = self.next_rev(c);
        let client = &self.clients[c];
        let close = Close {
            key: client.key.clone(),
            stamp: Stamp {
                conn: client.conn,
                rev,
            },
            reason: Reason::Leave,
            origin: None,
        };
        self.then(c, RETRY, move |w| {
            if !w.clients[c].answered(rev) {
                w.delete(c);
            }
        });
        let Some(g) = self.door() else { return };
        let (process, store) = (self.gateways[g].process, self.gateways[g].store.clone());
        let conn = client_conn(&close);
        let call = async move { store.close(close).await };
        self.spawn(process, call, move |w, answer| {
            if answer.is_ok() {
                w.clients[c].heard_of(conn, rev);
            }
        });
    }
}

const fn client_conn(close: &Close) -> Conn {
    close.stamp.conn
}
