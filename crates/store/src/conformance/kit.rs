//! What the rules are written with: short names for long operations, and a caller in a lab.

use std::sync::Arc;

use adsum_core::{
    Change, Conn, DeviceId, Event, Incarnation, Membership, Preference, Reason, RoomId, SessionKey,
    Stamp, State, TenantId, UserId, UserKey,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, Open, Opened, Position,
        Preferred, Renewed, Shard, Store, Swept, Touch, Touched, UserRead,
    },
};

use super::{Lab, Labs};
use crate::Options;

/// The shard of those rules that need only one.
pub(super) const S: Shard = 0;
/// Shorter than the time after which a shard counts as left alone.
const BEAT: u64 = 5_000;

/// One shard, short logs and short memories.
pub(super) fn options() -> Options {
    Options {
        shards: 1,
        retention_ms: 1_000_000,
        log_len: 1000,
        ..Options::default()
    }
}

pub(super) fn user(name: &str) -> UserKey {
    UserKey::new(TenantId::new("acme").unwrap(), UserId::new(name).unwrap())
}

pub(super) fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

/// `ann/phone`.
pub(super) fn key(path: &str) -> SessionKey {
    let (owner, name) = path.split_once('/').unwrap();
    SessionKey::new(user(owner), device(name))
}

pub(super) fn holder(name: &str) -> Incarnation {
    Incarnation::new(name).unwrap()
}

pub(super) fn conn(number: u64) -> Conn {
    Conn::new(number).unwrap()
}

pub(super) fn stamp(number: u64, rev: u64) -> Stamp {
    Stamp {
        conn: conn(number),
        rev,
    }
}

pub(super) fn state(rooms: &[&str]) -> State {
    let rooms = rooms
        .iter()
        .map(|r| (RoomId::new(*r).unwrap(), Membership::default()));
    State {
        rooms: rooms.collect(),
        ..State::default()
    }
}

pub(super) fn open(path: &str, by: &str, (number, rev): (u64, u64), rooms: &[&str]) -> Open {
    Open {
        key: key(path),
        holder: holder(by),
        stamp: stamp(number, rev),
        state: state(rooms),
        opened_at: 0,
        prefs: None,
        origin: None,
    }
}

pub(super) fn touch(path: &str, (number, rev): (u64, u64), ttl_ms: u64) -> Touch {
    let stamp = stamp(number, rev);
    Touch {
        key: key(path),
        stamp,
        state: state(&[]),
        ttl_ms,
        sessions_max: 100,
        origin: None,
    }
}

/// Whether an open was recorded, and committed; panics if not recorded.
pub(super) fn committed(opened: &Opened) -> bool {
    match opened {
        Opened::Ok { committed, .. } => *committed,
        other => panic!("not opened: {other:?}"),
    }
}

pub(super) fn superseded(by: u64) -> Opened {
    Opened::Superseded { conn: conn(by) }
}

/// What a change says, in short: `epoch`, `settled`, `ann/phone`, `ann/phone left`, `ann prefs`.
pub(super) fn told(change: &Change) -> String {
    match &change.event {
        Event::Epoch => "epoch".into(),
        Event::Settled => "settled".into(),
        Event::Prefs { owner, .. } => format!("{} prefs", owner.user),
        Event::Session {
            owner,
            device,
            reason,
            ..
        } => {
            let reason = reason
                .map(|r| format!(" {}", r.as_str()))
                .unwrap_or_default();
            format!("{}/{device}{reason}", owner.user)
        }
    }
}

/// A caller in a lab.
pub(super) struct Kit {
    pub(super) lab: Box<dyn Lab>,
    pub(super) store: Arc<dyn Store>,
}

impl Kit {
    pub(super) async fn new(labs: &dyn Labs) -> Self {
        Self::with(labs, options()).await
    }

    pub(super) async fn with(labs: &dyn Labs, options: Options) -> Self {
        let lab = labs.lab(options).await;
        let store = lab.caller().await;
        Self { lab, store }
    }

    /// A kit whose shard has been born and has settled.
    pub(super) async fn settled(labs: &dyn Labs) -> Self {
        let kit = Self::new(labs).await;
        kit.settle().await;
        kit
    }

    /// Lets the shard settle.
    pub(super) async fn settle(&self) {
        self.pass(self.lab.options().settle_ms).await;
        assert!(!self.position().await.settling);
    }

    /// Time passes, and somebody looks after the shard all the while.
    pub(super) async fn pass(&self, ms: u64) {
        self.pass_with(ms, "nobody~0").await;
    }

