//! A gateway: the real holds around its clients' connections, driven as the product's shell
//! drives them.

use std::{collections::BTreeMap, sync::Arc};

use adsum_core::{
    Change, Conn, NodeId, Reason, SessionKey,
    hold::{Action, Hold, HoldTimes, Word},
    store::{Answer, Lease, Result, Shard, Store},
};

use super::{feed::Feed, store::SimStore, watcher::Pictures, world::World};

/// One client's connection, as its gateway sees it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) client: usize,
    heard: u64,
}

pub(super) struct Gateway {
    pub(super) process: usize,
    pub(super) name: String,
    node: NodeId,
    pub(super) store: Arc<SimStore>,
    holds: Vec<Hold>,
    pub(super) links: BTreeMap<SessionKey, Link>,
    tick_at: u64,
    pub(super) draining: bool,
    pub(super) feed: Feed,
    pub(super) pictures: Pictures,
}

/// Whose operation it is: what a hold leaves in no order is sorted by this.
fn owner(action: &Action) -> Option<&SessionKey> {
    match action {
        Action::Open(op) => Some(&op.key),
        Action::Alter(op) => Some(&op.key),
        Action::Close(op) => Some(&op.key),
        Action::Tell(key, ..) => Some(key),
        Action::Renew(..) => None,
    }
}

impl World {
    pub(super) fn add_gateway(&mut self, node: NodeId) {
        let process = self.new_process();
        let name = node.as_str().to_owned();
        let store = Arc::new(SimStore::new(&self.store, &self.net, process, &name));
        self.gateways.push(Gateway {
            process,
            name,
            node,
            store,
            holds: Vec::new(),
            links: BTreeMap::new(),
            tick_at: 0,
            draining: false,
            feed: Feed::default(),
            pictures: Pictures::default(),
        });
        self.start_gateway(self.gateways.len() - 1);
    }

    /// A new life: nothing of the last one is left but the name.
    pub(super) fn start_gateway(&mut self, g: usize) {
        let process = self.gateways[g].process;
        if !self.processes[process].dead {
            self.kill_gateway(g);
        }
        self.revive(process);
        let (now, shards) = (self.now, self.plan.shards);
        let times = HoldTimes {
            renew_ms: self.times.renew,
            calm_ms: self.times.linger,
            together_ms: self.times.linger / 40,
        };
        let name = self.gateways[g].name.clone();
        let store = Arc::new(SimStore::new(&self.store, &self.net, process, &name));
        let gateway = &mut self.gateways[g];
        // Its handle has seen nothing either.
        gateway.store = store;
        let hold = |shard| {
            let first = now + u64::from(shard) * 700;
            Hold::new(gateway.node.clone(), now + 1, times, first).ok()
        };
        gateway.holds = (0..shards).filter_map(hold).collect();
        gateway.links.clear();
        gateway.tick_at = 0;
        gateway.draining = false;
        self.start_pictures(g);
        self.start_feed(g);
        self.rearm(g);
    }

    fn hold(&mut self, g: usize, shard: Shard, step: impl FnOnce(&mut Hold, u64) -> Vec<Action>) {
        let now = self.now;
        let mut actions = step(&mut self.gateways[g].holds[usize::from(shard)], now);
        actions.sort_by(|a, b| owner(a).cmp(&owner(b)));
        for action in actions {
            self.act(g, shard, action);
        }
        self.rearm(g);
    }

    fn hold_of(
        &mut self,
        g: usize,
        key: &SessionKey,
        step: impl FnOnce(&mut Hold, u64) -> Vec<Action>,
    ) {
        let shard = self.store.shard_of(&key.owner);
        self.hold(g, shard, step);
    }

    fn act(&mut self, g: usize, shard: Shard, action: Action) {
        let (process, store) = (self.gateways[g].process, self.gateways[g].store.clone());
        match action {
            Action::Open(op) => {
                let call = async move { (store.open(op.clone()).await, op) };
                self.spawn(process, call, move |w, (mut answer, op)| {
                    let whole = whole_of(&mut answer);
                    w.hold(g, shard, |hold, now| hold.opened(&op, answer, now));
                    w.foresee(g, shard, whole.as_deref());
                });
            }
            Action::Alter(op) => {
                let call = async move { (store.alter(op.clone()).await, op) };
                self.spawn(process, call, move |w, (mut answer, op)| {
                    let whole = whole_of(&mut answer);
                    w.hold(g, shard, |hold, now| hold.altered(&op, answer, now));
                    w.foresee(g, shard, whole.as_deref());
                });
            }
            Action::Close(op) => {
                let call = async move { (store.close(op.clone()).await, op) };
                self.spawn(process, call, move |w, (mut answer, op)| {
                    let whole = whole_of(&mut answer);
                    w.hold(g, shard, |hold, now| hold.closed(&op, answer, now));
                    w.foresee(g, shard, whole.as_deref());
                });
            }
            Action::Renew(incarnation, lease) => {
                let call = async move { store.renew(shard, &incarnation, lease).await };
                self.spawn(process, call, move |w, answer| {
                    if lease == Lease::Usual {
                        w.hold(g, shard, |hold, now| hold.renewed(answer, now));
                    }
                });
            }
            Action::Tell(key, conn, word) => self.tell_client(g, &key, conn, &word),
        }
    }

