//! Frames that wait for their answer. What the app asked for outlives the connection: it is sent
//! again on the next one, in order, until it is answered.

use std::{collections::BTreeMap, time::Duration};

use adsum_core::Topic;
use adsum_proto::client::{
    Ref,
    frame::{ClientBody, ClientFrame, Problem, Set},
};
use tokio::{sync::oneshot, time::Instant};

use crate::Error;

/// Where the caller waits.
pub(crate) type Done = oneshot::Sender<Result<(), Error>>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// To be sent.
    Queued,
    /// Sent; the answer is due.
    Sent(Instant),
    /// Refused for now; to be sent again.
    Resting(Instant),
}

/// One frame and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) body: ClientBody,
    /// `None`: the client's own, which ends with the connection.
    pub(crate) done: Option<Done>,
    phase: Phase,
    /// The server may have done it already.
    tried: bool,
}

impl Call {
    /// Whether it waits while another connection is under way: all that the app asked for, and
    /// all that changes the session. The rest belongs to the connection that stands.
    fn waits(&self) -> bool {
        use ClientBody::{Join, Part, Set};
        self.done.is_some() || matches!(self.body, Join(_) | Part(_) | Set(_))
    }

    /// Tells the caller; one who went away does not matter.
    pub(crate) fn finish(self, result: Result<(), Error>) {
        if let Some(done) = self.done {
            done.send(result).ok();
        }
    }
}

/// All that is open, by the number in `ref`, which is also the order.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u64,
    open: BTreeMap<u64, Call>,
}

impl Calls {
    /// Takes a frame in, to be sent by [`due`](Self::due). What it makes pointless and is not
    /// under way is given up: sent later, it would undo this one.
    pub(crate) fn add(&mut self, body: ClientBody, done: Option<Done>) {
        self.open.retain(|_, call| {
            let over = !matches!(call.phase, Phase::Sent(_)) && overtakes(&body, &call.body);
            if let Some(done) = call.done.take_if(|_| over) {
                done.send(Err(Error::Overtaken)).ok();
            }
            !over
        });
        self.last += 1;
        let call = Call {
            body,
            done,
            phase: Phase::Queued,
            tried: false,
        };
        self.open.insert(self.last, call);
    }

    /// How many the app waits for.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a watch of the topic is open.
    pub(crate) fn watching(&self, topic: &Topic) -> bool {
        let mut bodies = self.open.values().map(|call| &call.body);
        bodies.any(|body| matches!(body, ClientBody::Watch(w) if w.topic == *topic))
    }

    /// What the server may have done without our knowing, oldest first.
    pub(crate) fn tried(&self) -> impl Iterator<Item = &ClientBody> {
        self.open.values().filter(|c| c.tried).map(|c| &c.body)
    }

    /// What is to be sent now, or, while `held`, only what can wait for no other connection;
    /// `prepare` may change a frame at the last moment.
    pub(crate) fn due(
        &mut self,
        held: bool,
        now: Instant,
        answer_by: Instant,
        mut prepare: impl FnMut(&mut ClientBody),
    ) -> Vec<ClientFrame> {
        let mut frames = Vec::new();
        for (id, call) in &mut self.open {
            match call.phase {
                _ if held && call.waits() => continue,
                Phase::Queued => {}
                Phase::Resting(until) if until <= now => {}
                _ => continue,
            }
            prepare(&mut call.body);
            call.phase = Phase::Sent(answer_by);
            call.tried = true;
            frames.push(ClientFrame {
                r#ref: Ref::new(id.to_string()).ok(),
                traceparent: None,
                body: call.body.clone(),
            });
        }
        frames
    }

    /// The call that a reply is for; it is open no more.
    pub(crate) fn take(&mut self, r#ref: Option<&Ref>) -> Option<(u64, Call)> {
        let id = r#ref?.as_str().parse().ok()?;
        let sent = |call: &Call| matches!(call.phase, Phase::Sent(_));
        if !self.open.get(&id).is_some_and(sent) {
            return None;
        }
        Some((id, self.open.remove(&id)?))
    }

