//! One span. It exists only if its trace is sampled, and it is sent when it is dropped.

use std::{borrow::Cow, sync::Arc};

use adsum_core::Origin;
pub use opentelemetry::trace::SpanKind;
use opentelemetry::{
    KeyValue, Value,
    trace::{Link, SpanContext, SpanId, Status, TraceFlags, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{Tracer, context::Context};
use crate::clock;

/// A span under way.
#[derive(Debug)]
pub struct Span {
    /// What travels to those that it causes.
    pub context: Context,
    parent: SpanId,
    kind: SpanKind,
    name: Cow<'static, str>,
    start_us: u64,
    end_us: Option<u64>,
    attributes: Vec<KeyValue>,
    links: Vec<Context>,
    error: Option<Cow<'static, str>>,
    tracer: Option<&'static Tracer>,
}

impl Span {
    pub(super) fn begin(
        tracer: &'static Tracer,
        name: &'static str,
        kind: SpanKind,
        parent: Option<Context>,
    ) -> Self {
        // Zero is no id; two in a row are not met in a lifetime.
        let trace = parent.map_or_else(|| rand::random::<u128>().max(1).into(), |p| p.trace);
        Self {
            context: Context {
                trace,
                span: rand::random::<u64>().max(1).into(),
            },
            parent: parent.map_or(SpanId::INVALID, |p| p.span),
            kind,
            name: Cow::Borrowed(name),
            start_us: clock::wall_us(),
            end_us: None,
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
            tracer: Some(tracer),
        }
    }

    /// A span within this one.
    #[must_use]
    pub fn child(&self, name: &'static str, kind: SpanKind) -> Option<Self> {
        let tracer = self.tracer?;
        Some(Self::begin(tracer, name, kind, Some(self.context)))
    }

    /// By another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }

    /// It began at another time than now: wall clock, µs.
    #[must_use]
    pub const fn from(mut self, us: u64) -> Self {
        self.start_us = us;
        self
    }

    /// It ended at another time than when it is dropped. Clocks of two machines differ: an end
    /// before the beginning is taken for the beginning.
    #[must_use]
    pub const fn until(mut self, us: u64) -> Self {
        self.end_us = Some(us);
        self
    }

    /// Says something about it.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.set(key, value);
        self
    }

    /// Says something about it.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push(KeyValue::new(key, value));
    }

    /// Another trace has to do with it.
    pub fn link(&mut self, to: Context) {
        self.links.push(to);
    }

    /// It did not succeed.
    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        self.error = Some(why.into());
    }

    /// It is not worth telling.
    pub fn forget(mut self) {
        self.tracer = None;
    }

    /// As it travels.
    #[must_use]
    pub fn traceparent(&self) -> Arc<str> {
        self.context.traceparent()
    }
}

/// Where a change came from, now, with the span that it belongs to if there is one.
#[must_use]
pub fn origin(span: Option<&Span>) -> Origin {
    Origin {
        at_us: clock::wall_us(),
        traceparent: span.map(Span::traceparent),
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(tracer) = self.tracer else { return };
        let context = |of: &Context, remote| {
            let state = TraceState::NONE;
            SpanContext::new(of.trace, of.span, TraceFlags::SAMPLED, remote, state)
        };
        let mut links = SpanLinks::default();
        let to = self.links.iter();
        links.links = to.map(|to| Link::with_context(context(to, true))).collect();
        let end_us = self.end_us.unwrap_or_else(clock::wall_us);
        tracer.send(SpanData {
            span_context: context(&self.context, false),
            parent_span_id: self.parent,
            parent_span_is_remote: false,
            span_kind: self.kind.clone(),
            name: std::mem::take(&mut self.name),
            start_time: clock::system_time(self.start_us),
            end_time: clock::system_time(end_us.max(self.start_us)),
            attributes: std::mem::take(&mut self.attributes),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: self
                .error
                .take()
                .map_or(Status::Unset, |description| Status::Error { description }),
            instrumentation_scope: tracer.scope(),
        });
    }
}
