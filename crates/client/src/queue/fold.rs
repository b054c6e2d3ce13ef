//! Folding pending events to their net effect.

use std::collections::{HashMap, HashSet, VecDeque};

use adsum_core::{Topic, UserId};
use adsum_proto::client::frame::Mode;

use crate::Event;

/// So many complaints of the server are kept: they are no state, but only the last ones matter.
const ERRORS: usize = 16;

/// What two pending events share if the later can stand for both.
#[derive(PartialEq, Eq, Hash, Clone)]
enum Key {
    Member(Topic, UserId),
    Count(Topic),
    Stale(Topic),
    Synced(Topic),
    Connected,
    Disconnected,
    Expiring,
}

/// Keeps the last event of each key, told as the net change since before the first.
pub(super) fn fold(pending: VecDeque<Event>) -> VecDeque<Event> {
    let pending = since_reset(pending);
    let known = known_before(&pending);
    let mut seen = HashSet::new();
    let mut errors = 0;
    let mut folded = VecDeque::new();
    for event in pending.into_iter().rev() {
        match key(&event) {
            Some(key) => {
                if seen.insert(key.clone()) {
                    let known = known.get(&key).copied().unwrap_or_default();
                    folded.extend(net(event, known));
                }
            }
            None => {
                errors += usize::from(matches!(event, Event::Error(_)));
                if errors <= ERRORS || !matches!(event, Event::Error(_)) {
                    folded.push_back(event);
                }
            }
        }
    }
    folded.into_iter().rev().collect()
}

/// Without what an app is told to forget later on anyway.
fn since_reset(mut pending: VecDeque<Event>) -> VecDeque<Event> {
    let mut resets = HashMap::new();
    for (place, event) in pending.iter().enumerate() {
        if is_reset(event)
            && let Some(topic) = topic(event)
        {
            resets.insert(topic.clone(), place);
        }
    }
    let mut place = 0;
    pending.retain(|event| {
        // Whether it can be heard is not told again with a reset.
        let kept = matches!(event, Event::Stale { .. });
        let reset = topic(event).filter(|_| !kept);
        let reset = reset.and_then(|topic| resets.get(topic));
        let keep = reset.is_none_or(|reset| place >= *reset);
        place += 1;
        keep
    });
    pending
}

fn is_reset(event: &Event) -> bool {
    matches!(event, Event::Synced { mode, .. } if *mode == Mode::Count)
}

/// For each user in each topic, whether the app knew of them before all this.
fn known_before(pending: &VecDeque<Event>) -> HashMap<Key, bool> {
    let mut known = HashMap::new();
    for event in pending {
        if let Some(key @ Key::Member(..)) = key(event) {
            let joined = matches!(event, Event::Joined { .. });
            known.entry(key).or_insert(!joined);
        }
    }
    known
}

/// What the last event of a key comes to, given what the app knew before.
fn net(last: Event, known: bool) -> Option<Event> {
    Some(match last {
        Event::Joined { topic, item } | Event::Updated { topic, item } if known => {
            Event::Updated { topic, item }
        }
        Event::Joined { topic, item } | Event::Updated { topic, item } => {
            Event::Joined { topic, item }
        }
        Event::Left { .. } if !known => return None,
        other => other,
    })
}

/// The topic that an event is about.
pub(super) fn topic(event: &Event) -> Option<&Topic> {
    match event {
        Event::Joined { topic, .. }
        | Event::Updated { topic, .. }
        | Event::Left { topic, .. }
        | Event::Count { topic, .. }
        | Event::Stale { topic, .. }
        | Event::Synced { topic, .. } => Some(topic),
        _ => None,
    }
}

fn key(event: &Event) -> Option<Key> {
    Some(match event {
        Event::Joined { topic, item } | Event::Updated { topic, item } => {
            Key::Member(topic.clone(), item.user.clone())
        }
        Event::Left { topic, left } => Key::Member(topic.clone(), left.user.clone()),
        Event::Count { topic, .. } => Key::Count(topic.clone()),
        Event::Stale { topic, .. } => Key::Stale(topic.clone()),
        // Only one of these is left of each topic, and what comes after it is another thing.
        Event::Synced { .. } if is_reset(event) => return None,
        Event::Synced { topic, .. } => Key::Synced(topic.clone()),
        Event::Connected { .. } => Key::Connected,
        Event::Disconnected => Key::Disconnected,
        Event::Expiring { .. } => Key::Expiring,
        Event::Error(_) | Event::Ended(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cant_be_heard_outlives_a_reset() {
        let stale = |stale| Event::Stale {
            topic: Topic::Tenant,
            stale,
        };
        let reset = || Event::Synced {
            topic: Topic::Tenant,
            mode: Mode::Count,
            complete: true,
            resumed: false,
        };
        let pending = VecDeque::from([stale(true), reset()]);
        assert_eq!(fold(pending), [stale(true), reset()]);
        let pending = VecDeque::from([stale(true), reset(), stale(false)]);
        assert_eq!(fold(pending), [reset(), stale(false)]);
    }
}
