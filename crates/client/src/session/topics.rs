//! What a session does about the topics that it watches.

use std::{collections::HashMap, time::Duration};

use adsum_core::Topic;
use adsum_proto::client::{
    Ref,
    frame::{ClientBody, PresenceDiff, PresenceState, Watch},
};
use tokio::time::Instant;

use super::{
    SHORTEST, Session, intent,
    roster::{Outcome, Roster},
};

/// When to ask again for a topic of which not all is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resync {
    pub(super) at: Instant,
    wait: Duration,
}

impl Session {
    pub(super) fn state(&mut self, now: Instant, r#ref: Option<&Ref>, state: PresenceState) {
        let topic = state.topic.clone();
        let call = match self.calls.take(r#ref) {
            Some((_, call)) if matches!(&call.body, ClientBody::Watch(w) if w.topic == topic) => {
                self.intent.apply(&call.body);
                Some(call)
            }
            _ => None,
        };
        let mut book = self.book.lock();
        if let Some(roster) = book.get_mut(&topic) {
            let Outcome { events, stale } = roster.state(state);
            let complete = roster.complete();
            drop(book);
            self.events.extend(events);
            if stale {
                self.rewatch(now, &topic);
            } else {
                self.resync_later(now, topic, complete);
            }
        }
        if let Some(call) = call {
            call.finish(Ok(()));
        }
    }

    pub(super) fn diff(&mut self, now: Instant, diff: PresenceDiff) {
        let topic = diff.topic.clone();
        let mut book = self.book.lock();
        let Some(roster) = book.get_mut(&topic) else {
            return;
        };
        let Outcome { events, stale } = roster.diff(diff);
        drop(book);
        self.events.extend(events);
        if stale {
            self.rewatch(now, &topic);
        }
    }

    pub(super) fn forget(&mut self, topic: &Topic) {
        self.intent.watches.remove(topic);
        self.resyncs.remove(topic);
        self.book.lock().remove(topic);
    }

    /// Asks for the state of a topic again, unless that is under way.
    fn rewatch(&mut self, now: Instant, topic: &Topic) {
        let Some(mode) = self.intent.watches.get(topic) else {
            return;
        };
        if !self.calls.watching(topic) {
            self.calls.add(intent::watch(topic, *mode, None), None);
            self.send_due(now);
        }
    }

    /// After a hello the states come by themselves; one that does not is asked for.
    pub(super) fn await_state(&mut self, now: Instant, topic: &Topic) {
        let at = now + self.timing.ack_timeout;
        // Half, because it is doubled before each use.
        let wait = self.timing.resync_after.max(SHORTEST) / 2;
        if self.intent.watches.contains_key(topic) {
            self.resyncs.insert(topic.clone(), Resync { at, wait });
        }
    }

    fn resync_later(&mut self, now: Instant, topic: Topic, complete: bool) {
        if complete {
            self.resyncs.remove(&topic);
            return;
        }
        let before = self.resyncs.get(&topic).map(|r| r.wait * 2);
        let first = self.timing.resync_after.max(SHORTEST);
        let wait = before
            .unwrap_or(first)
            .clamp(first, first.saturating_mul(16));
        let resync = Resync {
            at: now + wait,
            wait,
        };
        self.resyncs.insert(topic, resync);
    }

    pub(super) fn resync(&mut self, now: Instant) {
        let due = self.resyncs.iter().filter(|(_, r)| r.at <= now);
        for topic in due.map(|(topic, _)| topic.clone()).collect::<Vec<_>>() {
            if let Some(resync) = self.resyncs.get_mut(&topic) {
                resync.at = now + resync.wait;
            }
            self.rewatch(now, &topic);
        }
    }
}

/// A watch names what is known at the moment of its sending.
pub(super) fn expect(book: &mut HashMap<Topic, Roster>, watch: &mut Watch) {
    if let Some(roster) = book.get_mut(&watch.topic) {
        watch.digest = roster.resume(watch.mode);
        roster.expect(watch.digest);
    }
}
