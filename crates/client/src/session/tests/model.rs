//! Any sequence of states, diffs, losses and reconnects: the events, applied, are the roster, and
//! nobody joins twice. Also through a queue that is far too small.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Events, queue::Queue};

#[derive(Debug, Clone)]
enum Step {
    /// Somebody comes, or changes; told, unless nobody listens.
    Put(u8, u8),
    /// A new number, the same look.
    Touch(u8),
    Gone(u8),
    /// A change whose diff gets lost on the way.
    Lost(u8),
    Break,
    Reconnect,
    /// The old connection goes on until the new one stands.
    Handover(u8),
    /// The state, unasked: all, or the first so many of it.
    State,
    Part(u8),
    Mode(bool),
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let user = 0..6_u8;
    prop_oneof![
        4 => (user.clone(), 0..3_u8).prop_map(|(u, m)| Step::Put(u, m)),
        1 => user.clone().prop_map(Step::Touch),
        2 => user.clone().prop_map(Step::Gone),
        1 => user.clone().prop_map(Step::Lost),
        1 => Just(Step::Break),
        2 => Just(Step::Reconnect),
        1 => user.clone().prop_map(Step::Handover),
        1 => Just(Step::State),
        1 => (0..4_u8).prop_map(Step::Part),
        1 => any::<bool>().prop_map(Step::Mode),
        2 => (0..8_u8).prop_map(Step::Read),
    ]
}

/// The truth, the server that tells it, and the app that listens.
struct World {
    desk: Desk,
    truth: BTreeMap<String, Item>,
    online: bool,
    offset: u64,
    version: u64,
    count_mode: bool,
    queue: Queue,
    events: Events,
    app: BTreeMap<String, Item>,
}

impl World {
    fn new(capacity: usize) -> Self {
        let (queue, events) = crate::queue::queue(capacity);
        Self {
            desk: Desk::watching(),
            truth: BTreeMap::new(),
            online: false,
            offset: 0,
            version: 0,
            count_mode: false,
            queue,
            events,
            app: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(user, meta) => {
                let diff = self.put(user, meta);
                self.tell(diff);
            }
            Step::Touch(user) => {
                let name = format!("u{user}");
                self.version += 1;
                if let Some(item) = self.truth.get_mut(&name) {
                    item.v = Version::new(1, self.version);
                    let item = item.clone();
                    self.tell((vec![item], vec![]));
                }
            }
            Step::Gone(user) => {
                let name = format!("u{user}");
                if self.truth.remove(&name).is_some() {
                    self.tell((vec![], vec![left(&name)]));
                }
            }
            Step::Lost(user) => {
                self.put(user, 9);
                self.offset += 1;
            }
            Step::Break => self.go_offline(),
            Step::Reconnect => {
                self.go_offline();
                self.connect(None);
            }
            Step::Handover(user) => self.connect(Some(user)),
            Step::State => self.unasked(usize::MAX),
            Step::Part(n) => self.unasked(usize::from(n)),
            Step::Mode(count) => {
                self.count_mode = count;
                self.unasked(usize::MAX);
            }
            Step::Read(n) => self.read(usize::from(n)),
        }
        self.answer();
        self.queue.extend(self.desk.session.take_events());
    }

    fn put(&mut self, user: u8, meta: u8) -> (Vec<Item>, Vec<Left>) {
        self.version += 1;
        let mut item = item(&format!("u{user}"), self.version);
        item.meta = Some(Meta::trusted(meta.to_string()));
        self.truth.insert(item.user.to_string(), item.clone());
        (vec![item], vec![])
    }

    fn tell(&mut self, (joins, leaves): (Vec<Item>, Vec<Left>)) {
        if self.online {
            self.offset += 1;
            let diff = ServerBody::PresenceDiff(PresenceDiff {
                topic: lobby(),
                offset: self.offset,
                joins: vec![],
                leaves,
                updates: joins,
                count: None,
                stale: None,
            });
            self.desk.news(diff);
        }
    }

