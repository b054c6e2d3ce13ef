//! Tests of spans, with a processor that keeps them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use opentelemetry::Context as Attached;
use opentelemetry_sdk::{error::OTelSdkResult, trace::Span as SdkSpan};

use super::*;

static KEPT: Mutex<Vec<SpanData>> = Mutex::new(Vec::new());
/// The tracer is one for the process.
static TURN: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Keep;

impl SpanProcessor for Keep {
    fn on_start(&self, _: &mut SdkSpan, _: &Attached) {}

    fn on_end(&self, span: SpanData) {
        KEPT.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn tracing() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let sampling = Sampling {
        rate: 0.0,
        parents: Parents::Believed(u64::MAX),
    };
    start(Keep, sampling, Duration::ZERO);
    KEPT.lock().unwrap().clear();
    turn
}

fn kept() -> Vec<SpanData> {
    std::mem::take(&mut *KEPT.lock().unwrap())
}

const CLIENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn spans_hang_together_and_end_when_dropped() {
    let _turn = tracing();
    assert!(begin("join", None).is_none());
    assert!(root("sweep", SpanKind::Internal).is_none());
    let join = begin("join", Some(CLIENT)).unwrap().with("adsum.shard", 3);
    let origin = origin(Some(&join));
    let mut commit = follow("commit", SpanKind::Client, origin.traceparent.as_deref()).unwrap();
    commit.link(Context::sampled(Some(CLIENT)).unwrap());
    commit.fail("no answer");
    assert!(kept().is_empty());
    drop(commit);
    drop(join);
    let [commit, join]: [SpanData; 2] = kept().try_into().unwrap();
    assert_eq!(commit.parent_span_id, join.span_context.span_id());
    assert_eq!(join.parent_span_id.to_string(), "00f067aa0ba902b7");
    for span in [&commit, &join] {
        assert_eq!(&span.span_context.trace_id().to_string(), &CLIENT[3..35]);
        assert!(span.span_context.is_sampled() && span.end_time >= span.start_time);
    }
    assert_eq!(commit.links.links.len(), 1);
    assert_eq!(join.attributes.len(), 1);
}

#[test]
fn a_task_knows_its_span() {
    let _turn = tracing();
    let span = begin("request", Some(CLIENT));
    let context = span.as_ref().unwrap().context;
    let found = |span| within(span, async { current() }).now_or_never();
    assert_eq!(found(span), Some(Some(context)));
    assert_eq!(current(), None);
    assert_eq!(found(None), Some(None));
}

#[test]
fn what_was_slow_is_told_afterwards() {
    let _turn = tracing();
    rebuilt::set_slow(1_000_000);
    let mut journey = Journey {
        at_us: 1_000_000,
        committed_us: 1_100_000,
        routed_us: 1_200_000,
        told_us: 1_900_000,
        clients: 7,
    };
    assert!(!slow(&journey, false));
    journey.told_us = 2_500_000;
    assert!(slow(&journey, true));
    assert!(kept().is_empty());
    assert!(slow(&journey, false));
    let spans = kept();
    let names: Vec<_> = spans.iter().map(|s| &*s.name).collect();
    assert_eq!(names, ["commit", "route", "fan-out", "change"]);
    let whole = &spans[3];
    let parents = spans[..3].iter().map(|s| s.parent_span_id);
    assert!(
        parents
            .into_iter()
            .all(|p| p == whole.span_context.span_id())
    );
    let took = |s: &SpanData| s.end_time.duration_since(s.start_time).unwrap().as_millis();
    assert_eq!(
        spans.iter().map(took).collect::<Vec<_>>(),
        [100, 100, 1300, 1500]
    );
    assert!((0..100).all(|_| slow(&journey, false)));
    assert!(kept().len() <= 4 * 10, "not all of them");
    rebuilt::set_slow(0);
}
