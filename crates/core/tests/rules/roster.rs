//! A roster ends up with the truth, in whatever order and however often it is told.

use std::{collections::BTreeMap, sync::Arc};

use crate::common::{Step, Truth, room, step};
use adsum_core::{
    Diff, Digest, Item, Pending, Presence, Reason, Roster, Status, TenantId, Topic, TopicState,
    UserId, Version, View, Visibility,
};
use proptest::prelude::*;

const ABSENT_MS: u64 = 60_000;

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn topic() -> Topic {
    Topic::Room(room(0))
}

fn is_ours(state: &TopicState) -> bool {
    state.tenant == tenant() && state.topic == topic()
}

fn take(roster: &mut Roster, state: &TopicState, now: u64) -> Diff {
    let mut pending = Pending::default();
    roster.take(
        0,
        &state.user,
        state.presence.clone(),
        state.version,
        now,
        &mut pending,
    );
    pending.tell(roster)
}

fn take_all(roster: &mut Roster, view: &View) -> Diff {
    let mut pending = Pending::default();
    let part = view.members(&tenant(), &topic());
    roster.take_part(0, part, view.version(), view.settling(), 0, &mut pending);
    pending.tell(roster)
}

type Known = BTreeMap<UserId, Item>;

fn look(item: &Item) -> Item {
    Item {
        v: Version::ZERO,
        ..item.clone()
    }
}

fn known(roster: &Roster) -> Known {
    roster
        .members()
        .map(|i| (i.user.clone(), look(i)))
        .collect()
}

fn truth_of(truth: &Truth) -> Known {
    let here = truth
        .people
        .iter()
        .filter(|(key, _)| key.tenant == tenant());
    here.filter_map(|(key, p)| Some((key.user.clone(), look(&*p.item_in(&key.user, &room(0))?))))
        .collect()
}

/// What a client that only ever sees diffs has; checks that each makes sense.
#[derive(Default)]
struct Client(Known);

impl Client {
    fn take(&mut self, diff: &Diff) {
        for item in &diff.joins {
            assert!(
                self.0.insert(item.user.clone(), look(item)).is_none(),
                "join of one who is there"
            );
        }
        for item in &diff.updates {
            let old = self.0.insert(item.user.clone(), look(item));
            assert!(
                old.is_some_and(|o| o != look(item)),
                "update without a difference"
            );
        }
        for leave in &diff.leaves {
            assert!(
                self.0.remove(&leave.item.user).is_some(),
                "leave of one who is not there"
            );
        }
    }
}

