//! A third implementation of `docs/store.md`, written from that page and from nothing else:
//! lists, full scans, and the members as the page spells them. It is slow, and meant to be
//! obviously right. Step numbers are those of the page.

#[path = "model/holders.rs"]
mod holders;
#[path = "model/prefs.rs"]
mod prefs;
#[path = "model/sessions.rs"]
mod sessions;

use adsum_core::{
    Change, Conn, DeviceId, Event, Holder, Incarnation, Manual, Origin, Person, Preference, Prefs,
    Reason, Session, SessionKey, Stamp, State, UserId, UserKey, Version, Versioned, Visibility,
    codec,
    store::{
        Alter, Altered, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Position,
        Preferred, Renewed, StoreError, Swept, Touch, Touched, UserRead,
    },
};
use adsum_store::Options;

const INVISIBLE: Option<Manual> = Some(Manual::Invisible);

/// Who calls, and when.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) now: u64,
    pub(crate) seen: u64,
    pub(crate) server: u64,
    pub(crate) options: &'a Options,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meta {
    pub(crate) shards: u64,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) replid: u64,
    fence: u64,
    alive: u64,
    settle_until: u64,
    unsettled: bool,
    log_bytes: u64,
}

/// A shard, without its sentinels.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelShard {
    pub(crate) meta: Option<Meta>,
    pub(crate) people: Vec<(UserKey, Person)>,
    /// A letter and a name, and a time.
    deadlines: Vec<(String, u64)>,
    /// `incarnation 0x1F session`.
    held: Vec<String>,
    log: Vec<Change>,
    last_seen: Vec<(UserKey, u64)>,
    tombs: Vec<(SessionKey, Conn, u64)>,
    prefs: Vec<(UserKey, Prefs)>,
    contacts: Vec<(UserKey, Vec<UserId>)>,
}

type Checked<T> = Result<T, StoreError>;

// Before every write: the epoch. And committing.
impl ModelShard {
    fn begin(&mut self, call: Call<'_>, keeps_alive: bool) -> Checked<()> {
        let configured = u64::from(call.options.shards);
        let birth = self.meta.is_none();
        // 1.
        if birth {
            self.meta = Some(Meta {
                shards: configured,
                epoch: 0,
                seq: 0,
                replid: 0,
                fence: 0,
                alive: call.now,
                settle_until: 0,
                unsettled: false,
                log_bytes: 0,
            });
        }
        // 2.
        let stored = self.meta().shards;
        if stored != configured {
            return Err(StoreError::WrongShards { stored, configured });
        }
        // 3. The nonce is 0 in tests.
        if birth || self.meta().replid != call.server || call.seen > self.meta().epoch {
            let meta = self.meta();
            meta.epoch = [meta.epoch, call.now, call.seen].into_iter().max().unwrap() + 1;
            meta.replid = call.server;
            meta.settle_until = call.now + call.options.settle_ms;
            meta.unsettled = true;
            self.commit(call, Event::Epoch, None);
        } else if keeps_alive && self.meta().alive + call.options.alive_gap_ms < call.now {
            // 4.
            let meta = self.meta();
            meta.settle_until = meta.settle_until.max(call.now + call.options.settle_ms);
        }
        // 5.
        if keeps_alive {
            self.meta().alive = call.now;
            if self.meta().unsettled && call.now >= self.meta().settle_until {
                self.meta().unsettled = false;
                self.commit(call, Event::Settled, None);
            }
        }
        Ok(())
    }

    fn meta(&mut self) -> &mut Meta {
        self.meta.as_mut().unwrap()
    }

    fn commit(&mut self, call: Call<'_>, event: Event, origin: Option<Origin>) {
        let size = |change: &Change| codec::encode_change(change).len() as u64;
        self.meta().seq += 1;
        let version = Version::new(self.meta().epoch, self.meta().seq);
        if let Event::Session { owner, .. } | Event::Prefs { owner, .. } = &event
            && let Some((_, person)) = self.people.iter_mut().find(|(u, _)| u == owner)
        {
            person.version = version;
        }
        let change = Change {
            version,
            at: call.now,
            event,
            origin,
        };
        self.meta().log_bytes += size(&change);
        self.log.push(change);
        let (most, bytes) = (call.options.log_len, call.options.log_max_bytes);
        if self.log.len() as u64 > most || self.meta().log_bytes > bytes {
            for _ in 0..64 {
                let long = self.log.len() as i64 > most as i64 - 63;
                if self.log.len() > 1 && (long || self.meta().log_bytes > bytes) {
                    let oldest = self.log.remove(0);
                    self.meta().log_bytes -= size(&oldest);
                }
            }
        }
    }
}

