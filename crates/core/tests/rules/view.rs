//! A view says what a shard's truth says, whatever path it took there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::common::{Step, Truth, device, owner, room, session_in, step};
use adsum_core::{
    Change, Event, Item, Prefs, Presence, TenantId, Topic, TopicState, UserId, UserKey, Version,
    Versioned, View, Visibility, states_of,
};
use proptest::prelude::*;

type Key = (TenantId, Topic, UserId);
type Picture = BTreeMap<Key, Item>;

const HISTORY: usize = 1000;

fn look(item: &Item) -> Item {
    Item {
        v: Version::ZERO,
        ..item.clone()
    }
}

/// Every topic of the truth, built from scratch, without numbers of changes.
fn picture(truth: &Truth) -> Picture {
    let mut all = Picture::new();
    for (key, person) in &truth.people {
        let mut put = |topic, item: Item| {
            all.insert((key.tenant.clone(), topic, key.user.clone()), look(&item));
        };
        for n in 0..3 {
            if let Some(item) = person.item_in(&key.user, &room(n)) {
                put(Topic::Room(room(n)), (*item).clone());
            }
        }
        let item = person.item(&key.user).unwrap();
        put(Topic::User(key.user.clone()), (*item).clone());
        put(Topic::Tenant, (*item).clone());
    }
    all
}

fn topics() -> BTreeSet<(TenantId, Topic)> {
    let mut all = BTreeSet::new();
    for key in (0..4).map(owner) {
        all.insert((key.tenant.clone(), Topic::Tenant));
        all.insert((key.tenant.clone(), Topic::User(key.user)));
        all.extend((0..3).map(|n| (key.tenant.clone(), Topic::Room(room(n)))));
    }
    all
}

fn picture_of(view: &View) -> Picture {
    let mut all = Picture::new();
    for (tenant, topic) in topics() {
        for (item, _) in view.members(&tenant, &topic) {
            all.insert(
                (tenant.clone(), topic.clone(), item.user.clone()),
                look(&item),
            );
        }
    }
    all
}

/// Lays states over a picture as a receiver would.
fn lay(over: &mut Picture, states: &[TopicState]) {
    for s in states {
        let key = (s.tenant.clone(), s.topic.clone(), s.user.clone());
        match &s.presence {
            Presence::Here(item) => over.insert(key, look(item)),
            Presence::Absent { .. } => over.remove(&key),
        };
    }
}

fn differences(a: &Picture, b: &Picture) -> BTreeSet<Key> {
    let keys: BTreeSet<_> = a.keys().chain(b.keys()).cloned().collect();
    keys.into_iter().filter(|k| a.get(k) != b.get(k)).collect()
}

fn keys(states: &[TopicState]) -> BTreeSet<Key> {
    states
        .iter()
        .map(|s| (s.tenant.clone(), s.topic.clone(), s.user.clone()))
        .collect()
}

/// Whether a change is all there is to say of its owner.
fn is_whole(truth: &Truth, change: &Change) -> bool {
    let Event::Session { owner, after, .. } = &change.event else {
        return false;
    };
    let person = truth.people.get(owner);
    person.map_or(0, |p| p.sessions.len()) == usize::from(after.is_some())
}

fn put(who: u8, d: u8, rooms: &[u8]) -> Step {
    let rooms = rooms.iter().map(|r| (*r, None)).collect();
    Step::Put {
        who,
        device: d,
        rooms,
        away: false,
        meta: None,
    }
}

