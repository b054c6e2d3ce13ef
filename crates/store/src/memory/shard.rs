//! One shard: plain data, and the steps that every write begins and ends with. No clock, no
//! randomness, no waiting: each call brings what it needs. The order of the steps is that of
//! `docs/store.md`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use adsum_core::{
    Change, Conn, Event, Origin, Person, Prefs, SessionKey, UserId, UserKey, Version,
    plant::{Plant, planted},
    store::{Position, Result, StoreError},
};

use super::{
    index::{Deadlines, Held, Timed},
    log::Log,
};
use crate::Options;

/// What a write brings with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    /// The shard's clock, ms.
    pub(super) now: u64,
    /// The identity of the server, which changes when writes may have been lost.
    pub(super) replid: u64,
    /// The highest epoch that the caller has seen.
    pub(super) seen: u64,
    /// The random part of a new epoch.
    pub(super) nonce: u64,
    /// The caller's configuration.
    pub(super) options: &'a Options,
    /// Where what it closes by itself comes from.
    pub(super) origin: Option<&'a Origin>,
}

/// What a shard knows of itself, from its birth on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) shards: u64,
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) replid: u64,
    pub(super) fence: u64,
    pub(super) alive: u64,
    pub(super) settle_until: u64,
    pub(super) unsettled: bool,
}

/// A connection that was closed or kicked, and until when it can't be opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tomb {
    pub(super) conn: Conn,
    pub(super) until: u64,
}

/// A person and their place in scans, which stays the same while they have sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) place: u64,
    pub(super) person: Person,
}

/// All of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shard {
    pub(super) meta: Option<Meta>,
    pub(super) people: HashMap<UserKey, Record>,
    /// Everybody of `people`, in the order in which they came.
    pub(super) places: BTreeMap<u64, UserKey>,
    pub(super) deadlines: Deadlines,
    pub(super) held: Held,
    pub(super) log: Log,
    pub(super) seen: Timed<UserKey>,
    pub(super) tombs: HashMap<SessionKey, Tomb>,
    pub(super) prefs: HashMap<UserKey, Prefs>,
    pub(super) contacts: HashMap<UserKey, Vec<UserId>>,
    /// Born settled, the first time: nothing can have been lost before.
    pub(super) nothing_lost: bool,
    /// What the current step committed, to be pushed after it.
    pub(super) committed: Vec<Arc<Change>>,
}

impl Shard {
    /// Before every write: the epoch. Answers the meta, which is there from now on.
    pub(super) fn begin(&mut self, call: &Call<'_>) -> Result<&mut Meta> {
        let configured = u64::from(call.options.shards);
        let born = self.meta.is_none();
        let meta = self
            .meta
            .get_or_insert_with(|| Meta::born(configured, call.now));
        if meta.shards != configured {
            return Err(StoreError::WrongShards {
                stored: meta.shards,
                configured,
            });
        }
        let lost = meta.replid != call.replid || call.seen > meta.epoch;
        if lost && !born && planted(Plant::SeqReused) {
            meta.replid = call.replid;
        } else if born || lost {
            self.new_epoch(call);
            if born && std::mem::take(&mut self.nothing_lost) {
                self.settle_now(call);
            }
        }
        self.meta_mut()
    }

    /// As [`begin`](Self::begin), for what shows that somebody looks after the shard: `renew`
    /// and `sweep`.
    pub(super) fn begin_alive(&mut self, call: &Call<'_>) -> Result<&mut Meta> {
        let epoch = self.meta.as_ref().map(|m| m.epoch);
        let meta = self.begin(call)?;
        let same = epoch == Some(meta.epoch);
        if same && meta.alive.saturating_add(call.options.alive_gap_ms) < call.now {
            let until = call.now.saturating_add(call.options.settle_ms);
            meta.settle_until = meta.settle_until.max(until);
        }
        meta.alive = call.now;
        if meta.unsettled && call.now >= meta.settle_until {
            meta.unsettled = false;
            self.commit(call, Event::Settled, None);
        }
        self.meta_mut()
    }

