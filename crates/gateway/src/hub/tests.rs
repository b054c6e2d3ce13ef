//! Whatever happens in a topic, whoever watches it with whatever eyes ends up with just what they
//! may see, and is never told of a join without a leave in between.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use adsum_core::{Diff, Item, Kind, Leave, Reason, Status, UserId, Version, Visibility};
use adsum_proto::client::Mode;
use proptest::prelude::*;

use super::{
    HubConfig,
    board::Board,
    told::{Delivery, Entry, TopicState},
};
use crate::sight::Sight;

const USERS: [&str; 6] = ["ann", "bob", "cat", "dan", "eve", "fay"];

fn user(at: usize) -> UserId {
    UserId::new(USERS[at % USERS.len()]).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Put(usize, Status, Visibility, u64),
    Leave(usize),
    /// The list of this user in this version becomes known: who is on it.
    List(usize, u64, Vec<usize>),
    Flush(Mode),
    Watch(usize, bool, Mode),
    Restate(usize),
    Stale(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let status = prop_oneof![
        Just(Status::Online),
        Just(Status::Away),
        Just(Status::Invisible)
    ];
    let visibility = prop_oneof![
        3 => Just(Visibility::Everyone),
        2 => Just(Visibility::Contacts),
        1 => Just(Visibility::Nobody)
    ];
    let mode = prop_oneof![3 => Just(Mode::Members), 1 => Just(Mode::Interval)];
    let step = prop_oneof![
        8 => (0..6usize, status, visibility, 0..3u64).prop_map(|(u, s, v, c)| Step::Put(u, s, v, c)),
        3 => (0..6usize).prop_map(Step::Leave),
        2 => (0..6usize, 0..3u64, prop::collection::vec(0..6usize, 0..3))
            .prop_map(|(u, v, l)| Step::List(u, v, l)),
        5 => mode.clone().prop_map(Step::Flush),
        2 => (0..7usize, any::<bool>(), mode).prop_map(|(u, a, m)| Step::Watch(u, a, m)),
        1 => (0..8usize).prop_map(Step::Restate),
        1 => any::<bool>().prop_map(Step::Stale),
    ];
    prop::collection::vec(step, 1..80)
}

struct Watcher {
    sight: Sight,
    mode: Mode,
    seen: BTreeSet<UserId>,
    knows: BTreeMap<UserId, Arc<Item>>,
    stale: bool,
}

impl Watcher {
    fn state(&mut self, state: &TopicState) {
        self.stale = state.stale;
        let items = state.members.iter().map(|told| &told.item);
        self.knows = items.map(|i| (i.user.clone(), Arc::clone(i))).collect();
    }

    fn hear(&mut self, delivery: &Delivery) {
        if let Some(stale) = delivery.stale {
            assert_ne!(stale, self.stale, "told twice");
            self.stale = stale;
        }
        for entry in &delivery.entries {
            let known = self.knows.contains_key(entry.user());
            match entry {
                Entry::Join(told) => {
                    assert!(!known, "joined twice: {:?}", told.item);
                    self.knows
                        .insert(told.item.user.clone(), Arc::clone(&told.item));
                }
                Entry::Update(told) => {
                    assert!(known, "updated out of nothing: {:?}", told.item);
                    self.knows
                        .insert(told.item.user.clone(), Arc::clone(&told.item));
                }
                Entry::Leave(_) => {
                    assert!(known, "left twice: {:?}", entry.user());
                    self.knows.remove(entry.user());
                }
            }
        }
    }
}

type Lists = HashMap<(UserId, u64), Arc<HashSet<UserId>>>;

fn run(steps: Vec<Step>) {
    let mut board = Board::new(HubConfig::default(), true);
    let mut lists = Lists::new();
    let mut truth: BTreeMap<UserId, Arc<Item>> = BTreeMap::new();
    let mut watchers: Vec<Watcher> = Vec::new();
    let (mut seq, mut now_stale) = (0, false);
    board.set_complete(true);
    for step in steps {
        seq += 1;
        match step {
            Step::Put(u, status, visibility, contacts) => {
                let item = Arc::new(item(user(u), status, visibility, contacts, seq));
                let mut diff = Diff::default();
                match truth.insert(item.user.clone(), Arc::clone(&item)) {
                    None => diff.joins.push(item),
                    Some(_) => diff.updates.push(item),
                }
                board.take(&diff, seq);
            }
            Step::Leave(u) => {
                if let Some(item) = truth.remove(&user(u)) {
                    let leave = Leave {
                        item,
                        reason: Some(Reason::Leave),
                        last_seen: seq,
                        version: Version { epoch: 1, seq },
                    };
                    let leaves = vec![leave];
                    board.take(
                        &Diff {
                            leaves,
                            ..Diff::default()
                        },
                        seq,
                    );
                }
            }
            Step::List(u, version, listed) => {
                let listed = listed.into_iter().map(user).collect();
                // A list of one version never changes.
                lists.entry((user(u), version)).or_insert(Arc::new(listed));
                board.judge_again(&user(u));
            }
            Step::Flush(mode) => flush(&mut board, &mut watchers, &lists, mode, seq),
            Step::Watch(u, all, mode) => {
                let sight = Sight {
                    user: (u < 6).then(|| user(u)),
                    all,
                };
                board.enter(mode);
                watchers.push(Watcher {
                    sight,
                    mode,
                    seen: BTreeSet::new(),
                    knows: BTreeMap::new(),
                    stale: false,
                });
                restate(&mut board, watchers.last_mut().unwrap(), &lists);
            }
            Step::Restate(at) => {
                if let Some(watcher) = watchers.get_mut(at) {
                    restate(&mut board, watcher, &lists);
                }
            }
            Step::Stale(stale) => {
                board.set_stale(stale);
                now_stale = stale;
            }
        }
    }
    for mode in [Mode::Members, Mode::Interval] {
        flush(&mut board, &mut watchers, &lists, mode, seq);
    }
    for watcher in &watchers {
        let may = truth.values().filter(|item| {
            watcher.sight.sees(item, |user, version| {
                lists.get(&(user.clone(), version)).cloned()
            })
        });
        let may: Vec<_> = may.map(|i| (&i.user, i.status, i.since)).collect();
        let knows = watcher.knows.values();
        let knows: Vec<_> = knows.map(|i| (&i.user, i.status, i.since)).collect();
        assert_eq!(knows, may, "{:?}", watcher.sight);
        assert_eq!(watcher.stale, now_stale, "{:?}", watcher.sight);
    }
}

fn restate(board: &mut Board, watcher: &mut Watcher, lists: &Lists) {
    let (state, seen) = board.state(watcher.mode, &watcher.sight, &|user, version| {
        lists.get(&(user.clone(), version)).cloned()
    });
    watcher.seen = seen;
    watcher.state(&state);
}

fn flush(board: &mut Board, watchers: &mut [Watcher], lists: &Lists, mode: Mode, now: u64) {
    if !board.pending(mode) {
        return;
    }
    let flush = board.flush(mode, now);
    for watcher in watchers.iter_mut().filter(|w| w.mode == mode) {
        let told = flush.of(&watcher.sight, &mut watcher.seen, &|user, version| {
            lists.get(&(user.clone(), version)).cloned()
        });
        if let Some(delivery) = told {
            watcher.hear(&delivery);
        }
    }
}

fn item(user: UserId, status: Status, visibility: Visibility, contacts: u64, seq: u64) -> Item {
    Item {
        user,
        status,
        devices: vec![Kind::default()],
        meta: None,
        since: 7,
        v: Version { epoch: 1, seq },
        visibility,
        contacts,
        frozen_at: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn everybody_ends_up_with_what_they_may_see(steps in steps()) {
        run(steps);
    }
}

fn config() -> HubConfig {
    HubConfig {
        interval_above: 10,
        count_above: 20,
        sample: 3,
        ..HubConfig::default()
    }
}

fn crowd(board: &mut Board, people: std::ops::Range<usize>) {
    let join = |n: usize| {
        let user = UserId::new(format!("u{n:03}")).unwrap();
        Arc::new(item(
            user,
            Status::Online,
            Visibility::Everyone,
            0,
            n as u64,
        ))
    };
    let joins = people.map(join).collect();
    board.take(
        &Diff {
            joins,
            ..Diff::default()
        },
        0,
    );
}

fn thin(board: &mut Board, people: std::ops::Range<usize>) {
    let leave = |n: usize| Leave {
        item: Arc::new(item(
            UserId::new(format!("u{n:03}")).unwrap(),
            Status::Online,
            Visibility::Everyone,
            0,
            0,
        )),
        reason: None,
        last_seen: 0,
        version: Version::default(),
    };
    let leaves = people.map(leave).collect();
    board.take(
        &Diff {
            leaves,
            ..Diff::default()
        },
        0,
    );
}

#[test]
fn the_ladder_is_climbed_and_left_with_hysteresis() {
    let mut board = Board::new(config(), true);
    crowd(&mut board, 0..10);
    assert_eq!(board.mode(), Mode::Members);
    crowd(&mut board, 10..11);
    assert_eq!(board.mode(), Mode::Interval);
    thin(&mut board, 9..11);
    assert_eq!(board.mode(), Mode::Members);
    crowd(&mut board, 9..21);
    assert_eq!(board.mode(), Mode::Count);
    thin(&mut board, 19..21);
    assert_eq!(board.mode(), Mode::Count, "19 is not 10 % below 20");
    thin(&mut board, 18..19);
    assert_eq!(board.mode(), Mode::Interval);
}

#[test]
fn who_hides_neither_counts_nor_lifts_the_ladder() {
    let mut board = Board::new(config(), true);
    crowd(&mut board, 0..10);
    let hidden = UserId::new("ghost").unwrap();
    let ghost = Arc::new(item(hidden, Status::Invisible, Visibility::Everyone, 0, 1));
    board.take(
        &Diff {
            joins: vec![ghost],
            ..Diff::default()
        },
        0,
    );
    assert_eq!(board.mode(), Mode::Members);
    let stranger = Sight {
        user: None,
        all: false,
    };
    let (state, _) = board.state(Mode::Members, &stranger, &|_, _| None);
    assert_eq!((state.count, state.members.len()), (Some(10), 10));
    let (sample, _) = board.state(Mode::Count, &stranger, &|_, _| None);
    assert_eq!((sample.count, sample.members.len()), (Some(10), 3));
}

#[test]
fn a_state_is_complete_once_its_group_was_told_every_part() {
    let stranger = Sight {
        user: None,
        all: false,
    };
    let mut board = Board::new(config(), true);
    crowd(&mut board, 0..3);
    board.enter(Mode::Members);
    crowd(&mut board, 3..5);
    board.set_complete(true);
    // The last part is there, but this group has not been told of it yet.
    let (state, _) = board.state(Mode::Members, &stranger, &|_, _| None);
    assert_eq!((state.complete, state.members.len()), (false, 3));
    assert!(!board.is_complete(Mode::Members));
    // A group that begins now is told everything at once.
    board.enter(Mode::Interval);
    let (state, _) = board.state(Mode::Interval, &stranger, &|_, _| None);
    assert_eq!((state.complete, state.members.len()), (true, 5));
    board.flush(Mode::Members, 0);
    assert!(board.is_complete(Mode::Members));
    let (state, _) = board.state(Mode::Members, &stranger, &|_, _| None);
    assert_eq!((state.complete, state.members.len()), (true, 5));
    // What changes from now on makes nothing incomplete.
    crowd(&mut board, 5..6);
    board.set_complete(true);
    let (state, _) = board.state(Mode::Members, &stranger, &|_, _| None);
    assert_eq!((state.complete, state.members.len()), (true, 5));
}

#[test]
fn a_state_is_known_by_its_digest() {
    let mut board = Board::new(config(), true);
    board.set_complete(true);
    crowd(&mut board, 0..3);
    let stranger = Sight {
        user: None,
        all: false,
    };
    let (state, _) = board.state(Mode::Members, &stranger, &|_, _| None);
    assert!(state.known(Some(state.digest)));
    assert!(!state.known(None));
    crowd(&mut board, 3..4);
    // Nobody watched, so the newest picture is what a newcomer is told.
    board.enter(Mode::Members);
    board.flush(Mode::Members, 0);
    let (later, _) = board.state(Mode::Members, &stranger, &|_, _| None);
    assert!(!later.known(Some(state.digest)));
}