fn close(who: u8, device: u8) -> Step {
    Step::Drop {
        who,
        device,
        reason: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn applying_changes_equals_building_from_scratch_and_tells_just_what_changed(
        steps in prop::collection::vec(step(), 1..60), loaded_at in 0..60_usize,
    ) {
        let mut truth = Truth::default();
        steps.iter().take(loaded_at).for_each(|s| drop(truth.step(s)));
        let mut view = View::new(truth.snapshot(), HISTORY);
        prop_assert_eq!(picture_of(&view), picture(&truth));
        for step in steps.iter().skip(loaded_at) {
            let before = picture(&truth);
            let Some(change) = truth.step(step) else { continue };
            let states = view.apply(&change);
            let after = picture(&truth);
            prop_assert_eq!(picture_of(&view), after.clone());
            if is_whole(&truth, &change) {
                let whole = states_of(&change);
                prop_assert!(states.iter().all(|state| whole.contains(state)));
                let mut laid = before.clone();
                lay(&mut laid, &whole);
                prop_assert_eq!(laid, after.clone(), "the rest is as it was");
            }
            prop_assert_eq!(keys(&states), differences(&before, &after));
            prop_assert_eq!(keys(&states).len(), states.len(), "each topic and user once");
            prop_assert!(states.iter().all(|s| s.version == change.version));
            prop_assert!(view.apply(&change).is_empty(), "a change taken twice does nothing");
        }
    }

    #[test]
    fn catch_up_brings_any_cursor_to_the_present(
        steps in prop::collection::vec(step(), 1..50), seen in 0..50_usize, history in 1..40_usize,
    ) {
        let mut truth = Truth::default();
        let mut view = View::new(truth.snapshot(), history);
        let mut then = (truth.version, picture(&truth));
        for (n, step) in steps.iter().enumerate() {
            if let Some(change) = truth.step(step) {
                view.apply(&change);
            }
            if n == seen {
                then = (truth.version, picture(&truth));
            }
        }
        let (cursor, mut known) = then;
        if let Some(states) = view.since(cursor, |_, _| true) {
            prop_assert_eq!(keys(&states).len(), states.len(), "each topic and user once");
            lay(&mut known, &states);
            prop_assert_eq!(known, picture(&truth));
        } else {
            prop_assert!(history < steps.len() * 16, "a long history knows everything");
        }
    }

    #[test]
    fn reconcile_yields_exactly_the_difference_of_two_pictures(
        first in prop::collection::vec(step(), 0..40), missed in prop::collection::vec(step(), 0..40),
    ) {
        let mut truth = Truth::default();
        first.iter().for_each(|s| drop(truth.step(s)));
        let mut view = View::new(truth.snapshot(), HISTORY);
        let before = picture(&truth);
        missed.iter().for_each(|s| drop(truth.step(s)));
        let states = view.reconcile(truth.snapshot());
        prop_assert_eq!(keys(&states), differences(&before, &picture(&truth)));
        prop_assert_eq!(keys(&states).len(), states.len());
        prop_assert_eq!(picture_of(&view), picture(&truth));
    }

    #[test]
    fn a_new_epoch_tells_no_absence_before_it_has_settled_and_all_of_them_after(
        first in prop::collection::vec(step(), 1..40),
        lost in prop::collection::vec(step(), 0..6),
        settling in prop::collection::vec(step(), 0..30),
    ) {
        let mut truth = Truth::default();
        first.iter().for_each(|s| drop(truth.step(s)));
        let mut view = View::new(truth.snapshot(), HISTORY);
        let mut known = picture(&truth);
        // The view saw changes that the failover then lost.
        let mut doomed = truth.clone();
        for change in lost.iter().filter_map(|s| doomed.step(s)) {
            lay(&mut known, &view.apply(&change));
        }
        let epoch = truth.step(&Step::Epoch).unwrap();
        prop_assert!(view.apply(&epoch).is_empty());
        prop_assert!(view.settling());
        prop_assert_eq!(view.since(truth.version, |_, _| true), None);
        for change in settling.iter().filter_map(|s| truth.step(s)) {
            let states = view.apply(&change);
            let here = |s: &TopicState| matches!(s.presence, Presence::Here(_));
            prop_assert!(states.iter().all(here) || hidden(&change));
            lay(&mut known, &states);
        }
        let settled = truth.step(&Step::Settled).unwrap();
        prop_assert!(view.apply(&settled).is_empty());
        lay(&mut known, &view.reconcile(truth.snapshot()));
        prop_assert!(!view.settling());
        prop_assert_eq!(picture_of(&view), picture(&truth));
        prop_assert_eq!(known, picture(&truth), "what a receiver knows after the difference");
    }

    #[test]
    fn a_view_loaded_while_settling_leaves_nobody_shown_who_hides(
        first in prop::collection::vec(step(), 1..40),
        missed in prop::collection::vec(step(), 0..30),
        seen in prop::collection::vec(step(), 0..10),
    ) {
        let mut truth = Truth::default();
        first.iter().for_each(|s| drop(truth.step(s)));
        let mut known = picture(&truth);
        let mut log: Vec<_> = truth.step(&Step::Epoch).into_iter().collect();
        log.extend(missed.iter().filter_map(|s| truth.step(s)));
        let mut view = View::new(truth.snapshot(), HISTORY);
        view.recall(&log);
        prop_assert_eq!(picture_of(&view), picture(&truth), "it is no part of the picture");
        known.extend(picture_of(&view));
        topics().iter().for_each(|(tenant, topic)| lay(&mut known, &view.withdrawn(tenant, topic)));
        for change in seen.iter().filter_map(|s| truth.step(s)) {
            lay(&mut known, &view.apply(&change));
            log.push(change);
        }
        let now = latest_prefs(&log);
        let shown = |(tenant, _, user): &Key, item: &Item| {
            let key = UserKey::new(tenant.clone(), user.clone());
            item.public() && now.get(&key).is_some_and(|prefs| !prefs.public())
        };
        let shown: Vec<_> = known.iter().filter(|(key, item)| shown(key, item)).collect();
        prop_assert!(shown.is_empty(), "{:?}", shown);
        // Whoever asks now is told of everybody who was withdrawn and is still not there.
        for (tenant, topic) in topics() {
            for state in view.withdrawn(&tenant, &topic) {
                let key = (tenant.clone(), topic.clone(), state.user.clone());
                let absent = matches!(state.presence, Presence::Absent { .. });
                prop_assert!(absent && !picture(&truth).contains_key(&key));
            }
        }
    }
}

fn latest_prefs(log: &[Change]) -> HashMap<UserKey, Prefs> {
    let of = |change: &Change| match &change.event {
        Event::Session { owner, prefs, .. } | Event::Prefs { owner, prefs } => {
            Some((owner.clone(), *prefs))
        }
        Event::Epoch | Event::Settled => None,
    };
    log.iter().filter_map(of).collect()
}

/// Whether not everybody may see whom this is about.
fn hidden(change: &Change) -> bool {
    match &change.event {
        Event::Session { prefs, .. } | Event::Prefs { prefs, .. } => !prefs.public(),
        Event::Epoch | Event::Settled => false,
    }
}

fn run(steps: &[Step]) -> (Truth, View) {
    let mut truth = Truth::default();
    let mut view = View::new(truth.snapshot(), HISTORY);
    for change in steps
        .iter()
        .filter_map(|s| truth.step(s))
        .collect::<Vec<_>>()
    {
        view.apply(&change);
    }
    (truth, view)
}

fn next(truth: &mut Truth, view: &mut View, step: &Step) -> (Change, Vec<TopicState>) {
    let change = truth.step(step).unwrap();
    let states = view.apply(&change);
    (change, states)
}

#[test]
fn whoever_hides_is_not_shown_where_their_absence_is_held_back() {
    let (mut truth, mut view) = run(&[put(0, 0, &[0, 1]), put(1, 0, &[0])]);
    next(&mut truth, &mut view, &Step::Epoch);
    let (_, states) = next(&mut truth, &mut view, &put(0, 0, &[1]));
    assert!(states.iter().all(|s| s.topic != Topic::Room(room(0))));
    let (_, states) = next(&mut truth, &mut view, &put(1, 0, &[1]));
    let tenant = owner(0).tenant;
    assert!(view.withdrawn(&tenant, &Topic::Room(room(0))).is_empty());
    assert!(states.iter().all(|s| s.topic != Topic::Room(room(0))));

    let prefs = Prefs {
        visibility: Versioned {
            value: Visibility::Nobody,
            version: 1,
        },
        ..Prefs::default()
    };
    let (change, states) = next(&mut truth, &mut view, &Step::Prefer { who: 0, prefs });
    let gone: Vec<_> = states
        .iter()
        .filter(|s| matches!(s.presence, Presence::Absent { .. }))
        .collect();
    assert_eq!(gone.len(), 1, "{states:?}");
    assert_eq!(gone[0].topic, Topic::Room(room(0)));
    assert_eq!(
        (&gone[0].user, gone[0].version),
        (&owner(0).user, change.version)
    );
    // Whoever asks for the room from now on is told as well.
    let told: Vec<_> = gone.into_iter().cloned().collect();
    assert_eq!(view.withdrawn(&tenant, &Topic::Room(room(0))), told);
    assert!(view.withdrawn(&tenant, &Topic::Room(room(1))).is_empty());
    // The other's stays held back.
    next(&mut truth, &mut view, &Step::Settled);
    let states = view.reconcile(truth.snapshot());
    assert!(
        states
            .iter()
            .any(|s| s.topic == Topic::Room(room(0)) && s.user == owner(1).user)
    );
    assert!(view.withdrawn(&tenant, &Topic::Room(room(0))).is_empty());
}

#[test]
fn closing_one_of_two_devices_is_no_absence() {
    let (mut truth, mut view) = run(&[put(0, 0, &[0]), put(0, 1, &[0])]);
    let (_, states) = next(&mut truth, &mut view, &close(0, 0));
    assert_eq!(states.len(), 3);
    for state in states {
        let Presence::Here(item) = state.presence else {
            panic!("absent in {}", state.topic)
        };
        assert_eq!(item.devices.len(), 1);
    }
    let (change, states) = next(&mut truth, &mut view, &close(0, 1));
    let Event::Session { reason, .. } = change.event else {
        panic!("{change:?}")
    };
    let absent = Presence::Absent {
        reason,
        last_seen: change.at,
    };
    assert!(states.iter().all(|s| s.presence == absent));
    assert_eq!(view.people(), 0);
}

#[test]
fn a_device_that_comes_or_goes_elsewhere_does_not_touch_the_room() {
    let (mut truth, mut view) = run(&[put(0, 0, &[0])]);
    let (_, states) = next(&mut truth, &mut view, &put(0, 1, &[1]));
    let touched: Vec<_> = states.iter().map(|s| s.topic.to_string()).collect();
    assert_eq!(touched, ["room:r1", "user:u0", "tenant"]);
}

#[test]
fn an_item_keeps_its_number_until_it_looks_different() {
    let (mut truth, mut view) = run(&[put(0, 0, &[0])]);
    let tenant = owner(0).tenant;
    let topic = Topic::Room(room(0));
    let v = view.members(&tenant, &topic)[0].0.v;
    next(&mut truth, &mut view, &put(0, 1, &[1]));
    let (item, version) = view.members(&tenant, &topic).remove(0);
    assert_eq!(item.v, v, "not visible in the room");
    assert_eq!(version, truth.version, "but what orders its states went on");
    view.reconcile(truth.snapshot());
    assert_eq!(
        view.members(&tenant, &topic)[0].0.v,
        v,
        "and a reload does not change it"
    );
}

/// Seconds for a thousand joins and leaves of one user in a room of `people`.
fn cost_in_a_room_of(people: u16) -> f64 {
    let mut truth = Truth::default();
    for n in 0..people {
        let user = UserKey::new(owner(0).tenant, UserId::new(format!("other-{n}")).unwrap());
        let person = truth.people.entry(user).or_default();
        person.sessions.insert(device(0), session_in(&room(0)));
    }
    let mut view = View::new(truth.snapshot(), HISTORY);
    let changes: Vec<_> = (0..1000)
        .map(|n| {
            truth
                .step(&if n % 2 == 0 {
                    put(0, 0, &[0])
                } else {
                    close(0, 0)
                })
                .unwrap()
        })
        .collect();
    let start = std::time::Instant::now();
    changes
        .iter()
        .for_each(|c| assert_eq!(view.apply(c).len(), 3));
    start.elapsed().as_secs_f64()
}

#[test]
fn the_cost_of_a_change_does_not_grow_with_the_shard() {
    let (small, large) = (cost_in_a_room_of(300), cost_in_a_room_of(30_000));
    let ratio = large / small;
    println!("100 times the people: {ratio:.2} times the cost of a change");
    // Linear cost would be near 100; caches alone account for a few.
    assert!(ratio < 25.0, "{ratio}");
}