    fn tell_client(&mut self, g: usize, key: &SessionKey, conn: Conn, word: &Word) {
        let ended = !matches!(word, Word::Recorded(_) | Word::Closed(_));
        let links = &mut self.gateways[g].links;
        if ended && links.get(key).is_some_and(|link| link.conn == conn) {
            links.remove(key);
        }
        // One that was never let in has no link, but hears why.
        if let Some(client) = self.clients.iter().position(|c| c.key == *key) {
            self.hear(client, g, conn, word);
        }
    }

    /// Wakes the holds when they want to be.
    fn rearm(&mut self, g: usize) {
        let gateway = &self.gateways[g];
        let next = gateway.holds.iter().map(Hold::next).min();
        let next = next.unwrap_or(u64::MAX).max(self.now + 1);
        if next == u64::MAX || (gateway.tick_at > self.now && gateway.tick_at <= next) {
            return;
        }
        let process = gateway.process;
        self.gateways[g].tick_at = next;
        self.later(process, next - self.now, move |w| {
            for shard in 0..w.plan.shards {
                w.hold(g, shard, Hold::tick);
            }
        });
    }

    /// A client's hello has come.
    pub(super) fn welcome(&mut self, g: usize, client: usize, conn: Conn) {
        let key = self.clients[client].key.clone();
        let state = self.clients[client].state();
        let heard = self.now;
        let link = Link {
            conn,
            client,
            heard,
        };
        let known = self.gateways[g].links.get(&key);
        if known.is_none_or(|known| known.conn < conn) {
            self.gateways[g].links.insert(key.clone(), link);
            self.watch_silence(g, key.clone(), conn, self.times.ttl);
        }
        self.hold_of(g, &key.clone(), |hold, _| {
            hold.hello(key, conn, state, None)
        });
    }

    /// A frame of a client has come; `false` if nobody is served there.
    pub(super) fn spoke(&mut self, g: usize, key: &SessionKey, conn: Conn) -> bool {
        let now = self.now;
        match self.gateways[g].links.get_mut(key) {
            Some(link) if link.conn == conn => {
                link.heard = now;
                true
            }
            _ => false,
        }
    }

    pub(super) fn changed(&mut self, g: usize, client: usize, conn: Conn) {
        let key = self.clients[client].key.clone();
        if self.spoke(g, &key, conn) {
            let state = self.clients[client].state();
            self.hold_of(g, &key.clone(), |hold, _| hold.set(&key, conn, state, None));
        }
    }

    /// A connection is over.
    pub(super) fn over(&mut self, g: usize, key: &SessionKey, conn: Conn, reason: Reason) {
        let linger = match reason {
            Reason::Disconnect => self.times.linger,
            _ => 0,
        };
        let links = &mut self.gateways[g].links;
        if links.get(key).is_some_and(|link| link.conn == conn) {
            links.remove(key);
            self.hold_of(g, key, |hold, now| {
                hold.end(key, conn, reason, now + linger)
            });
        }
    }

    fn watch_silence(&mut self, g: usize, key: SessionKey, conn: Conn, after: u64) {
        let process = self.gateways[g].process;
        self.later(process, after, move |w| {
            let link = w.gateways[g].links.get(&key);
            let Some(heard) = link.filter(|l| l.conn == conn).map(|l| l.heard) else {
                return;
            };
            let silent = w.now - heard;
            if silent >= w.times.ttl {
                w.over(g, &key, conn, Reason::Timeout);
            } else {
                let left = w.times.ttl - silent;
                w.watch_silence(g, key, conn, left);
            }
        });
    }

    /// Goes in good order: a last deadline, then the clients, then itself.
    pub(super) fn drain_gateway(&mut self, g: usize, window: u64, after: u64) {
        self.gateways[g].draining = true;
        let lease = window + self.times.linger;
        for shard in 0..self.plan.shards {
            self.hold(g, shard, |hold, _| hold.drain(lease));
        }
        let clients: Vec<_> = self.gateways[g]
            .links
            .values()
            .map(|l| (l.client, l.conn))
            .collect();
        for (client, conn) in clients {
            let when = self.rng.range(0, window);
            self.at(when, move |w| w.sent_away(client, g, conn));
        }
        let process = self.gateways[g].process;
        self.later(process, after, move |w| w.kill_gateway(g));
    }

    pub(super) fn kill_gateway(&mut self, g: usize) {
        let process = self.gateways[g].process;
        self.kill(process);
        self.end_pictures(g);
        for client in 0..self.clients.len() {
            // Most are told by the system that their socket is gone; others find out.
            if self.clients[client].link == Some(g) && self.rng.chance(700) {
                let (conn, after) = (self.clients[client].conn, self.rng.range(1, 500));
                self.at(after, move |w| w.sent_away(client, g, conn));
            }
        }
    }

    /// The settings of a user are known: their sessions carry them from now on.
    pub(super) fn carry(&mut self, g: usize, client: usize, prefs: adsum_core::Prefs) {
        let key = self.clients[client].key.clone();
        self.hold_of(g, &key, |hold, _| {
            hold.prefer(&key, prefs);
            Vec::new()
        });
    }

    pub(super) fn held_by(&self, g: usize) -> usize {
        self.gateways[g]
            .holds
            .iter()
            .map(|h| h.sessions().count())
            .sum()
    }
}

/// The change that an operation committed, if it is all there is to say of its owner.
fn whole_of<T>(answer: &mut Result<Answer<T>>) -> Option<Box<Change>> {
    answer.as_mut().ok()?.whole.take()
}