    /// Time passes, and a holder renews.
    pub(super) async fn pass_with(&self, ms: u64, by: &str) {
        let mut left = ms;
        self.renew(by).await;
        while left > 0 {
            let step = left.min(BEAT);
            self.lab.advance(i64::try_from(step).unwrap());
            self.renew(by).await;
            left -= step;
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.lab.now()
    }

    /// Opens and says how that ended.
    pub(super) async fn open(
        &self,
        path: &str,
        by: &str,
        number: (u64, u64),
        rooms: &[&str],
    ) -> Opened {
        self.store
            .open(open(path, by, number, rooms))
            .await
            .unwrap()
            .value
    }

    /// Opens; panics if it was not recorded. Whether it was committed.
    pub(super) async fn opened(&self, path: &str, by: &str, number: (u64, u64)) -> bool {
        committed(&self.open(path, by, number, &[]).await)
    }

    pub(super) async fn alter(&self, path: &str, (n, rev): (u64, u64), rooms: &[&str]) -> Altered {
        let (key, stamp, state) = (key(path), stamp(n, rev), state(rooms));
        self.store
            .alter(Alter {
                key,
                stamp,
                state,
                origin: None,
            })
            .await
            .unwrap()
            .value
    }

    pub(super) async fn close(&self, path: &str, (n, rev): (u64, u64)) -> Closed {
        let (key, stamp, reason) = (key(path), stamp(n, rev), Reason::Leave);
        self.store
            .close(Close {
                key,
                stamp,
                reason,
                origin: None,
            })
            .await
            .unwrap()
            .value
    }

    pub(super) async fn touch(&self, path: &str, number: (u64, u64), ttl_ms: u64) -> Touched {
        self.store
            .touch(vec![touch(path, number, ttl_ms)])
            .await
            .unwrap()[0]
            .value
    }

    pub(super) async fn renew(&self, by: &str) -> Renewed {
        self.renewed(by).await.value
    }

    pub(super) async fn renewed(&self, by: &str) -> Answer<Renewed> {
        self.store
            .renew(S, &holder(by), Lease::Usual)
            .await
            .unwrap()
    }

    pub(super) async fn drain(&self, by: &str, ms: u64) -> Renewed {
        self.store
            .renew(S, &holder(by), Lease::Drain(ms))
            .await
            .unwrap()
            .value
    }

    pub(super) async fn claim(&self) -> Fence {
        self.store.claim(S).await.unwrap().value
    }

    pub(super) async fn sweep(&self, fence: Fence, limit: usize) -> Swept {
        self.store.sweep(S, fence, limit).await.unwrap().value
    }

    /// Sweeps with a new fence; panics if refused. How many were closed, and when to come again.
    pub(super) async fn swept(&self, limit: usize) -> (u64, Option<u64>) {
        match self.sweep(self.claim().await, limit).await {
            Swept::Ok { closed, next_ms } => (closed, next_ms),
            Swept::Refused => panic!("a new fence was refused"),
        }
    }

    pub(super) async fn prefer(&self, who: &str, what: Preference, version: u64) -> Preferred {
        self.store
            .prefer(&user(who), what, version)
            .await
            .unwrap()
            .value
    }

    pub(super) async fn read(&self, who: &str) -> UserRead {
        self.store.read(&[user(who)]).await.unwrap().remove(0)
    }

    pub(super) async fn position(&self) -> Position {
        self.store
            .log(S, 0, 0)
            .await
            .unwrap()
            .position
            .expect("the shard is born")
    }

    pub(super) async fn log(&self) -> Vec<Change> {
        self.store.log(S, 0, usize::MAX >> 1).await.unwrap().entries
    }

    /// What was told after an entry.
    pub(super) async fn told_after(&self, seq: u64) -> Vec<String> {
        self.log()
            .await
            .iter()
            .filter(|c| c.version.seq > seq)
            .map(told)
            .collect()
    }

    pub(super) async fn seq(&self) -> u64 {
        self.position().await.seq
    }

    pub(super) async fn held(&self, by: &str) -> Vec<String> {
        let keys = self.store.held(S, &holder(by), None, 1000).await.unwrap();
        keys.iter()
            .map(|k| format!("{}/{}", k.owner.user, k.device))
            .collect()
    }

    pub(super) async fn deadlines(&self) -> Vec<(Due, u64)> {
        self.store.deadlines(S, 1000).await.unwrap()
    }

    /// The deadline of one, if it has any.
    pub(super) async fn deadline(&self, due: &Due) -> Option<u64> {
        self.deadlines()
            .await
            .iter()
            .find(|(d, _)| d == due)
            .map(|(_, at)| *at)
    }
}