// What is recorded.
impl ModelShard {
    /// The same with all but the log in order, so that equal content is equal.
    pub(crate) fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        sorted.people.sort_by(|a, b| a.0.cmp(&b.0));
        sorted.deadlines.sort();
        sorted.held.sort();
        sorted.last_seen.sort();
        sorted.tombs.sort();
        sorted.prefs.sort_by(|a, b| a.0.cmp(&b.0));
        sorted.contacts.sort();
        sorted
    }

    /// The number of the newest change.
    pub(crate) fn newest(&self) -> Option<Version> {
        self.log.last().map(|change| change.version)
    }

    /// What was committed since, if it is all there is to say of this user.
    pub(crate) fn whole(&self, before: Option<Version>, user: &UserKey) -> Option<Box<Change>> {
        let change = self.log.last().filter(|c| Some(c.version) != before)?;
        let about = matches!(&change.event, Event::Session { owner, .. } if owner == user);
        let closed = matches!(&change.event, Event::Session { after: None, .. });
        let sessions = self.person(user).map_or(0, |person| person.sessions.len());
        let settled = self.meta.as_ref().is_some_and(|meta| !meta.unsettled);
        (about && settled && sessions == usize::from(!closed)).then(|| Box::new(change.clone()))
    }

    fn person(&self, user: &UserKey) -> Option<&Person> {
        self.people
            .iter()
            .find(|(u, _)| u == user)
            .map(|(_, person)| person)
    }

    fn session(&self, key: &SessionKey) -> Option<Session> {
        self.person(&key.owner)?.sessions.get(&key.device).cloned()
    }

    fn write_session(&mut self, key: &SessionKey, session: Session, prefs: Prefs) {
        if self.person(&key.owner).is_none() {
            self.people.push((key.owner.clone(), Person::default()));
        }
        let (_, person) = self
            .people
            .iter_mut()
            .find(|(u, _)| *u == key.owner)
            .unwrap();
        person.prefs = prefs;
        person.sessions.insert(key.device.clone(), session);
    }

    fn stored_prefs(&self, user: &UserKey) -> Option<Prefs> {
        self.prefs
            .iter()
            .find(|(u, _)| u == user)
            .map(|(_, prefs)| *prefs)
    }

    fn write_prefs(&mut self, user: &UserKey, prefs: Prefs) {
        self.prefs.retain(|(u, _)| u != user);
        self.prefs.push((user.clone(), prefs));
    }

    fn last_seen(&self, user: &UserKey) -> Option<u64> {
        self.last_seen
            .iter()
            .find(|(u, _)| u == user)
            .map(|(_, at)| *at)
    }

    fn deadline(&self, letter: char, name: &str) -> Option<u64> {
        let member = format!("{letter}{name}");
        self.deadlines
            .iter()
            .find(|(m, _)| *m == member)
            .map(|(_, at)| *at)
    }

    fn set_deadline(&mut self, letter: char, name: &str, at: u64) {
        self.drop_deadline(letter, name);
        self.deadlines.push((format!("{letter}{name}"), at));
    }

    fn drop_deadline(&mut self, letter: char, name: &str) {
        let member = format!("{letter}{name}");
        self.deadlines.retain(|(m, _)| *m != member);
    }

    fn by_deadline(&self) -> Vec<(String, u64)> {
        let mut all = self.deadlines.clone();
        all.sort_by(|a, b| (a.1, a.0.as_bytes()).cmp(&(b.1, b.0.as_bytes())));
        all
    }

    fn held_by(&self, holder: &str) -> Vec<SessionKey> {
        let prefix = format!("{holder}\u{1f}");
        let mut keys: Vec<_> = self
            .held
            .iter()
            .filter_map(|h| h.strip_prefix(&prefix))
            .collect();
        keys.sort_by_key(|k| k.as_bytes().to_vec());
        keys.iter()
            .map(|k| SessionKey::decode(k.as_bytes()).unwrap())
            .collect()
    }

    /// Its `held` entry or `s` deadline goes.
    fn release(&mut self, key: &SessionKey, holder: &Holder) {
        match holder {
            Holder::Own => self.drop_deadline('s', &key.encode()),
            Holder::Gateway(holder) => {
                let entry = format!("{holder}\u{1f}{}", key.encode());
                self.held.retain(|h| *h != entry);
            }
        }
    }

    fn valid_tomb(&self, call: Call<'_>, key: &SessionKey) -> Option<Conn> {
        let tomb = self
            .tombs
            .iter()
            .find(|(k, _, until)| k == key && call.now < *until);
        tomb.map(|(_, conn, _)| *conn)
    }

    fn bury(&mut self, call: Call<'_>, key: &SessionKey, conn: Conn) {
        let conn = self.valid_tomb(call, key).map_or(conn, |old| old.max(conn));
        let until = call.now + call.options.tomb_ms;
        self.drop_tomb(key);
        self.tombs.push((key.clone(), conn, until));
        self.set_deadline('t', &key.encode(), until);
    }

    fn drop_tomb(&mut self, key: &SessionKey) {
        self.tombs.retain(|(k, ..)| k != key);
        self.drop_deadline('t', &key.encode());
    }
}

