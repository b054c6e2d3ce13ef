//! Random sequences of steps over few users, devices, rooms, holders and callers, and how one
//! step is taken in a lab. What a step answers is text, so that labs can be compared and
//! differences read.

use std::{fmt::Debug, sync::Arc};

use adsum_core::{
    Activity, Conn, DeviceId, Incarnation, Manual, Membership, Meta, Origin, Preference, Prefs,
    Reason, RoomId, SessionKey, Stamp, State, TenantId, UserId, UserKey, Versioned, Visibility,
    store::{Alter, Close, Fence, Lease, Open, Shard, Store, Touch},
};
use adsum_store::{
    Options,
    conformance::{Lab, START},
    load,
};
use proptest::{
    collection::vec,
    option,
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::select,
};

const USERS: [&str; 4] = ["ann", "bob", "cid", "dan"];
const DEVICES: [&str; 3] = ["phone", "tv", "web"];
const ROOMS: [&str; 3] = ["r", "r2", "s"];
const HOLDERS: [&str; 4] = ["a~1", "a~11", "b~1", "c~1"];
const SHARDS: Shard = 2;
const CALLERS: usize = 2;
/// Around every deadline of [`options`], on it and beside it; and back.
const CLOCK: [i64; 16] = [
    1, 1, 499, 500, 500, 999, 1_000, 1_000, 2_000, 3_000, 3_001, 5_000, 20_001, -1, -500, -3_000,
];

/// One step. Those that write name their caller.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Open(usize, Open),
    Alter(usize, Alter),
    Close(usize, Close),
    Touch(usize, Vec<Touch>),
    Kick(usize, UserKey, Option<DeviceId>),
    Purge(usize, UserKey),
    Renew(usize, Shard, Incarnation, Lease),
    Claim(usize, Shard),
    /// With the fence that was claimed so many claims ago, its epoch and number shifted.
    Sweep {
        caller: usize,
        shard: Shard,
        ago: usize,
        epoch: u64,
        number: u64,
        limit: usize,
    },
    /// Claim and sweep.
    Reap(usize, Shard, usize),
    Prefer(usize, UserKey, Preference, u64),
    Log(usize, Shard, u64, usize),
    Read(usize, UserKey),
    Observe(usize, Shard, u64),
    Clock(i64),
    /// Time passes; the holders that have not crashed renew.
    Beat(i64, Vec<bool>),
    LoseLast(Shard, usize),
    Rewind(Shard, usize),
    FailOver(Shard),
    Flush(Shard),
    /// A caller restarts, and has seen nothing.
    Forget(usize),
}

/// A step, and whether everything is compared after it.
pub(crate) type Taken = (Step, bool);

fn user(name: &str) -> UserKey {
    UserKey::new(TenantId::new("t").unwrap(), UserId::new(name).unwrap())
}

fn incarnation(name: &str) -> Incarnation {
    Incarnation::new(name).unwrap()
}

fn users() -> impl Strategy<Value = UserKey> {
    select(&USERS[..]).prop_map(user)
}

fn devices() -> impl Strategy<Value = DeviceId> {
    select(&DEVICES[..]).prop_map(|d| DeviceId::new(d).unwrap())
}

fn keys() -> impl Strategy<Value = SessionKey> {
    (users(), devices()).prop_map(|(user, device)| SessionKey::new(user, device))
}

/// One of them more often, so that it holds more than a sweep may close.
fn holders() -> impl Strategy<Value = Incarnation> {
    let name = prop_oneof![1 => Just(HOLDERS[0]), 1 => select(&HOLDERS[..])];
    name.prop_map(incarnation)
}

fn stamps() -> impl Strategy<Value = Stamp> {
    (1_u64..5, 1_u64..7).prop_map(|(conn, rev)| Stamp {
        conn: Conn::new(conn).unwrap(),
        rev,
    })
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 1 => (0..20_000_u64).prop_map(|n| START - 10_000 + n)]
}

fn metas() -> impl Strategy<Value = Option<Meta>> {
    let meta = select(&["1", "\"zwölf\"", "{}"][..]);
    option::weighted(0.3, meta.prop_map(|m| Meta::new(m, 100).unwrap()))
}

