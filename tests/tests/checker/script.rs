//! Histories written by hand.

use adsum_core::{Activity, Reason, Status, Version};
use adsum_tests::{
    checker::{Bounds, Invariant, check},
    history::{Event, Fault, Gone, History, Leaving, Said, Seen, Setting, View},
};

/// Ann has one device; a stranger watches the tenant through a gateway.
pub(crate) const WATCHER: &str = "w";

const BOUNDS: Bounds = Bounds {
    renew_ms: 5_000,
    holder_ms: 30_000,
    settle_ms: 45_000,
    ttl_ms: 45_000,
    linger_ms: 10_000,
    window_ms: 20_000,
    lease_ms: 5_000,
    told_ms: 4_000,
    slack_ms: 0,
};

pub(crate) struct Script(History);

pub(crate) fn said(mark: u64) -> Said {
    Said {
        activity: Activity::Online,
        rooms: Vec::new(),
        mark,
    }
}

pub(crate) fn seen(seq: u64, mark: u64) -> Seen {
    Seen {
        user: "ann".to_owned(),
        status: Status::Online,
        kinds: vec!["phone".to_owned()],
        mark: Some(mark),
        v: Version::new(1, seq),
    }
}

impl Script {
    /// The watcher is there from the beginning, and sees nobody.
    pub(crate) fn new() -> Self {
        let view = View {
            gateway: "g1".to_owned(),
            topic: "tenant".to_owned(),
            eyes: None,
            all: false,
        };
        let watcher = WATCHER.to_owned();
        let script = Self(History::new(7)).at(0, Event::Watching { watcher, view });
        script.state(0, &[])
    }

    pub(crate) fn at(mut self, at: u64, event: Event) -> Self {
        self.0.note(at, event);
        self
    }

    pub(crate) fn state(self, at: u64, members: &[Seen]) -> Self {
        let (watcher, members) = (WATCHER.to_owned(), members.to_vec());
        let settling = false;
        self.at(
            at,
            Event::State {
                watcher,
                members,
                settling,
            },
        )
    }

    /// Ann connects, is recorded, and the watcher is told.
    pub(crate) fn ann_comes(self, at: u64, seq: u64) -> Self {
        self.hello(at).came(at + 20, seq)
    }

    pub(crate) fn hello(self, at: u64) -> Self {
        let (user, device) = ("ann".to_owned(), "phone".to_owned());
        let hello = Event::Hello {
            user: user.clone(),
            device: device.clone(),
            conn: at + 1,
            gateway: Some("g0".to_owned()),
            said: said(1),
        };
        let said = said(1);
        self.at(at, hello)
            .at(at + 10, Event::Recorded { user, device, said })
    }

    pub(crate) fn ann_goes(self, at: u64, how: Gone) -> Self {
        let (user, device) = ("ann".to_owned(), "phone".to_owned());
        self.at(at, Event::Gone { user, device, how })
    }

    pub(crate) fn came(self, at: u64, seq: u64) -> Self {
        self.diff(at, vec![seen(seq, 1)], vec![], vec![])
    }

    pub(crate) fn updated(self, at: u64, seen: Seen) -> Self {
        self.diff(at, vec![], vec![seen], vec![])
    }

    pub(crate) fn left(self, at: u64, seq: u64) -> Self {
        let leave = Leaving {
            user: "ann".to_owned(),
            reason: Some(Reason::Leave),
            v: Version::new(1, seq),
        };
        self.diff(at, vec![], vec![], vec![leave])
    }

    fn diff(self, at: u64, joins: Vec<Seen>, updates: Vec<Seen>, leaves: Vec<Leaving>) -> Self {
        let watcher = WATCHER.to_owned();
        let diff = Event::Diff {
            watcher,
            joins,
            updates,
            leaves,
        };
        self.at(at, diff)
    }

    pub(crate) fn set(self, at: u64, setting: Setting) -> Self {
        let user = "ann".to_owned();
        let asked = Event::Asked {
            user: user.clone(),
            setting,
        };
        self.at(at, asked).at(at + 5, Event::Set { user })
    }

    pub(crate) fn broke(self, at: u64, fault: Fault, lasts: u64) -> Self {
        self.at(at, Event::Broke { fault, lasts })
    }

    pub(crate) fn verdict(self) -> Vec<Invariant> {
        let found = check(&self.0, &BOUNDS);
        found.into_iter().map(|v| v.invariant).collect()
    }

    pub(crate) fn stories(self) -> Vec<String> {
        let found = check(&self.0, &BOUNDS);
        found.iter().map(ToString::to_string).collect()
    }
}
