//! `/readyz`: may clients and nodes be sent here, and how do its parts stand.

use std::sync::Arc;

use adsum_core::NodeId;
use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;

use super::{
    Parts,
    dependencies::{self, Lines},
};
use crate::drain::Stage;

/// How a node is.
#[derive(Serialize)]
pub(super) struct Ready {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopping: Option<Stage>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    node: NodeId,
    /// What it stands on, each with since when it is so.
    dependencies: Lines,
    pub(super) membership: Dependency,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dispatcher: Option<DispatcherReady>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reaper: Option<ReaperReady>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<GatewayReady>,
}

#[derive(Serialize)]
pub(super) struct GatewayReady {
    pub(super) dispatchers: u64,
    pub(super) topics: u64,
    pub(super) stale_shards: u64,
    pub(super) connections: u64,
    pub(super) sessions: u64,
    pub(super) watched: u64,
    /// The most entries that ever waited for one client, and the bound.
    pub(super) outbox_peak: u64,
    pub(super) outbox_limit: u64,
}

#[derive(Serialize)]
pub(super) struct Dependency {
    pub(super) ok: bool,
    pub(super) members: usize,
    lease_left_ms: u64,
}

#[derive(Serialize)]
pub(super) struct DispatcherReady {
    #[serde(skip)]
    placed: bool,
    pub(super) shards: usize,
    pub(super) current: usize,
    /// The most states that ever waited for one gateway, and the bound.
    pub(super) queue_peak: usize,
    pub(super) queue_limit: usize,
}

#[derive(Serialize)]
pub(super) struct ReaperReady {
    pub(super) shards: usize,
    pub(super) sweeps: u64,
    pub(super) closed: u64,
    pub(super) refusals: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle: Option<&'static str>,
}

pub(super) async fn ready(State(parts): State<Arc<Parts>>) -> (StatusCode, Json<Ready>) {
    let ready = how(&parts);
    let code = if ready.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(ready))
}

/// How it is now.
pub(super) fn how(parts: &Parts) -> Ready {
    let dispatcher = dispatcher(parts);
    // A node goes on with the members it knows, so a lost registry does not make it unready; a
    // dispatcher that can read no shard, or that does not know yet which are its own, is of no use
    // to anybody.
    let useless = dispatcher
        .as_ref()
        .and_then(|d| match (d.placed, d.shards, d.current) {
            (false, ..) => Some("it does not know its shards yet"),
            (true, 1.., 0) => Some("no view follows its shard: the store can't be read"),
            _ => None,
        });
    let stage = parts.drain.stage();
    let stopping = (stage != Stage::Running).then_some(stage);
    Ready {
        ready: useless.is_none() && stopping.is_none(),
        stopping,
        reason: match stopping {
            Some(_) => Some("it stops: its clients are sent elsewhere"),
            None => useless,
        },
        dependencies: dependencies::look(parts),
        node: parts.membership.node(),
        membership: membership(parts),
        dispatcher,
        reaper: reaper(parts),
        gateway: gateway(parts),
    }
}

fn membership(parts: &Parts) -> Dependency {
    let (members, left) = (parts.membership.members(), parts.membership.lease_left());
    Dependency {
        ok: !members.stale && !left.is_zero(),
        members: members.nodes.len(),
        lease_left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    }
}

fn dispatcher(parts: &Parts) -> Option<DispatcherReady> {
    let dispatcher = parts.dispatcher.as_ref()?;
    let status = dispatcher.status();
    let (queue_peak, queue_limit) = dispatcher.queue_peak();
    Some(DispatcherReady {
        placed: dispatcher.placed(),
        shards: status.len(),
        current: status.values().filter(|s| s.current).count(),
        queue_peak,
        queue_limit,
    })
}

fn reaper(parts: &Parts) -> Option<ReaperReady> {
    let status = parts.reaper.as_ref()?.borrow();
    Some(ReaperReady {
        shards: status.shards.len(),
        sweeps: status.sweeps,
        closed: status.closed,
        refusals: status.refusals,
        idle: status.idle().map(adsum_reaper::Idle::as_str),
    })
}

fn gateway(parts: &Parts) -> Option<GatewayReady> {
    let public = parts.public.as_ref()?;
    let metrics = public.feed.metrics();
    let (peak, limit) = public.edge.outbox_peak();
    Some(GatewayReady {
        dispatchers: metrics.links.get(),
        topics: metrics.topics.get(),
        stale_shards: metrics.stale_shards.get(),
        connections: public.edge.counters().connections() as u64,
        sessions: public.edge.sessions() as u64,
        watched: public.edge.topics() as u64,
        outbox_peak: peak as u64,
        outbox_limit: limit as u64,
    })
}
