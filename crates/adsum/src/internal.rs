//! The internal listener: is this node alive, is it ready, how do its shards stand. Never public.

use std::{collections::BTreeMap, sync::Arc};

use adsum_core::{NodeId, membership::Membership, store::Shard};
use adsum_dispatcher::Dispatcher;
use adsum_reaper::ReaperStatus;
use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use serde::Serialize;
use tokio::sync::watch;

/// What the node is made of.
pub(crate) struct Parts {
    /// Who is in the cluster.
    pub(crate) membership: Arc<dyn Membership>,
    /// With the role.
    pub(crate) dispatcher: Option<Dispatcher>,
    /// With the role.
    pub(crate) reaper: Option<watch::Receiver<ReaperStatus>>,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    node: NodeId,
    membership: Dependency,
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatcher: Option<DispatcherReady>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reaper: Option<ReaperReady>,
}

#[derive(Serialize)]
struct Dependency {
    ok: bool,
    members: usize,
    lease_left_ms: u64,
}

#[derive(Serialize)]
struct DispatcherReady {
    shards: usize,
    current: usize,
}

#[derive(Serialize)]
struct ReaperReady {
    shards: usize,
    sweeps: u64,
    closed: u64,
    refusals: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<&'static str>,
}

#[derive(Serialize, Default)]
struct ShardLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<ViewLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reaper: Option<ReaperLine>,
}

#[derive(Serialize)]
struct ViewLine {
    version: adsum_core::Version,
    settling: bool,
    people: usize,
    gateways: usize,
    current: bool,
}

#[derive(Serialize)]
struct ReaperLine {
    fence: Option<u64>,
    closed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<&'static str>,
}

/// The routes.
pub(crate) fn router(parts: Arc<Parts>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/admin/shards", get(shards))
        .with_state(parts)
}

async fn ready(State(parts): State<Arc<Parts>>) -> (StatusCode, Json<Ready>) {
    let members = parts.membership.members();
    let left = parts.membership.lease_left();
    let membership = Dependency {
        ok: !members.stale && !left.is_zero(),
        members: members.nodes.len(),
        lease_left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    };
    let dispatcher = parts.dispatcher.as_ref().map(|d| {
        let status = d.status();
        let current = status.values().filter(|s| s.current).count();
        DispatcherReady {
            shards: status.len(),
            current,
        }
    });
    let reaper = parts.reaper.as_ref().map(|status| {
        let status = status.borrow();
        ReaperReady {
            shards: status.shards.len(),
            sweeps: status.sweeps,
            closed: status.closed,
            refusals: status.refusals,
            idle: status.idle().map(adsum_reaper::Idle::as_str),
        }
    });
    // A node goes on with the members it knows, so a lost registry does not make it unready; a
    // dispatcher that can read no shard is of no use to anybody.
    let useless = dispatcher
        .as_ref()
        .is_some_and(|d| d.shards > 0 && d.current == 0);
    let ready = !useless;
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let node = parts.membership.node();
    (
        code,
        Json(Ready {
            ready,
            node,
            membership,
            dispatcher,
            reaper,
        }),
    )
}

async fn shards(State(parts): State<Arc<Parts>>) -> Json<BTreeMap<Shard, ShardLine>> {
    let mut lines: BTreeMap<Shard, ShardLine> = BTreeMap::new();
    if let Some(dispatcher) = &parts.dispatcher {
        for (shard, s) in dispatcher.status() {
            let view = ViewLine {
                version: s.version,
                settling: s.settling,
                people: s.people,
                gateways: s.gateways,
                current: s.current,
            };
            lines.entry(shard).or_default().view = Some(view);
        }
    }
    if let Some(reaper) = &parts.reaper {
        for (shard, s) in &reaper.borrow().shards {
            let line = ReaperLine {
                fence: s.fence.map(|f| f.number),
                closed: s.closed,
                idle: s.idle.map(adsum_reaper::Idle::as_str),
            };
            lines.entry(*shard).or_default().reaper = Some(line);
        }
    }
    Json(lines)
}
