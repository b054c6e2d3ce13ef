//! What goes onto the feed comes off it unchanged; what makes no sense is refused.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use adsum_core::{
    Item, Kind, Meta, Origin, Presence, Reason, RoomId, Status, TenantId, Topic, TopicState,
    UserId, Version, Visibility,
};
use adsum_proto::{Malformed, feed, state_from, state_to};

fn item() -> Arc<Item> {
    Arc::new(Item {
        user: UserId::new("ann").unwrap(),
        status: Status::Invisible,
        devices: vec![Kind::new("mobile").unwrap(), Kind::new("web").unwrap()],
        meta: Some(Meta::trusted("{}")),
        since: 5,
        v: Version::new(7, 8),
        visibility: Visibility::Contacts,
        contacts: 3,
        frozen_at: 4,
    })
}

fn state(topic: Topic, presence: Presence) -> TopicState {
    TopicState {
        tenant: TenantId::new("acme").unwrap(),
        topic,
        user: UserId::new("ann").unwrap(),
        presence,
        version: Version::new(9, 10),
        origin: Some(Origin {
            at_us: 11,
            traceparent: Some("00-ab-cd-01".into()),
        }),
    }
}

#[test]
fn states_round_trip() {
    let mut presences: Vec<_> = Reason::ALL
        .into_iter()
        .map(Some)
        .chain([None])
        .map(|reason| Presence::Absent {
            reason,
            last_seen: 12,
        })
        .collect();
    presences.push(Presence::Here(item()));
    let topics = [
        Topic::Room(RoomId::new("r").unwrap()),
        Topic::User(UserId::new("ann").unwrap()),
        Topic::Tenant,
    ];
    for topic in topics {
        for presence in &presences {
            let state = state(topic.clone(), presence.clone());
            assert_eq!(state_from(state_to(&state, 1, 2)), Ok(state));
        }
    }
}

#[test]
fn nonsense_is_refused_with_its_name() {
    let good = state_to(&state(Topic::Tenant, Presence::Here(item())), 0, 0);
    let bent = |bend: fn(&mut feed::State)| {
        let mut state = good.clone();
        bend(&mut state);
        state_from(state).unwrap_err()
    };
    assert_eq!(bent(|s| s.topic = None), Malformed::Missing("topic"));
    assert_eq!(bent(|s| s.version = None), Malformed::Missing("version"));
    assert_eq!(bent(|s| s.presence = None), Malformed::Missing("presence"));
    fn here(state: &mut feed::State) -> &mut feed::Item {
        match state.presence.as_mut() {
            Some(feed::state::Presence::Here(item)) => item,
            _ => unreachable!("made so above"),
        }
    }
    assert_eq!(bent(|s| here(s).status = 99), Malformed::Unknown("status"));
    assert_eq!(
        bent(|s| here(s).visibility = 99),
        Malformed::Unknown("visibility")
    );
    assert!(matches!(bent(|s| here(s).user.clear()), Malformed::Id(_)));
    assert!(matches!(
        bent(|s| here(s).devices.push("A B".into())),
        Malformed::Invalid(_)
    ));
}
