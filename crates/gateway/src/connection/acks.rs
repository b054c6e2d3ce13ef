//! Answers that wait until the store has what they acknowledge. Each operation of a session
//! carries its whole state, and newer ones overtake older ones, so one word of the store can
//! settle several.

use std::collections::VecDeque;

use adsum_core::State;
use adsum_proto::client::Ref;
use adsum_telemetry::trace::Span;
use tokio::time::Instant;

#[derive(Debug)]
struct Waiting {
    r#ref: Option<Ref>,
    state: State,
    late_at: Instant,
    /// Ends when the answer goes out.
    _span: Option<Box<Span>>,
}

/// Answers in the order of their frames.
#[derive(Debug, Default)]
pub(super) struct Acks(VecDeque<Waiting>);

impl Acks {
    pub(super) fn wait(
        &mut self,
        r#ref: Option<Ref>,
        state: State,
        late_at: Instant,
        span: Option<Span>,
    ) {
        self.0.push_back(Waiting {
            r#ref,
            state,
            late_at,
            _span: span.map(Box::new),
        });
    }

    /// The store has this state: all up to the last frame that asked for it are done.
    pub(super) fn recorded(&mut self, state: &State) -> Vec<Option<Ref>> {
        let done = self.0.iter().rposition(|w| same(&w.state, state));
        let done = done.map_or(0, |last| last + 1);
        let done = self.0.drain(..done).map(|w| w.r#ref).collect();
        // Most of the time nothing waits, and then it keeps no room.
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        done
    }

    /// Those who have waited long enough: what they ask for is taken, and will be written as
    /// soon as the store answers.
    pub(super) fn late(&mut self, now: Instant) -> Vec<Option<Ref>> {
        let late = self.0.iter().take_while(|w| w.late_at <= now).count();
        self.0.drain(..late).map(|w| w.r#ref).collect()
    }

    /// When the first of them has waited long enough.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|w| w.late_at)
    }
}

/// Whether a client would say that it is the same; times of joining are the store's.
fn same(a: &State, b: &State) -> bool {
    let rooms = |s: &State| {
        let rooms = s
            .rooms
            .iter()
            .map(|(room, stay)| (room.clone(), stay.meta.clone()));
        rooms.collect::<Vec<_>>()
    };
    a.kind == b.kind && a.activity == b.activity && a.meta == b.meta && rooms(a) == rooms(b)
}
