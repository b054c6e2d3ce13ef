//! Traces of changes. Whether one is made is decided before anything is: work that is not sampled
//! allocates nothing, takes no lock and reads no clock for it.
//!
//! A span's context travels with the change: from the client's frame into the entry of the shard's
//! log, from there with the states to every gateway. Each process adds spans under what it was
//! given. Of a change that was not sampled and was slow a trace is made up in the end, from the
//! times that came with it.

mod context;
mod current;
mod rebuilt;
mod sampler;
mod span;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::{SpanData, SpanProcessor};

pub use context::{Context, SpanId, TraceId};
pub use current::{current, inside, within};
pub use rebuilt::{Journey, slow};
pub use sampler::{Parents, Sampling};
pub use span::{Span, SpanKind, origin};

use crate::metrics::metrics;
use sampler::{Bucket, Decision, Sampler};

static ON: AtomicBool = AtomicBool::new(false);
/// What is slow, µs; 0 for nothing.
static SLOW_US: AtomicU64 = AtomicU64::new(0);
static TRACER: OnceLock<Tracer> = OnceLock::new();

/// Where sampled spans go.
pub struct Tracer {
    processor: Box<dyn SpanProcessor>,
    sampler: Sampler,
    scope: InstrumentationScope,
    /// Slow changes told this second.
    rebuilt: Bucket,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Tracer {
    fn send(&self, span: SpanData) {
        metrics().spans.one();
        self.processor.on_end(span);
    }

    fn scope(&self) -> InstrumentationScope {
        self.scope.clone()
    }
}

/// Traces from now on; only the first call of a process counts.
pub fn start(processor: impl SpanProcessor + 'static, sampling: Sampling, slow: Duration) {
    let tracer = Tracer {
        processor: Box::new(processor),
        sampler: Sampler::new(sampling),
        scope: InstrumentationScope::builder("adsum")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
        rebuilt: Bucket::default(),
    };
    if TRACER.set(tracer).is_ok() {
        SLOW_US.store(crate::clock::us(slow), Relaxed);
        ON.store(true, Relaxed);
    }
}

/// Sends what waits; blocks for at most so long.
pub fn stop(within: Duration) {
    ON.store(false, Relaxed);
    if let Some(tracer) = TRACER.get() {
        // What can't be sent any more is lost with the process.
        let _ = tracer.processor.shutdown_with_timeout(within);
    }
}

/// Whether anything is traced.
#[must_use]
pub fn on() -> bool {
    ON.load(Relaxed)
}

fn tracer() -> Option<&'static Tracer> {
    match on() {
        true => TRACER.get(),
        false => None,
    }
}

/// Begins the trace of what a client asks for, or its part of the client's own trace. Nothing if
/// it is not sampled.
#[must_use]
pub fn begin(name: &'static str, client: Option<&str>) -> Option<Span> {
    let tracer = tracer()?;
    match tracer.sampler.decide(client) {
        Decision::Sampled(parent) => Some(Span::begin(tracer, name, SpanKind::Server, parent)),
        Decision::Not => None,
    }
}

/// Begins a trace that no client asked for. Nothing if chance does not want it.
#[must_use]
pub fn root(name: &'static str, kind: SpanKind) -> Option<Span> {
    let tracer = tracer()?;
    let sampled = tracer.sampler.chance();
    sampled.then(|| Span::begin(tracer, name, kind, None))
}

/// Begins a part of a trace that is known to be sampled.
#[must_use]
pub fn under(name: &'static str, kind: SpanKind, parent: Option<Context>) -> Option<Span> {
    let parent = parent?;
    Some(Span::begin(tracer()?, name, kind, Some(parent)))
}

/// The same, under what travels in an origin.
#[must_use]
pub fn follow(name: &'static str, kind: SpanKind, traceparent: Option<&str>) -> Option<Span> {
    let tracer = tracer()?;
    let parent = Context::sampled(traceparent)?;
    Some(Span::begin(tracer, name, kind, Some(parent)))
}
