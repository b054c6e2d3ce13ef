//! The session without IO: takes frames, calls and the time, and says what to send and what to
//! tell. The shell around it only moves bytes and waits.

mod backoff;
mod book;
mod calls;
mod intent;
mod numbers;
mod opening;
mod roster;
#[cfg(test)]
mod tests;
mod topics;
mod verdict;

use std::{collections::HashMap, sync::Arc, time::Duration};

use adsum_core::Topic;
use adsum_proto::client::{
    Code, Ref,
    frame::{ClientBody, ClientFrame, Problem, ServerBody, ServerFrame, Token},
};
use tokio::time::Instant;

use crate::{EndReason, Error, Event, Timing};

pub(crate) use backoff::{Backoff, Jitter};
pub(crate) use book::Book;
pub(crate) use calls::{Done, retry_after};
pub(crate) use intent::Intent;
pub(crate) use numbers::Numbers;
pub(crate) use verdict::{Cause, Verdict};

use calls::{Call, Calls};
use opening::Said;
use roster::Roster;
use topics::Resync;
use verdict::Tries;

/// More than so many open calls are refused: an app that asks without waiting has a fault.
const MAX_CALLS: usize = 4096;

/// No timer is shorter, whatever a server or a setting says: a client must not spin.
const SHORTEST: Duration = Duration::from_millis(10);

/// No time that a server tells is longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A time that a server told.
pub(crate) fn told(ms: u64) -> Duration {
    Duration::from_millis(ms).min(LONGEST)
}

/// What the shell has to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Signal {
    /// Connect elsewhere after so long, and keep this connection until then.
    Drain(Duration),
    /// Get a new token.
    Expiring(Duration),
    /// This connection is over.
    Over(Cause),
    /// All is over.
    End(EndReason),
}

/// What there is only while a connection stands.
#[derive(Debug)]
struct Line {
    beat_every: Duration,
    beat_at: Instant,
}

/// One device of one user, over all of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    timing: Timing,
    jitter: Jitter,
    intent: Intent,
    numbers: Numbers,
    book: Arc<Book>,
    calls: Calls,
    tries: Tries,
    new_tokens: bool,
    line: Option<Line>,
    said: Option<Said>,
    /// The last hello was refused with what was hoped for: leave that out.
    plain: bool,
    /// A hello is under way while a connection stands, or may be: what the app asks for waits
    /// for its end, or for the next one.
    hold: bool,
    resyncs: HashMap<Topic, Resync>,
    leave_by: Option<Instant>,
    out: Vec<ClientFrame>,
    events: Vec<Event>,
}