fn states(steps: &[Step], truth: &mut Truth) -> Vec<TopicState> {
    let mut view = View::new(truth.snapshot(), 1000);
    let changes: Vec<_> = steps.iter().filter_map(|s| truth.step(s)).collect();
    changes
        .iter()
        .flat_map(|c| view.apply(c))
        .filter(is_ours)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_order_and_any_number_of_times(
        steps in prop::collection::vec(step(), 1..60),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let mut truth = Truth::default();
        let told = states(&steps, &mut truth);
        let (mut roster, mut client) = (Roster::new(ABSENT_MS), Client::default());
        // A random walk over the states with repeats, then all of them, backwards.
        let walk = order.iter().filter(|_| !told.is_empty()).map(|i| i.get(&told));
        for state in walk.chain(told.iter().rev()) {
            let before = roster.get(&state.user).cloned();
            let diff = take(&mut roster, state, 0);
            client.take(&diff);
            prop_assert_eq!(&client.0, &known(&roster));
            if let (Some(b), Some(a)) = (before, roster.get(&state.user)) {
                prop_assert!(a.v >= b.v, "never back to an older state");
            }
        }
        prop_assert_eq!(known(&roster), truth_of(&truth));
        let public = roster.members().filter(|i| i.public()).count();
        prop_assert_eq!(roster.public(), public);
    }

    #[test]
    fn in_order_each_arrival_is_one_join_and_each_departure_one_leave(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut truth = Truth::default();
        let mut view = View::new(truth.snapshot(), 1000);
        let mut roster = Roster::new(ABSENT_MS);
        for step in &steps {
            let before = truth_of(&truth);
            let Some(change) = truth.step(step) else { continue };
            let mut diff = Diff::default();
            for state in view.apply(&change).iter().filter(|s| is_ours(s)) {
                diff = take(&mut roster, state, 0);
            }
            let after = truth_of(&truth);
            let came = after.keys().filter(|u| !before.contains_key(*u)).count();
            let left = before.keys().filter(|u| !after.contains_key(*u)).count();
            prop_assert_eq!((diff.joins.len(), diff.leaves.len()), (came, left));
        }
    }

    #[test]
    fn whole_parts_and_states_mixed_converge(
        first in prop::collection::vec(step(), 0..30),
        then in prop::collection::vec(step(), 0..30),
        late in any::<bool>(),
    ) {
        let mut truth = Truth::default();
        let old = states(&first, &mut truth);
        let mut view = View::new(truth.snapshot(), 1000);
        let (mut roster, mut client) = (Roster::new(ABSENT_MS), Client::default());
        client.take(&take_all(&mut roster, &view));
        prop_assert_eq!(known(&roster), truth_of(&truth));
        let changes: Vec<_> = then.iter().filter_map(|s| truth.step(s)).collect();
        let new: Vec<_> = changes.iter().flat_map(|c| view.apply(c)).filter(is_ours).collect();
        if late {
            client.take(&take_all(&mut roster, &view));
        }
        // Old states from before the part, from a slower source, change nothing.
        for state in old.iter().chain(&new) {
            client.take(&take(&mut roster, state, 0));
        }
        prop_assert_eq!(known(&roster), truth_of(&truth));
        prop_assert_eq!(&client.0, &known(&roster));
        prop_assert!(take_all(&mut roster, &view).is_empty());
    }

    #[test]
    fn what_a_failover_lost_does_not_outrank_the_truth(
        first in prop::collection::vec(step(), 1..30),
        lost in prop::collection::vec(step(), 0..8),
        settling in prop::collection::vec(step(), 0..20),
        then in prop::collection::vec(step(), 0..10),
        moved in any::<bool>(),
    ) {
        let mut truth = Truth::default();
        first.iter().for_each(|s| drop(truth.step(s)));
        let mut view = View::new(truth.snapshot(), 1000);
        let (mut roster, mut client) = (Roster::new(ABSENT_MS), Client::default());
        client.take(&take_all(&mut roster, &view));
        let mut doomed = truth.clone();
        let mut told: Vec<_> = lost.iter().filter_map(|s| doomed.step(s)).collect();
        told.extend([Step::Epoch].iter().chain(&settling).chain([&Step::Settled]).filter_map(|s| truth.step(s)));
        for state in told.iter().flat_map(|c| view.apply(c)).filter(is_ours).collect::<Vec<_>>() {
            client.take(&take(&mut roster, &state, 0));
        }
        // The difference from the same dispatcher, or everything from one that starts anew.
        if moved {
            client.take(&take_all(&mut roster, &View::new(truth.snapshot(), 1000)));
        } else {
            for state in view.reconcile(truth.snapshot()).iter().filter(|s| is_ours(s)) {
                client.take(&take(&mut roster, state, 0));
            }
        }
        prop_assert_eq!(known(&roster), truth_of(&truth));
        view.reconcile(truth.snapshot());
        let more: Vec<_> = then.iter().filter_map(|s| truth.step(s)).collect();
        for state in more.iter().flat_map(|c| view.apply(c)).filter(is_ours).collect::<Vec<_>>() {
            client.take(&take(&mut roster, &state, 0));
        }
        prop_assert_eq!(known(&roster), truth_of(&truth));
        prop_assert_eq!(&client.0, &known(&roster));
    }

    #[test]
    fn a_window_tells_only_how_its_ends_differ(steps in prop::collection::vec(step(), 1..40)) {
        let mut truth = Truth::default();
        let told = states(&steps, &mut truth);
        let (mut roster, mut client) = (Roster::new(ABSENT_MS), Client::default());
        for window in told.chunks(5) {
            let mut pending = Pending::default();
            for s in window {
                roster.take(0, &s.user, s.presence.clone(), s.version, 0, &mut pending);
            }
            client.take(&pending.tell(&roster));
            prop_assert!(pending.is_empty());
        }
        prop_assert_eq!(client.0, truth_of(&truth));
    }

    #[test]
    fn the_digest_follows_what_may_be_seen(steps in prop::collection::vec(step(), 1..40)) {
        let mut truth = Truth::default();
        let told = states(&steps, &mut truth);
        let mut roster = Roster::new(ABSENT_MS);
        told.iter().for_each(|s| drop(take(&mut roster, s, 0)));
        let mut by_hand = Digest::default();
        roster.members().filter(|i| i.public()).for_each(|i| by_hand.add(&i.user, i.v));
        prop_assert_eq!(roster.digest(Item::public), by_hand);
    }
}

fn item(user: &str, seq: u64) -> Arc<Item> {
    Arc::new(Item {
        user: UserId::new(user).unwrap(),
        status: Status::Online,
        devices: Vec::new(),
        meta: None,
        since: seq,
        v: Version::new(1, seq),
        visibility: Visibility::Everyone,
        contacts: 0,
        frozen_at: 0,
    })
}

#[test]
fn a_part_that_settles_adds_and_never_removes() {
    let mut roster = Roster::new(ABSENT_MS);
    let mut pending = Pending::default();
    let (ann, bob) = (item("ann", 1), item("bob", 2));
    let at = |seq| Version::new(1, seq);
    roster.take_part(0, vec![(ann.clone(), at(1))], at(1), false, 0, &mut pending);
    let settling = Version::new(2, 5);
    roster.take_part(
        0,
        vec![(bob.clone(), at(2))],
        settling,
        true,
        0,
        &mut pending,
    );
    assert_eq!(roster.len(), 2);
    let settled = Version::new(2, 6);
    roster.take_part(
        0,
        vec![(bob, Version::new(2, 0))],
        settled,
        false,
        0,
        &mut pending,
    );
    assert_eq!(roster.len(), 1);
    let diff = pending.tell(&roster);
    assert_eq!(
        (diff.joins.len(), diff.leaves.len()),
        (1, 0),
        "ann came and went unseen"
    );
}