    fn meta_mut(&mut self) -> Result<&mut Meta> {
        self.meta
            .as_mut()
            .ok_or_else(|| StoreError::Corrupt("a shard without meta".into()))
    }

    fn new_epoch(&mut self, call: &Call<'_>) {
        if let Some(meta) = &mut self.meta {
            meta.epoch = meta.epoch.max(call.now).max(call.seen) + 1 + call.nonce;
            meta.replid = call.replid;
            meta.settle_until = call.now.saturating_add(call.options.settle_ms);
            meta.unsettled = true;
        }
        self.commit(call, Event::Epoch, None);
    }

    fn settle_now(&mut self, call: &Call<'_>) {
        if let Some(meta) = &mut self.meta {
            meta.settle_until = call.now;
            meta.unsettled = false;
        }
        self.commit(call, Event::Settled, None);
    }

    /// Numbers a change, adds it to the log, and gives its number to the person it is about.
    pub(super) fn commit(&mut self, call: &Call<'_>, event: Event, origin: Option<Origin>) {
        let Some(meta) = &mut self.meta else { return };
        meta.seq += 1;
        let version = Version::new(meta.epoch, meta.seq);
        if let Event::Session { owner, .. } | Event::Prefs { owner, .. } = &event
            && let Some(record) = self.people.get_mut(owner)
        {
            record.person.version = version;
        }
        let change = Arc::new(Change {
            version,
            at: call.now,
            event,
            origin,
        });
        self.committed.push(change.clone());
        self.log.add(change, call.options);
    }

    /// The last change of this step, if it is all there is to say of its owner: they have no other
    /// session, and the shard has settled.
    pub(super) fn whole(&self) -> Option<Box<Change>> {
        let change = self.committed.last()?;
        let Event::Session { owner, after, .. } = &change.event else {
            return None;
        };
        let sessions = self.people.get(owner);
        let sessions = sessions.map_or(0, |record| record.person.sessions.len());
        let settled = self.meta.as_ref().is_some_and(|meta| !meta.unsettled);
        (settled && sessions == usize::from(after.is_some())).then(|| Box::new((**change).clone()))
    }

    /// The person's record, made if they have none.
    pub(super) fn record(&mut self, user: &UserKey) -> &mut Record {
        self.people.entry(user.clone()).or_insert_with(|| {
            let place = self.places.last_key_value().map_or(1, |(last, _)| last + 1);
            self.places.insert(place, user.clone());
            Record {
                place,
                ..Record::default()
            }
        })
    }

    pub(super) fn drop_record(&mut self, user: &UserKey) {
        if let Some(record) = self.people.remove(user) {
            self.places.remove(&record.place);
        }
    }

    /// The user's recorded preferences.
    pub(super) fn prefs_of(&self, user: &UserKey) -> Prefs {
        self.prefs.get(user).copied().unwrap_or_default()
    }

    /// Where the log stands; `None` before birth.
    pub(super) fn position(&self, replid: u64) -> Option<Position> {
        let meta = self.meta.as_ref()?;
        Some(Position {
            epoch: meta.epoch,
            seq: meta.seq,
            first: self.log.first(),
            settling: meta.unsettled || meta.replid != replid,
        })
    }

    /// Refuses a caller that is configured with another number of shards.
    pub(super) fn check_shards(&self, options: &Options) -> Result<()> {
        let configured = u64::from(options.shards);
        match &self.meta {
            Some(meta) if meta.shards != configured => Err(StoreError::WrongShards {
                stored: meta.shards,
                configured,
            }),
            _ => Ok(()),
        }
    }
}

impl Meta {
    const fn born(shards: u64, now: u64) -> Self {
        Self {
            shards,
            epoch: 0,
            seq: 0,
            replid: 0,
            fence: 0,
            alive: now,
            settle_until: 0,
            unsettled: false,
        }
    }
}