fn states() -> impl Strategy<Value = State> {
    let stay = (times(), metas()).prop_map(|(since, meta)| Membership { since, meta });
    let room = (
        select(&ROOMS[..]).prop_map(|r| RoomId::new(r).unwrap()),
        stay,
    );
    (vec(room, 0..3), any::<bool>(), metas()).prop_map(|(rooms, idle, meta)| State {
        activity: if idle {
            Activity::Away
        } else {
            Activity::Online
        },
        meta,
        rooms: rooms.into_iter().collect(),
        ..State::default()
    })
}

fn origins() -> impl Strategy<Value = Option<Origin>> {
    let origin = (0..9_u64, option::of(Just("00-11-22-01".into())));
    option::weighted(
        0.2,
        origin.prop_map(|(at_us, traceparent)| Origin { at_us, traceparent }),
    )
}

fn manual() -> impl Strategy<Value = Option<Manual>> {
    select(
        &[
            None,
            Some(Manual::Busy),
            Some(Manual::Invisible),
            Some(Manual::Invisible),
        ][..],
    )
}

fn visibility() -> impl Strategy<Value = Visibility> {
    select(
        &[
            Visibility::Everyone,
            Visibility::Contacts,
            Visibility::Nobody,
        ][..],
    )
}

fn carried() -> impl Strategy<Value = Option<Prefs>> {
    let prefs = (
        manual(),
        0..6_u64,
        visibility(),
        0..6_u64,
        0..9_u64,
        times(),
        times(),
    );
    let prefs = prefs.prop_map(
        |(status, sv, who, vv, contacts, frozen_at, shown_at)| Prefs {
            status: Versioned {
                value: status,
                version: sv,
            },
            visibility: Versioned {
                value: who,
                version: vv,
            },
            contacts,
            frozen_at,
            shown_at,
        },
    );
    option::weighted(0.2, prefs)
}

fn preferences() -> impl Strategy<Value = Preference> {
    let ids = vec(
        select(&USERS[..]).prop_map(|u| UserId::new(u).unwrap()),
        0..3,
    );
    prop_oneof![
        2 => manual().prop_map(Preference::Status),
        1 => visibility().prop_map(Preference::Visibility),
        1 => ids.prop_map(Preference::Contacts),
    ]
}

fn opens() -> impl Strategy<Value = Open> {
    let parts = (
        keys(),
        holders(),
        stamps(),
        states(),
        times(),
        carried(),
        origins(),
    );
    parts.prop_map(
        |(key, holder, stamp, state, opened_at, prefs, origin)| Open {
            key,
            holder,
            stamp,
            state,
            opened_at,
            prefs,
            origin,
        },
    )
}

