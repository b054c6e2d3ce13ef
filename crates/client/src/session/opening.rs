//! How a session comes onto a connection, and off it.

use std::{collections::BTreeMap, sync::Arc};

use adsum_core::{Digest, Topic};
use adsum_proto::client::frame::{ClientBody, Hello, Mode, Patch, Welcome};
use tokio::time::Instant;

use super::{Cause, Intent, Line, SHORTEST, Session, Tries, Verdict, told, verdict};
use crate::{EndReason, Event};

/// What a hello said.
#[derive(Debug)]
pub(super) struct Said {
    intent: Intent,
    digests: BTreeMap<Topic, Option<Digest>>,
    /// Whether there was something in it that no server has confirmed.
    hopeful: bool,
}

impl Session {
    /// The hello of the next try. It names what was sent and not answered too: the server may
    /// have done it, and a hello without it would undo it for all to see.
    pub(crate) fn hello(&mut self, wall_ms: u64) -> Hello {
        let intent = self.hoped();
        let hopeful = intent != self.intent;
        let book = self.book.lock();
        let digest = |topic: &Topic, mode: Mode| book.get(topic)?.resume(mode);
        let mut hello = intent.hello(digest);
        drop(book);
        (hello.device, hello.conn) = self.numbers.next(wall_ms);
        let digests = hello.watch.iter().map(|w| (w.topic.clone(), w.digest));
        self.said = Some(Said {
            intent,
            digests: digests.collect(),
            hopeful,
        });
        self.hold = true;
        hello
    }

    fn hoped(&self) -> Intent {
        let mut intent = self.intent.clone();
        if !self.plain {
            let frames = self.calls.tried();
            // A watch is asked for again by itself: its loss is nobody else's business.
            frames
                .filter(|body| !matches!(body, ClientBody::Watch(_)))
                .for_each(|body| intent.apply(body));
        }
        intent
    }

    /// The hello was answered: this connection counts from now on.
    pub(crate) fn opened(&mut self, now: Instant, endpoint: Arc<str>, welcome: &Welcome) {
        self.calls.requeue();
        self.numbers.settle(welcome.device.clone(), welcome.conn);
        self.tries = Tries::default();
        let every = told(welcome.heartbeat_ms);
        self.line = Some(Line {
            beat_every: self.timing.heartbeat.unwrap_or(every).max(SHORTEST),
            beat_at: now,
        });
        self.events.push(Event::Connected {
            endpoint,
            user: welcome.user.clone(),
            device: welcome.device.clone(),
            conn: welcome.conn,
        });
        self.beat_later(now);
        if let Some(said) = self.said.take() {
            self.catch_up(now, &said);
        }
        (self.plain, self.hold) = (false, false);
        self.send_due(now);
    }

    /// Awaits what the hello asked for, and adds what came up since it was written.
    fn catch_up(&mut self, now: Instant, said: &Said) {
        if said.intent.status == self.intent.status {
            self.intent.status = Patch::Keep;
        }
        for (topic, digest) in &said.digests {
            if let Some(roster) = self.book.lock().get_mut(topic) {
                roster.expect(*digest);
            }
            self.await_state(now, topic);
        }
        for body in self.hoped().since(&said.intent) {
            self.calls.add(body, None);
        }
    }

    /// A try failed. If a connection stands, it goes on; but as long as the hello may be heard,
    /// it beats and no more. That hello has a higher number, and would put what it says over
    /// whatever is said on this connection now: the app's wishes wait for the next one, which has
    /// a higher number still.
    pub(crate) fn failed(&mut self, now: Instant, cause: Cause) -> Verdict {
        if cause.in_doubt() {
            self.numbers.doubt();
        }
        self.hold = self.numbers.said_more();
        let hopeful = self.said.take().is_some_and(|said| said.hopeful);
        let verdict = self.judge(cause);
        self.send_due(now);
        if hopeful && matches!(verdict, Verdict::End(EndReason::Refused(_))) {
            self.plain = true;
            return Verdict::AT_ONCE;
        }
        verdict
    }

    /// The connection is gone.
    pub(crate) fn lost(&mut self, cause: Cause) -> Verdict {
        self.dropped();
        let verdict = self.judge(cause);
        if verdict == Verdict::End(EndReason::Replaced) && self.numbers.said_more() {
            // By a hello of our own whose answer never came.
            return Verdict::LATER;
        }
        verdict
    }

    /// The connection is gone, and what comes next is under way already.
    pub(crate) fn dropped(&mut self) {
        if self.line.take().is_some() {
            self.events.push(Event::Disconnected);
        }
        self.out.clear();
        self.resyncs.clear();
        self.calls.requeue();
    }

    fn judge(&mut self, cause: Cause) -> Verdict {
        let recorded = cause.conn();
        let verdict = verdict::judge(cause, &mut self.tries, self.new_tokens);
        if verdict == Verdict::AT_ONCE {
            self.numbers.raise(recorded);
        }
        verdict
    }
}