impl Session {
    /// A session that was never connected.
    pub(crate) fn new(
        timing: Timing,
        intent: Intent,
        numbers: Numbers,
        book: Arc<Book>,
        new_tokens: bool,
        seed: u64,
    ) -> Self {
        for topic in intent.watches.keys() {
            book.lock().insert(topic.clone(), Roster::default());
        }
        Self {
            timing,
            jitter: Jitter::new(seed),
            intent,
            numbers,
            book,
            calls: Calls::default(),
            tries: Tries::default(),
            new_tokens,
            line: None,
            said: None,
            plain: false,
            hold: false,
            resyncs: HashMap::new(),
            leave_by: None,
            out: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Randomness for whoever times the tries.
    pub(crate) fn jitter(&mut self) -> &mut Jitter {
        &mut self.jitter
    }

    /// Whether a connection stands.
    #[cfg(test)]
    pub(crate) fn online(&self) -> bool {
        self.line.is_some()
    }

    /// What is to be sent, in order.
    pub(crate) fn take_out(&mut self) -> Vec<ClientFrame> {
        std::mem::take(&mut self.out)
    }

    /// What is to be told, in order.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes a wish of the app.
    pub(crate) fn call(&mut self, now: Instant, body: ClientBody, done: Done) {
        if self.calls.len() >= MAX_CALLS {
            done.send(Err(Error::Busy)).ok();
            return;
        }
        match &body {
            ClientBody::Unwatch(topics) => topics.iter().for_each(|topic| self.forget(topic)),
            ClientBody::Watch(watch) => {
                self.book.lock().entry(watch.topic.clone()).or_default();
            }
            ClientBody::Leave => self.leave_by = Some(now + self.timing.ack_timeout),
            _ => {}
        }
        self.calls.add(body, Some(done));
        self.send_due(now);
    }

    /// Sends a new token in place.
    pub(crate) fn refresh(&mut self, now: Instant, token: Token) {
        if self.line.is_some() {
            self.calls.add(ClientBody::Refresh(token), None);
            self.send_due(now);
        }
    }

    /// Takes a frame of the server.
    pub(crate) fn frame(&mut self, now: Instant, frame: ServerFrame) -> Option<Signal> {
        let r#ref = frame.r#ref.as_ref();
        match frame.body {
            ServerBody::Ack => return self.acked(r#ref),
            ServerBody::PresenceState(state) => self.state(now, r#ref, state),
            ServerBody::PresenceDiff(diff) => self.diff(now, diff),
            ServerBody::Error(problem) => return self.problem(now, r#ref, problem),
            ServerBody::Reconnect { after_ms } => {
                return Some(Signal::Drain(told(after_ms)));
            }
            ServerBody::Expiring { in_ms } => {
                let left = told(in_ms);
                self.events.push(Event::Expiring { left });
                return Some(Signal::Expiring(left));
            }
            // One hello, one welcome; and that was taken by whoever opened the connection.
            ServerBody::Welcome(_) => {}
        }
        None
    }

    fn acked(&mut self, r#ref: Option<&Ref>) -> Option<Signal> {
        let (_, call) = self.calls.take(r#ref)?;
        self.intent.apply(&call.body);
        let end = matches!(call.body, ClientBody::Leave);
        call.finish(Ok(()));
        end.then_some(Signal::End(EndReason::Left))
    }

    fn problem(&mut self, now: Instant, r#ref: Option<&Ref>, problem: Problem) -> Option<Signal> {
        if Code::from_word(&problem.code).is_some_and(|c| c.close().is_some()) {
            return Some(Signal::Over(Cause::Problem(problem)));
        }
        match self.calls.take(r#ref) {
            Some((_, call)) if matches!(call.body, ClientBody::Heartbeat) => {}
            Some((id, call)) => match retry_after(&problem) {
                Some(after) => self.calls.rest(id, call, now + after),
                None => self.refused(call, problem),
            },
            None => self.events.push(Event::Error(problem)),
        }
        None
    }

    fn refused(&mut self, call: Call, problem: Problem) {
        if let ClientBody::Watch(watch) = &call.body
            && (call.done.is_none() || !self.intent.watches.contains_key(&watch.topic))
        {
            self.forget(&watch.topic);
        }
        if call.done.is_none() {
            self.events.push(Event::Error(problem));
        } else {
            call.finish(Err(Error::Refused(problem)));
        }
    }

    /// Does what the time asks for.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Signal> {
        if self.leave_by.is_some_and(|by| by <= now) {
            if let Some(call) = self.calls.take_leave() {
                call.finish(Err(Error::Unanswered));
            }
            return Some(Signal::End(EndReason::Left));
        }
        self.line.as_ref()?;
        if self.calls.overdue(now) {
            return Some(Signal::Over(Cause::Silent));
        }
        self.resync(now);
        self.send_due(now);
        if self.line.as_ref().is_some_and(|line| line.beat_at <= now) {
            self.calls.add(ClientBody::Heartbeat, None);
            self.send_due(now);
        }
        None
    }

    fn send_due(&mut self, now: Instant) {
        if self.line.is_none() {
            return;
        }
        let mut book = self.book.lock();
        let prepare = |body: &mut ClientBody| {
            if let ClientBody::Watch(watch) = body {
                topics::expect(&mut book, watch);
            }
        };
        let answer_by = now + self.timing.ack_timeout;
        let frames = self.calls.due(self.hold, now, answer_by, prepare);
        drop(book);
        if !frames.is_empty() {
            self.out.extend(frames);
            self.beat_later(now);
        }
    }

    /// Any frame counts as a beat.
    fn beat_later(&mut self, now: Instant) {
        if let Some(line) = &mut self.line {
            line.beat_at = now + self.jitter.nearly(line.beat_every);
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let line = self.line.as_ref();
        let beat = line.map(|line| line.beat_at);
        let calls = line.and_then(|_| self.calls.deadline(self.hold));
        let resync = line.and_then(|_| self.resyncs.values().map(|r| r.at).min());
        [beat, calls, resync, self.leave_by]
            .into_iter()
            .flatten()
            .min()
    }

    /// Everything is over: who waits is told.
    pub(crate) fn end(&mut self, reason: &EndReason) {
        if self.line.take().is_some() {
            self.events.push(Event::Disconnected);
        }
        for call in self.calls.drain() {
            let left = *reason == EndReason::Left && matches!(call.body, ClientBody::Leave);
            let ended = || Err(Error::Ended(reason.clone()));
            call.finish(if left { Ok(()) } else { ended() });
        }
        self.events.push(Event::Ended(reason.clone()));
    }
}
