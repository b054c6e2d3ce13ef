//! The trace of a change that was not sampled and then was slow: made up at its end, from the
//! times that it brought along.

use opentelemetry::trace::SpanKind;
use std::sync::atomic::Ordering::Relaxed;

use super::{SLOW_US, Span, tracer};
use crate::{clock, metrics::metrics};

/// Slow changes told in a second: when everything is slow, a few of them tell the story.
const A_SECOND: u64 = 5;

/// The times of a change, wall clock, µs.
#[derive(Debug, Clone, Copy)]
pub struct Journey {
    /// A gateway took it.
    pub at_us: u64,
    /// The store had it; 0 when not known.
    pub committed_us: u64,
    /// A dispatcher had it in its queues; 0 when not known.
    pub routed_us: u64,
    /// It was told.
    pub told_us: u64,
    /// To so many.
    pub clients: usize,
}

/// Notes a change that was slow. Answers whether it was.
pub fn slow(journey: &Journey, sampled: bool) -> bool {
    let (limit, took) = (
        SLOW_US.load(Relaxed),
        journey.told_us.saturating_sub(journey.at_us),
    );
    if limit == 0 || took < limit {
        return false;
    }
    metrics().fanout_slow.one();
    if sampled {
        return true;
    }
    if let Some(tracer) = tracer()
        && tracer.rebuilt.take(A_SECOND, clock::wall_us() / 1_000_000)
    {
        let whole = Span::begin(tracer, "change", SpanKind::Server, None)
            .from(journey.at_us)
            .until(journey.told_us)
            .with("adsum.rebuilt", true)
            .with(
                "adsum.clients",
                i64::try_from(journey.clients).unwrap_or(i64::MAX),
            );
        let hops = [
            ("commit", journey.at_us, journey.committed_us),
            ("route", journey.committed_us, journey.routed_us),
            ("fan-out", journey.routed_us, journey.told_us),
        ];
        for (name, from, until) in hops.into_iter().filter(|(_, a, b)| *a > 0 && *b > 0) {
            let hop = whole.child(name, SpanKind::Internal);
            drop(hop.map(|hop| hop.from(from).until(until).with("adsum.rebuilt", true)));
        }
    }
    true
}

/// What is slow, from now on.
#[cfg(test)]
pub(super) fn set_slow(us: u64) {
    SLOW_US.store(us, Relaxed);
}
