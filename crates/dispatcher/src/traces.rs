//! The spans of a change on its way through a dispatcher: `tail` from the commit until it is
//! taken, `view` until it is in the picture, `route` until it is in the queues of the gateways.
//! Only of changes that are sampled, and only where somebody is served.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use adsum_core::{Change, Event, SessionKey, TopicState, store::Shard};
use adsum_telemetry::{
    metrics::{Hop, metrics},
    trace::{self, Context, Span, SpanKind},
};

/// Sessions whose last trace is remembered, so that their end can name it.
const REMEMBERED: usize = 256;

/// What is under way in one shard.
#[derive(Default)]
pub(crate) struct Traces {
    /// Somebody is served: changes go on from here.
    pub(crate) served: bool,
    routes: Vec<Route>,
    last: HashMap<SessionKey, Context>,
    order: VecDeque<SessionKey>,
}

/// A change whose states are about to be handed on.
struct Route {
    traceparent: Arc<str>,
    gateways: i64,
    span: Span,
}

impl Traces {
    /// A change was taken and is in the view; its states carry the trace from now on.
    pub(crate) fn applied(
        &mut self,
        shard: Shard,
        change: &Change,
        states: &mut [TopicState],
        (taken_us, applied_us): (u64, u64),
    ) {
        if !self.served {
            return;
        }
        let committed_us = change.at.saturating_mul(1000);
        let origin = change.origin.as_ref();
        let parent = match origin.and_then(|o| o.traceparent.as_deref()) {
            Some(parent) if trace::on() => Context::sampled(Some(parent)),
            _ => None,
        };
        let took = applied_us.saturating_sub(committed_us);
        let hop = metrics().fanout.of(Hop::Route);
        hop.record_in(took, parent.map(|parent| parent.trace));
        let Some(tail) = trace::under("tail", SpanKind::Consumer, parent) else {
            return;
        };
        let mut tail = tail
            .from(committed_us.min(taken_us))
            .until(taken_us)
            .with("adsum.shard", i64::from(shard));
        self.remember(change, &mut tail);
        let view = tail.child("view", SpanKind::Internal);
        drop(view.map(|view| view.from(taken_us).until(applied_us)));
        let Some(route) = tail.child("route", SpanKind::Producer) else {
            return;
        };
        let span = route.from(applied_us);
        let traceparent = span.traceparent();
        for origin in states.iter_mut().filter_map(|state| state.origin.as_mut()) {
            origin.traceparent = Some(traceparent.clone());
        }
        self.routes.push(Route {
            traceparent,
            gateways: 0,
            span,
        });
    }

    /// What a reaper has closed names the last trace of its session.
    fn remember(&mut self, change: &Change, tail: &mut Span) {
        let Event::Session {
            owner,
            device,
            after,
            ..
        } = &change.event
        else {
            return;
        };
        let key = SessionKey::new(owner.clone(), device.clone());
        let last = match after {
            Some(_) => {
                self.order.push_back(key.clone());
                self.last.insert(key, tail.context)
            }
            None => self.last.remove(&key),
        };
        if let Some(last) = last
            && last.trace != tail.context.trace
        {
            tail.link(last);
        }
        while self.order.len() > REMEMBERED {
            if let Some(key) = self.order.pop_front() {
                self.last.remove(&key);
            }
        }
    }

    /// A state was put into the queues of so many gateways.
    pub(crate) fn routed(&mut self, state: &TopicState, gateways: usize) {
        let origin = state.origin.as_ref();
        let Some(parent) = origin.and_then(|o| o.traceparent.as_ref()) else {
            return;
        };
        let of = |route: &&mut Route| Arc::ptr_eq(&route.traceparent, parent);
        if let Some(route) = self.routes.iter_mut().find(of) {
            let gateways = i64::try_from(gateways).unwrap_or(i64::MAX);
            route.gateways = route.gateways.max(gateways);
        }
    }

    /// All states that are known were handed on.
    pub(crate) fn sent(&mut self) {
        for mut route in self.routes.drain(..) {
            route.span.set("adsum.gateways", route.gateways);
        }
    }
}