    /// Puts a call back that was refused for now.
    pub(crate) fn rest(&mut self, id: u64, mut call: Call, until: Instant) {
        let mut newer = self.open.range(id..);
        if newer.any(|(_, newer)| overtakes(&newer.body, &call.body)) {
            return call.finish(Err(Error::Overtaken));
        }
        call.phase = Phase::Resting(until);
        self.open.insert(id, call);
    }

    /// The connection is gone: what the app asked for is to be sent again, the rest is over.
    pub(crate) fn requeue(&mut self) {
        self.open.retain(|_, call| call.done.is_some());
        for call in self.open.values_mut() {
            call.phase = Phase::Queued;
        }
    }

    /// Whether an answer is overdue.
    pub(crate) fn overdue(&self, now: Instant) -> bool {
        let mut calls = self.open.values();
        calls.any(|call| matches!(call.phase, Phase::Sent(due) if due <= now))
    }

    /// When something is to be done next; while calls are `held`, the end of their rest is
    /// nothing to wake up for.
    pub(crate) fn deadline(&self, held: bool) -> Option<Instant> {
        let times = self.open.values().filter_map(|call| match call.phase {
            Phase::Queued => None,
            Phase::Resting(_) if held && call.waits() => None,
            Phase::Sent(at) | Phase::Resting(at) => Some(at),
        });
        times.min()
    }

    /// The goodbye, if one is open.
    pub(crate) fn take_leave(&mut self) -> Option<Call> {
        let is_leave = |call: &Call| matches!(call.body, ClientBody::Leave);
        let id = *self.open.iter().find(|(_, call)| is_leave(call))?.0;
        self.open.remove(&id)
    }

    /// Everything is over.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Call> + use<> {
        std::mem::take(&mut self.open).into_values()
    }
}

/// Whether the older frame has no effect once the newer one is done.
fn overtakes(newer: &ClientBody, older: &ClientBody) -> bool {
    match (room(newer), room(older)) {
        (Some(newer), Some(older)) => return newer == older,
        (None, None) => {}
        _ => return false,
    }
    match (newer, older) {
        (ClientBody::Set(newer), ClientBody::Set(older)) => covers(newer, older),
        (ClientBody::Heartbeat, ClientBody::Heartbeat) => true,
        (ClientBody::Refresh(_), ClientBody::Refresh(_)) => true,
        _ => match (topics(newer), topics(older)) {
            ([], _) | (_, []) => false,
            (newer, older) => older.iter().all(|t| newer.contains(t)),
        },
    }
}

fn covers(newer: &Set, older: &Set) -> bool {
    let keeps = Set::default();
    (newer.activity.is_some() || older.activity.is_none())
        && (newer.status != keeps.status || older.status == keeps.status)
        && (newer.meta != keeps.meta || older.meta == keeps.meta)
}

fn room(body: &ClientBody) -> Option<&adsum_core::RoomId> {
    match body {
        ClientBody::Join(join) => Some(&join.room),
        ClientBody::Part(room) => Some(room),
        _ => None,
    }
}

fn topics(body: &ClientBody) -> &[Topic] {
    match body {
        ClientBody::Watch(watch) => std::slice::from_ref(&watch.topic),
        ClientBody::Unwatch(topics) => topics,
        _ => &[],
    }
}

/// How long to wait until the same may succeed on this connection; `None`: it never will.
pub(crate) fn retry_after(problem: &Problem) -> Option<Duration> {
    use adsum_proto::client::Code;
    let known = Code::from_word(&problem.code);
    if known.is_some_and(|code| code.close().is_some()) {
        return None;
    }
    let told = problem.retry_after_ms.map(super::told);
    let helps = known.is_some_and(Code::retry);
    told.or(helps.then_some(Duration::from_secs(1)))
}
