//! How long what a topic tells was under way, and the spans of telling it: one for each change
//! that is traced, whatever the number of clients.

use adsum_proto::client::Mode;
use adsum_telemetry::{
    clock,
    metrics::{Hop, metrics},
    trace::{self, Context, Journey, SpanKind},
};

use super::board::Board;
use crate::feed::{Cause, Causes};

/// Causes kept for one mode until it is told; more are not measured.
const MOST: usize = 1024;

/// Where what waits to be told came from, by mode.
#[derive(Debug, Default)]
pub(super) struct Journeys([Vec<Cause>; 3]);

const fn place(mode: Mode) -> usize {
    match mode {
        Mode::Members => 0,
        Mode::Interval => 1,
        Mode::Count => 2,
    }
}

impl Journeys {
    /// A diff came in, and the board has it.
    pub(super) fn add(&mut self, causes: &Causes, board: &Board) {
        for mode in Mode::ALL.into_iter().filter(|mode| board.pending(*mode)) {
            let waiting = &mut self.0[place(mode)];
            // Other modes are late on purpose: of them only what is traced is followed.
            let followed = |c: &&Cause| mode == Mode::Members || c.origin.traceparent.is_some();
            let room = MOST.saturating_sub(waiting.len());
            waiting.extend(causes.iter().filter(followed).take(room).cloned());
        }
    }

    /// A mode was told, so many clients of it, the fullest of whose outboxes has this many
    /// entries.
    pub(super) fn told(&mut self, mode: Mode, clients: usize, deepest: usize) {
        let metrics = metrics();
        metrics.deliveries.add(clients);
        metrics.outbox_depth.record(deepest as u64);
        let waiting = &mut self.0[place(mode)];
        if waiting.is_empty() {
            return;
        }
        let now = clock::wall_us();
        for cause in waiting.drain(..) {
            let context = match &cause.origin.traceparent {
                Some(parent) => Context::sampled(Some(parent)),
                None => None,
            };
            let trace = context.map(|context| context.trace);
            if mode == Mode::Members {
                let total = now.saturating_sub(cause.origin.at_us);
                metrics.fanout.of(Hop::Total).record_in(total, trace);
                if cause.routed_us > 0 {
                    let deliver = now.saturating_sub(cause.routed_us);
                    metrics.fanout.of(Hop::Deliver).record_in(deliver, trace);
                }
                let journey = Journey {
                    at_us: cause.origin.at_us,
                    committed_us: cause.committed_us,
                    routed_us: cause.routed_us,
                    told_us: now,
                    clients,
                };
                trace::slow(&journey, context.is_some());
            }
            if let Some(span) = trace::under("fan-out", SpanKind::Consumer, context) {
                drop(
                    span.from(cause.received_us)
                        .until(now)
                        .with("adsum.clients", i64::try_from(clients).unwrap_or(i64::MAX))
                        .with("adsum.mode", mode.as_str()),
                );
            }
        }
    }
}
