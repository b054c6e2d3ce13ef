//! The internal listener: is this node alive, is it ready, how do its shards stand. Never public.

use std::{collections::BTreeMap, sync::Arc};

use adsum_core::{NodeId, membership::Membership, store::Shard};
use adsum_dispatcher::Dispatcher;
use adsum_gateway::feed::Feed;
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
    /// With the role.
    pub(crate) gateway: Option<Feed>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<GatewayReady>,
}

#[derive(Serialize)]
struct GatewayReady {
    dispatchers: u64,
    topics: u64,
    stale_shards: u64,
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
        .route("/metrics", get(metrics))
        .route("/admin/shards", get(shards))
        .with_state(parts)
}

async fn ready(State(parts): State<Arc<Parts>>) -> (StatusCode, Json<Ready>) {
    let ready = how(&parts);
    let code = if ready.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(ready))
}

fn how(parts: &Parts) -> Ready {
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
    let gateway = parts.gateway.as_ref().map(|feed| {
        let metrics = feed.metrics();
        GatewayReady {
            dispatchers: metrics.links.get(),
            topics: metrics.topics.get(),
            stale_shards: metrics.stale_shards.get(),
        }
    });
    let (ready, node) = (!useless, parts.membership.node());
    Ready {
        ready,
        node,
        membership,
        dispatcher,
        reaper,
        gateway,
    }
}

/// How things are now, for Prometheus.
async fn metrics(State(parts): State<Arc<Parts>>) -> Result<String, StatusCode> {
    let now = how(&parts);
    let mut rows = vec![
        (
            "adsum_membership_stale",
            "The registry can't be reached",
            u64::from(!now.membership.ok),
        ),
        (
            "adsum_members",
            "Nodes in the cluster",
            now.membership.members as u64,
        ),
    ];
    if let Some(d) = now.dispatcher {
        rows.push(("adsum_views", "Shards with a view here", d.shards as u64));
        rows.push((
            "adsum_views_current",
            "Views that follow their shard",
            d.current as u64,
        ));
    }
    if let Some(r) = now.reaper {
        rows.push(("adsum_reaper_shards", "Shards reaped here", r.shards as u64));
        rows.push((
            "adsum_reaper_idle",
            "Nothing can be reaped now",
            u64::from(r.idle.is_some()),
        ));
        rows.push((
            "adsum_reaper_closed",
            "Sessions closed since the start",
            r.closed,
        ));
        rows.push((
            "adsum_reaper_refusals",
            "Sweeps refused since the start",
            r.refusals,
        ));
    }
    if let Some(g) = now.gateway {
        rows.push((
            "adsum_feed_dispatchers",
            "Dispatchers that feed this node",
            g.dispatchers,
        ));
        rows.push(("adsum_feed_topics", "Topics that are asked for", g.topics));
        rows.push((
            "adsum_feed_stale_shards",
            "Shards without a source",
            g.stale_shards,
        ));
    }
    render(&rows).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn render(rows: &[(&str, &str, u64)]) -> prometheus::Result<String> {
    let registry = prometheus::Registry::new();
    for (name, help, value) in rows {
        let gauge = prometheus::IntGauge::new(*name, *help)?;
        gauge.set(i64::try_from(*value).unwrap_or(i64::MAX));
        registry.register(Box::new(gauge))?;
    }
    prometheus::TextEncoder::new().encode_to_string(&registry.gather())
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