fn touches() -> impl Strategy<Value = Touch> {
    let ttls = select(&[0, 500, 1_000, 3_000, 60_000][..]);
    let parts = (keys(), stamps(), states(), ttls, 1..4_usize, origins());
    parts.prop_map(|(key, stamp, state, ttl_ms, sessions_max, origin)| Touch {
        key,
        stamp,
        state,
        ttl_ms,
        sessions_max,
        origin,
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let by = || 0..CALLERS;
    let shard = || 0..SHARDS;
    let ago = || prop_oneof![4 => Just(0_usize), 1 => 1..4_usize];
    let shift = || prop_oneof![6 => Just(0_u64), 1 => Just(1_u64)];
    let limit = || select(&[0_usize, 1, 2, 3, 100][..]);
    let ttl = select(&[0, 500, 2_000, 50_000][..]);
    let lease = prop_oneof![3 => Just(Lease::Usual), 2 => ttl.prop_map(Lease::Drain)];
    let reasons = select(&Reason::ALL[..]);
    prop_oneof![
        14 => (by(), opens()).prop_map(|(by, op)| Step::Open(by, op)),
        6 => (by(), keys(), stamps(), states(), origins()).prop_map(
            |(by, key, stamp, state, origin)| Step::Alter(by, Alter { key, stamp, state, origin })
        ),
        4 => (by(), keys(), stamps(), reasons, origins()).prop_map(
            |(by, key, stamp, reason, origin)| {
                Step::Close(by, Close { key, stamp, reason, origin })
            }
        ),
        5 => (by(), vec(touches(), 0..5)).prop_map(|(by, ops)| Step::Touch(by, ops)),
        2 => (by(), users(), option::of(devices())).prop_map(|(by, u, d)| Step::Kick(by, u, d)),
        1 => (by(), users()).prop_map(|(by, user)| Step::Purge(by, user)),
        5 => (by(), shard(), holders(), lease).prop_map(|(by, s, h, l)| Step::Renew(by, s, h, l)),
        1 => (by(), shard()).prop_map(|(by, shard)| Step::Claim(by, shard)),
        3 => (by(), shard(), ago(), shift(), shift(), limit()).prop_map(
            |(caller, shard, ago, epoch, number, limit)| {
                Step::Sweep { caller, shard, ago, epoch, number, limit }
            }
        ),
        7 => (by(), shard(), limit()).prop_map(|(by, shard, most)| Step::Reap(by, shard, most)),
        4 => (by(), users(), preferences(), 1..6_u64).prop_map(
            |(by, user, what, version)| Step::Prefer(by, user, what, version)
        ),
        2 => (by(), shard(), 0..60_u64, select(&[0_usize, 2, 1_000][..])).prop_map(
            |(by, shard, after, most)| Step::Log(by, shard, after, most)
        ),
        1 => (by(), users()).prop_map(|(by, user)| Step::Read(by, user)),
        1 => (by(), shard(), 0..30_u64).prop_map(
            |(by, shard, n)| Step::Observe(by, shard, START + n * 1_000)
        ),
        5 => select(&CLOCK[..]).prop_map(Step::Clock),
        6 => (select(&CLOCK[..]), vec(any::<bool>(), HOLDERS.len())).prop_map(
            |(ms, alive)| Step::Beat(ms, alive)
        ),
        2 => (shard(), 0..6_usize).prop_map(|(shard, writes)| Step::LoseLast(shard, writes)),
        1 => (shard(), 1..6_usize).prop_map(|(shard, writes)| Step::Rewind(shard, writes)),
        1 => shard().prop_map(Step::FailOver),
        1 => shard().prop_map(Step::Flush),
        1 => by().prop_map(Step::Forget),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let settle = select(&[0, 0, 1_000, 3_000][..]);
    let gap = select(&[1_000, 10_000_000][..]);
    let length = select(&[1, 5, 20, 1_000][..]);
    let bytes = select(&[300, 1_200, 1 << 20, 1 << 20][..]);
    (settle, gap, length, bytes).prop_map(|(settle_ms, alive_gap_ms, log_len, log_max_bytes)| {
        Options {
            shards: SHARDS,
            holder_ms: 3_000,
            settle_ms,
            alive_gap_ms,
            tomb_ms: 2_000,
            max_deadline_ms: 8_000,
            retention_ms: 5_000,
            log_len,
            log_max_bytes,
            ..Options::default()
        }
    })
}

/// What a store is configured with, and 20 to 60 steps.
pub(crate) fn sequences() -> impl Strategy<Value = (Options, Vec<Taken>)> {
    (
        options(),
        vec((steps(), proptest::bool::weighted(0.1)), 20..=60),
    )
}

/// One lab on its way through a sequence.
pub(crate) struct Walk<'a> {
    lab: &'a dyn Lab,
    callers: Vec<Arc<dyn Store>>,
    /// Looks at everything, so that the callers need not.
    watcher: Arc<dyn Store>,
    fences: Vec<Fence>,
}

fn text(answer: impl Debug) -> String {
    format!("{answer:?}")
}

impl<'a> Walk<'a> {
    pub(crate) async fn new(lab: &'a dyn Lab) -> Self {
        let mut callers = Vec::new();
        for _ in 0..CALLERS {
            callers.push(lab.caller().await);
        }
        Self {
            lab,
            callers,
            watcher: lab.caller().await,
            fences: Vec::new(),
        }
    }

    /// Takes a step and tells what was answered.
    pub(crate) async fn take(&mut self, step: &Step) -> String {
        match step {
            Step::Open(by, op) => text(self.callers[*by].open(op.clone()).await),
            Step::Alter(by, op) => text(self.callers[*by].alter(op.clone()).await),
            Step::Close(by, op) => text(self.callers[*by].close(op.clone()).await),
            Step::Touch(by, ops) => text(self.callers[*by].touch(ops.clone()).await),
            Step::Kick(by, user, device) => {
                text(self.callers[*by].kick(user, device.as_ref()).await)
            }
            Step::Purge(by, user) => text(self.callers[*by].purge(user).await),
            Step::Renew(by, shard, holder, lease) => {
                text(self.callers[*by].renew(*shard, holder, *lease).await)
            }
            Step::Claim(by, shard) => text(self.claim(*by, *shard).await),
            Step::Sweep {
                caller,
                shard,
                ago,
                epoch,
                number,
                limit,
            } => {
                let last = self.fences.len().saturating_sub(1 + ago);
                let fence = self.fences.get(last).copied();
                let fence = fence.unwrap_or(Fence {
                    epoch: START,
                    number: 1,
                });
                let fence = Fence {
                    epoch: fence.epoch + epoch,
                    number: fence.number + number,
                };
                text(self.callers[*caller].sweep(*shard, fence, *limit).await)
            }
            Step::Reap(by, shard, limit) => {
                let fence = self.claim(*by, *shard).await;
                text(self.callers[*by].sweep(*shard, fence, *limit).await)
            }
            Step::Prefer(by, user, what, version) => {
                text(self.callers[*by].prefer(user, what.clone(), *version).await)
            }
            Step::Log(by, shard, after, limit) => {
                text(self.callers[*by].log(*shard, *after, *limit).await)
            }
            Step::Read(by, user) => text(self.callers[*by].read(std::slice::from_ref(user)).await),
            Step::Beat(ms, alive) => {
                self.lab.advance(*ms);
                self.beat(alive).await
            }
            accident => self.suffer(accident).await,
        }
    }

    async fn suffer(&mut self, accident: &Step) -> String {
        match accident {
            Step::Observe(by, shard, epoch) => self.callers[*by].observe(*shard, *epoch),
            Step::Clock(ms) => self.lab.advance(*ms),
            Step::LoseLast(shard, writes) => self.lab.lose_last(*shard, *writes).await,
            Step::Rewind(shard, writes) => self.lab.rewind(*shard, *writes).await,
            Step::FailOver(shard) => self.lab.fail_over(*shard).await,
            Step::Flush(shard) => self.lab.flush(*shard).await,
            Step::Forget(by) => self.callers[*by] = self.lab.caller().await,
            other => panic!("no accident: {other:?}"),
        }
        String::new()
    }

    async fn claim(&mut self, by: usize, shard: Shard) -> Fence {
        let fence = self.callers[by].claim(shard).await.unwrap().value;
        self.fences.push(fence);
        fence
    }

    async fn beat(&self, alive: &[bool]) -> String {
        let mut answers = String::new();
        for (name, _) in HOLDERS.iter().zip(alive).filter(|(_, alive)| **alive) {
            for shard in 0..SHARDS {
                let answer = self.callers[0]
                    .renew(shard, &incarnation(name), Lease::Usual)
                    .await;
                answers += &text(answer);
            }
        }
        answers
    }

    /// Everything that can be read.
    pub(crate) async fn look(&self) -> Vec<String> {
        let store = &*self.watcher;
        let mut seen = Vec::new();
        for shard in 0..SHARDS {
            seen.push(text(store.log(shard, 0, 1_000).await));
            seen.push(text(store.deadlines(shard, 1_000).await));
            for name in HOLDERS {
                seen.push(text(
                    store.held(shard, &incarnation(name), None, 1_000).await,
                ));
            }
            let mut people = store.scan(shard, 0).await.unwrap().people;
            people.sort_by(|a, b| a.0.cmp(&b.0));
            seen.push(text(people));
            let snapshot = load(store, shard).await.unwrap().map(|snapshot| {
                let mut people: Vec<_> = snapshot.people.into_iter().collect();
                people.sort_by(|a, b| a.0.cmp(&b.0));
                (snapshot.position, people)
            });
            seen.push(text(snapshot));
        }
        let users = USERS.map(user);
        seen.push(text(store.read(&users).await));
        for user in &users {
            seen.push(text(store.contacts(user).await));
        }
        seen
    }
}
