//! What is not sampled costs no allocation: counted, not believed.

// Counting allocations takes an allocator, and that takes `unsafe`.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

use adsum_telemetry::{
    metrics::{Hop, metrics},
    trace::{self, Context, Journey, Parents, Sampling, SpanKind},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanProcessor},
};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[derive(Debug)]
struct Nowhere;

impl SpanProcessor for Nowhere {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, _: SpanData) {}

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn allocations(work: impl Fn()) -> u64 {
    // What is made once, on first use, is made here.
    work();
    let before = COUNT.with(Cell::get);
    (0..1000).for_each(|_| work());
    COUNT.with(Cell::get) - before
}

const NOT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// All that a change meets on its way, through all processes.
fn way_of_a_change() {
    let span = trace::begin("join", None);
    assert!(span.is_none() && trace::begin("join", Some(NOT)).is_none());
    let origin = trace::origin(span.as_ref());
    assert!(trace::current().is_none());
    assert!(trace::root("commit", SpanKind::Client).is_none());
    assert!(trace::follow("tail", SpanKind::Consumer, origin.traceparent.as_deref()).is_none());
    assert!(trace::under("fan-out", SpanKind::Consumer, None).is_none());
    metrics().fanout.of(Hop::Total).record_in(1000, None);
    metrics().deliveries.add(7);
    metrics().outbox_depth.record(3);
    let journey = Journey {
        at_us: 1_000_000,
        committed_us: 1_000_100,
        routed_us: 1_000_200,
        told_us: 1_000_900,
        clients: 7,
    };
    assert!(!trace::slow(&journey, false));
}

#[test]
fn what_is_not_sampled_allocates_nothing() {
    assert!(!trace::on());
    assert_eq!(allocations(way_of_a_change), 0, "switched off");
    let sampling = Sampling {
        rate: 0.0,
        parents: Parents::Believed(1),
    };
    trace::start(Nowhere, sampling, Duration::from_secs(1));
    assert!(trace::on());
    assert_eq!(allocations(way_of_a_change), 0, "sampled out");
    assert!(
        allocations(|| drop(Context::sampled(Some(SAMPLED)).map(|c| c.traceparent()))) > 0,
        "the counter counts"
    );
}