// Reads.
impl ModelShard {
    pub(crate) fn check(&self, call: Call<'_>) -> Checked<()> {
        let configured = u64::from(call.options.shards);
        match self.meta.as_ref().map(|m| m.shards) {
            Some(stored) if stored != configured => {
                Err(StoreError::WrongShards { stored, configured })
            }
            _ => Ok(()),
        }
    }

    fn settling(&self, call: Call<'_>) -> Option<bool> {
        self.meta
            .as_ref()
            .map(|m| m.unsettled || m.replid != call.server)
    }

    pub(crate) fn read(&self, call: Call<'_>, user: &UserKey) -> Checked<UserRead> {
        self.check(call)?;
        Ok(UserRead {
            person: self.person(user).cloned(),
            prefs: self.stored_prefs(user).unwrap_or_default(),
            last_seen: self.last_seen(user),
            settling: self.settling(call).unwrap_or(true),
        })
    }

    pub(crate) fn contacts(&self, user: &UserKey) -> Option<(u64, Vec<UserId>)> {
        let (_, list) = self.contacts.iter().find(|(u, _)| u == user)?;
        Some((self.stored_prefs(user)?.contacts, list.clone()))
    }

    pub(crate) fn log(&self, call: Call<'_>, after: u64, limit: usize) -> Checked<LogPage> {
        self.check(call)?;
        let Some(meta) = &self.meta else {
            return Ok(LogPage {
                position: None,
                entries: vec![],
                hole: false,
            });
        };
        let first = self.log[0].version.seq;
        let settling = self.settling(call).unwrap();
        let position = Position {
            epoch: meta.epoch,
            seq: meta.seq,
            first,
            settling,
        };
        let newer = self.log.iter().filter(|c| c.version.seq > after);
        let entries = newer.take(limit).cloned().collect();
        Ok(LogPage {
            position: Some(position),
            entries,
            hole: first > after + 1,
        })
    }

    pub(crate) fn held(
        &self,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Vec<SessionKey> {
        let mut keys = self.held_by(holder.as_str());
        keys.retain(|k| after.is_none_or(|a| k.encode().as_bytes() > a.encode().as_bytes()));
        keys.truncate(limit);
        keys
    }

    pub(crate) fn due(&self, limit: usize) -> Vec<(Due, u64)> {
        let due = |member: &str| {
            let name = &member[1..];
            let holder = || Incarnation::new(name).unwrap();
            let key = || SessionKey::decode(name.as_bytes()).unwrap();
            match &member[..1] {
                "h" => Due::Holder(holder()),
                "d" => Due::Draining(holder()),
                "s" => Due::Session(key()),
                "t" => Due::Tomb(key()),
                _ => Due::Condemned(holder()),
            }
        };
        self.by_deadline()
            .iter()
            .take(limit)
            .map(|(m, at)| (due(m), *at))
            .collect()
    }
}