#[test]
fn a_part_that_settles_brings_what_changed_later_and_nothing_older() {
    let mut roster = Roster::new(ABSENT_MS);
    let mut pending = Pending::default();
    let at = |seq| Version::new(1, seq);
    let known = vec![(item("ann", 5), at(5)), (item("bob", 6), at(6))];
    roster.take_part(0, known, at(6), false, 0, &mut pending);
    // Ann's last change was lost with the old master; Bob said something to the new one.
    let (lost, mut said) = (item("ann", 4), Arc::unwrap_or_clone(item("bob", 7)));
    said.v = Version::new(2, 7);
    let settling = Version::new(2, 8);
    let part = vec![(lost, settling), (Arc::new(said), settling)];
    roster.take_part(0, part, settling, true, 0, &mut pending);
    let since: Vec<_> = roster.members().map(|item| item.since).collect();
    assert!(since.contains(&5) && since.contains(&7), "{since:?}");
}

#[test]
fn whoever_was_cut_off_learns_of_the_old_epoch_while_the_new_one_settles() {
    let mut roster = Roster::new(ABSENT_MS);
    let mut pending = Pending::default();
    let at = |seq| Version::new(1, seq);
    let known = vec![(item("ann", 5), at(5)), (item("bob", 6), at(6))];
    roster.take_part(0, known, at(6), false, 0, &mut pending);
    let gone = Presence::Absent {
        reason: Some(Reason::Leave),
        last_seen: 7,
    };
    let bob = UserId::new("bob").unwrap();
    roster.take(0, &bob, gone, at(7), 0, &mut pending);
    // Ann changed in the old epoch, unseen here. Bob's goodbye was lost with the old master.
    let settling = Version::new(2, 8);
    let part = vec![(item("ann", 9), settling), (item("bob", 6), settling)];
    roster.take_part(0, part, settling, true, 0, &mut pending);
    let since: Vec<_> = roster.members().map(|item| item.since).collect();
    assert_eq!(since, [9]);
}

#[test]
fn parts_of_other_shards_are_left_alone() {
    let mut roster = Roster::new(ABSENT_MS);
    let mut pending = Pending::default();
    let at = Version::new(1, 9);
    roster.take_part(0, vec![(item("ann", 1), at)], at, false, 0, &mut pending);
    roster.take_part(1, vec![(item("bob", 1), at)], at, false, 0, &mut pending);
    roster.take_part(1, Vec::new(), Version::new(1, 10), false, 0, &mut pending);
    assert!(roster.get(&UserId::new("ann").unwrap()).is_some());
    assert_eq!(roster.len(), 1);
}

#[test]
fn the_absent_are_remembered_for_a_bounded_time() {
    let mut roster = Roster::new(ABSENT_MS);
    let mut pending = Pending::default();
    for n in 0..1000_u64 {
        let user = UserId::new(format!("u{n}")).unwrap();
        let absent = Presence::Absent {
            reason: None,
            last_seen: 0,
        };
        roster.take(
            0,
            &user,
            absent,
            Version::new(1, n + 1),
            n * 1000,
            &mut pending,
        );
    }
    assert_eq!(roster.remembered(), 60, "one a second, for a minute");
}

#[test]
fn a_digest_is_fixed() {
    let mut digest = Digest::default();
    let ann = UserId::new("ann").unwrap();
    digest.add(&ann, Version::new(3, 7));
    assert_eq!(digest.to_string(), "48d33093f218b77f");
    assert_eq!("48d33093f218b77f".parse(), Ok(digest));
    digest.remove(&ann, Version::new(3, 7));
    assert_eq!(digest, Digest::default());
}

#[test]
fn who_may_see_whom() {
    let ann = UserId::new("ann").unwrap();
    let bob = UserId::new("bob").unwrap();
    let base = (*item("ann", 1)).clone();
    let sees = |item: &Item, who: Option<&UserId>, listed: bool| item.visible_to(who, || listed);
    let contacts = Item {
        visibility: Visibility::Contacts,
        ..base.clone()
    };
    let nobody = Item {
        visibility: Visibility::Nobody,
        ..base.clone()
    };
    let hidden = Item {
        status: Status::Invisible,
        ..base.clone()
    };
    for item in [&base, &contacts, &nobody, &hidden] {
        assert!(sees(item, Some(&ann), false), "own truth");
    }
    assert!(sees(&base, Some(&bob), false) && sees(&base, None, false));
    assert!(sees(&contacts, Some(&bob), true) && !sees(&contacts, Some(&bob), false));
    assert!(!sees(&contacts, None, true), "a stranger is on no list");
    assert!(!sees(&nobody, Some(&bob), true) && !sees(&hidden, Some(&bob), true));
    assert!(base.public() && !contacts.public() && !nobody.public() && !hidden.public());
}
