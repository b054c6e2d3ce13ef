//! What the simulation found once, as small as it gets.

// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use adsum_core::{
    Activity, Conn, DeviceId, Incarnation, Manual, NodeId, Preference, Prefs, Presence, SessionKey,
    Stamp, State, Status, TenantId, UserId, UserKey, Versioned,
    store::{Open, Store},
};
use adsum_dispatcher::{News, Tail};
use adsum_proto::Check;
use adsum_store::{Hooks, MemoryStore, Options};
use futures::FutureExt;

struct Shard {
    store: Arc<MemoryStore>,
    clock: Arc<AtomicU64>,
    rev: u64,
}

impl Shard {
    /// One shard that has settled.
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1_000_000));
        let hooks = Hooks {
            clock: Some(clock.clone()),
            nonce: Some(0),
        };
        let options = Options {
            shards: 1,
            settle_ms: 1_000,
            ..Options::default()
        };
        let store = Arc::new(MemoryStore::new(options, hooks));
        let shard = Self {
            store,
            clock,
            rev: 0,
        };
        let fence = now(shard.store.claim(0)).value;
        shard.clock.fetch_add(1_000, Relaxed);
        now(shard.store.sweep(0, fence, 1));
        shard
    }

    fn user() -> UserKey {
        UserKey::new(TenantId::new("t").unwrap(), UserId::new("ann").unwrap())
    }

    fn say(&mut self, activity: Activity) {
        self.rev += 1;
        let open = Open {
            key: SessionKey::new(Self::user(), DeviceId::new("d").unwrap()),
            holder: Incarnation::of(&NodeId::new("g").unwrap(), 1).unwrap(),
            stamp: Stamp {
                conn: Conn::new(1).unwrap(),
                rev: self.rev,
            },
            state: State {
                activity,
                ..State::default()
            },
            opened_at: 0,
            prefs: None,
            origin: None,
        };
        now(self.store.open(open));
    }

    fn tail(&self) -> Tail {
        Tail::new(Arc::new(self.store.handle()), 0, 100)
    }
}

fn now<T>(answer: impl Future<Output = adsum_core::store::Result<T>>) -> T {
    answer.now_or_never().unwrap().unwrap()
}

/// The statuses that a look at the shard brings.
fn statuses(tail: &mut Tail) -> Vec<Status> {
    let (News::Current(states) | News::Whole(states)) = now(tail.poll()) else {
        return Vec::new();
    };
    let here = states.iter().filter_map(|s| match &s.state.presence {
        Presence::Here(item) => Some(item.status),
        Presence::Absent { .. } => None,
    });
    here.collect()
}

/// A dispatcher that had not heard the last change before a failover that lost nothing used to
/// forget it until the new epoch had settled, and told the older state under newer numbers as
/// soon as anything else of that user changed.
#[test]
fn what_the_old_epoch_said_last_is_heard_before_the_new_one() {
    let mut shard = Shard::new();
    shard.say(Activity::Online);
    let mut tail = shard.tail();
    statuses(&mut tail);
    shard.say(Activity::Away);
    shard.store.fail_over(0);
    // Somebody else's write begins the new epoch.
    now(shard.store.claim(0));
    assert_eq!(statuses(&mut tail), [Status::Away; 2], "user and tenant");
    let list = Preference::Contacts(Vec::new());
    now(shard.store.prefer(&Shard::user(), list, 1));
    assert_eq!(
        statuses(&mut tail),
        [Status::Away; 2],
        "not what was before"
    );
    let busy = Preference::Status(Some(Manual::Busy));
    now(shard.store.prefer(&Shard::user(), busy, 2));
    assert_eq!(statuses(&mut tail), [Status::Busy; 2]);
}

/// What a burst of pushes brought before a hole used to be in the view and told to nobody.
#[test]
fn what_came_before_a_hole_is_told() {
    let mut shard = Shard::new();
    shard.say(Activity::Online);
    let mut tail = shard.tail();
    statuses(&mut tail);
    let read = now(shard.store.log(0, 0, 0)).position.unwrap().seq;
    shard.say(Activity::Away);
    // Somebody else's, so that nothing tells of Ann again.
    let bob = UserKey::new(TenantId::new("t").unwrap(), UserId::new("bob").unwrap());
    for version in [1, 2] {
        now(shard
            .store
            .prefer(&bob, Preference::Contacts(Vec::new()), version));
    }
    let mut burst = now(shard.store.log(0, read, 10)).entries;
    burst.remove(1);
    assert!(tail.push(&burst).is_none(), "there is a hole");
    assert_eq!(statuses(&mut tail), [Status::Away; 2]);
}

/// A gateway that did not take a preference itself used not to know it, and could not carry it when
/// everything was lost.
#[test]
fn whoever_holds_a_session_is_told_what_its_user_prefers_now() {
    let mut shard = Shard::new();
    shard.say(Activity::Online);
    let mut tail = shard.tail();
    statuses(&mut tail);
    assert_eq!(tail.checks(), []);
    let busy = Preference::Status(Some(Manual::Busy));
    now(shard.store.prefer(&Shard::user(), busy, 1));
    statuses(&mut tail);
    let status = Versioned {
        value: Some(Manual::Busy),
        version: 1,
    };
    let told = Check {
        session: SessionKey::new(Shard::user(), DeviceId::new("d").unwrap()),
        prefs: Some(Prefs {
            status,
            ..Prefs::default()
        }),
    };
    assert_eq!(tail.checks(), [told]);
}
