//! A change that says all there is to say of its owner, who has no other session: what it makes of
//! the topics that it touches. Whoever has committed it knows that before any dispatcher does.

use std::collections::BTreeSet;

use crate::{Change, Event, Person, Presence, Reason, Topic, TopicState};

/// How the owner of a change stands in every topic that it may have touched; in some of them as
/// before. The states are those that a [`View`](crate::View) of the settled shard answers.
#[must_use]
pub fn states_of(change: &Change) -> Vec<TopicState> {
    let Event::Session {
        owner,
        device,
        rooms_before,
        after,
        prefs,
        reason,
    } = &change.event
    else {
        return Vec::new();
    };
    let person = Person {
        version: change.version,
        prefs: *prefs,
        sessions: after.iter().map(|s| (device.clone(), s.clone())).collect(),
    };
    let stays = after.iter().flat_map(|session| session.state.rooms.keys());
    let rooms: BTreeSet<_> = rooms_before.iter().chain(stays).collect();
    let rooms = rooms.into_iter().map(|room| {
        let item = person.item_in(&owner.user, room);
        (Topic::Room(room.clone()), item)
    });
    let everywhere = [Topic::User(owner.user.clone()), Topic::Tenant];
    let everywhere = everywhere.map(|topic| (topic, person.item(&owner.user)));
    let state = |(topic, item): (Topic, Option<_>)| TopicState {
        tenant: owner.tenant.clone(),
        topic,
        user: owner.user.clone(),
        presence: item.map_or(
            Presence::Absent {
                // Who goes out of a room and stays otherwise has left it, too.
                reason: reason.or(Some(Reason::Leave)),
                last_seen: change.at,
            },
            Presence::Here,
        ),
        version: change.version,
        origin: change.origin.clone(),
    };
    rooms.chain(everywhere).map(state).collect()
}