    fn go_offline(&mut self) {
        self.desk.session.dropped();
        self.online = false;
    }

    fn connect(&mut self, meanwhile: Option<u8>) {
        let hello = self.desk.hello();
        if let Some(user) = meanwhile {
            self.step(Step::Put(user, 7));
        }
        self.desk.welcome(&hello);
        self.online = true;
        self.offset = 0;
        let digest = hello.watch[0].digest;
        self.state(None, digest, usize::MAX);
    }

    fn unasked(&mut self, at_most: usize) {
        if self.online {
            self.state(None, None, at_most);
        }
    }

    fn state(&mut self, r#ref: Option<Ref>, digest: Option<adsum_core::Digest>, at_most: usize) {
        self.offset += 1;
        let mut truth = adsum_core::Digest::default();
        self.truth.values().for_each(|i| truth.add(&i.user, i.v));
        let mode = [Mode::Members, Mode::Count][usize::from(self.count_mode)];
        let items: Vec<_> = self.truth.values().take(at_most).cloned().collect();
        let members = Members {
            complete: items.len() == self.truth.len(),
            members: items,
            count: Some(self.truth.len() as u64),
        };
        let unchanged = digest == Some(truth) && !self.count_mode;
        let state = PresenceState {
            topic: lobby(),
            offset: self.offset,
            mode,
            members: (!unchanged).then_some(members),
            stale: false,
        };
        self.desk.reply(r#ref, ServerBody::PresenceState(state));
    }

    /// Answers whatever the session asked.
    fn answer(&mut self) {
        for _ in 0..3 {
            for frame in self.desk.sent() {
                let digest = match frame.body {
                    ClientBody::Watch(watch) => watch.digest,
                    other => panic!("{other:?}"),
                };
                if self.online {
                    self.state(frame.r#ref, digest, usize::MAX);
                }
            }
        }
    }

    fn read(&mut self, at_most: usize) {
        for _ in 0..at_most {
            match self.events.try_next() {
                Some(event) => self.apply(event),
                None => return,
            }
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Joined { item, .. } => {
                let before = self.app.insert(item.user.to_string(), (*item).clone());
                assert_eq!(before, None, "a join without a leave");
            }
            Event::Updated { item, .. } => {
                let before = self.app.insert(item.user.to_string(), (*item).clone());
                assert!(before.is_some(), "an update of nobody");
            }
            Event::Left { left, .. } => {
                let before = self.app.remove(left.user.as_str());
                assert!(before.is_some(), "a leave of nobody");
            }
            Event::Synced {
                mode: Mode::Count, ..
            } => self.app.clear(),
            _ => {}
        }
    }

    /// What can be seen of a picture.
    fn looks<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<(String, Option<Meta>)> {
        items
            .map(|i| (i.user.to_string(), i.meta.clone()))
            .collect()
    }

    fn check(&mut self) {
        self.read(usize::MAX);
        if !self.desk.session.online() || self.count_mode {
            return;
        }
        let view = self.desk.book.view(&lobby()).unwrap();
        let roster = Self::looks(view.members.iter().map(|i| &**i));
        assert_eq!(Self::looks(self.app.values()), roster);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn events_applied_are_the_roster(
        steps in proptest::collection::vec(step(), 0..60),
        capacity in prop_oneof![Just(2_usize), Just(1000)],
    ) {
        let mut world = World::new(capacity);
        world.connect(None);
        let eager = capacity == 1000;
        for step in steps {
            world.step(step);
            if eager {
                world.check();
            }
        }
        world.step(Step::Mode(false));
        world.step(Step::Reconnect);
        world.check();
        let view = world.desk.book.view(&lobby()).unwrap();
        let known: Vec<_> = view.members.iter().map(|i| (**i).clone()).collect();
        let truth: Vec<_> = world.truth.values().cloned().collect();
        prop_assert_eq!(known, truth);
        prop_assert!(view.complete);
    }
}
