//! The span in which a task works, for code that is not handed one.

use std::future::Future;

use opentelemetry::{
    Context as Attached,
    context::FutureExt as _,
    trace::{SpanContext, TraceContextExt as _, TraceFlags, TraceState},
};

use super::{Context, Span};

/// Runs a future within a span, which ends with it. Log lines of it name the trace.
pub async fn within<F: Future>(span: Option<Span>, future: F) -> F::Output {
    inside(span.as_ref().map(|span| span.context), future).await
}

/// The same within a span that goes on.
pub async fn inside<F: Future>(context: Option<Context>, future: F) -> F::Output {
    let Some(Context { trace, span: id }) = context else {
        return future.await;
    };
    let context = SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE);
    let attached = Attached::new().with_remote_span_context(context);
    future.with_context(attached).await
}

/// The span in which this runs.
#[must_use]
pub fn current() -> Option<Context> {
    if !super::on() {
        return None;
    }
    Attached::map_current(|attached| {
        if !attached.has_active_span() {
            return None;
        }
        let context = attached.span().span_context().clone();
        context.is_sampled().then(|| Context {
            trace: context.trace_id(),
            span: context.span_id(),
        })
    })
}
