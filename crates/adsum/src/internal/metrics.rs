//! `/metrics`: how things are now, for Prometheus.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};

use super::{
    Parts,
    ready::{Ready, how},
};

/// A name, what it means, and its value.
type Row = (&'static str, &'static str, u64);

pub(super) async fn metrics(State(parts): State<Arc<Parts>>) -> Result<String, StatusCode> {
    let rows = rows(&how(&parts));
    render(&rows).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn rows(now: &Ready) -> Vec<Row> {
    let m = &now.membership;
    let mut rows = vec![
        (
            "adsum_membership_stale",
            "The registry can't be reached",
            u64::from(!m.ok),
        ),
        ("adsum_members", "Nodes in the cluster", m.members as u64),
    ];
    if let Some(d) = &now.dispatcher {
        rows.extend([
            ("adsum_views", "Shards with a view here", d.shards as u64),
            (
                "adsum_views_current",
                "Views that follow their shard",
                d.current as u64,
            ),
        ]);
    }
    if let Some(r) = &now.reaper {
        rows.extend([
            ("adsum_reaper_shards", "Shards reaped here", r.shards as u64),
            (
                "adsum_reaper_idle",
                "Nothing can be reaped now",
                u64::from(r.idle.is_some()),
            ),
            (
                "adsum_reaper_closed",
                "Sessions closed since the start",
                r.closed,
            ),
            (
                "adsum_reaper_refusals",
                "Sweeps refused since the start",
                r.refusals,
            ),
        ]);
    }
    if let Some(g) = &now.gateway {
        rows.extend([
            (
                "adsum_feed_dispatchers",
                "Dispatchers that feed this node",
                g.dispatchers,
            ),
            ("adsum_feed_topics", "Topics that are asked for", g.topics),
            (
                "adsum_feed_stale_shards",
                "Shards without a source",
                g.stale_shards,
            ),
            (
                "adsum_connections",
                "Clients connected to this node",
                g.connections,
            ),
            ("adsum_sessions", "Sessions held by this node", g.sessions),
            (
                "adsum_topics",
                "Topics that clients of this node watch",
                g.watched,
            ),
        ]);
    }
    rows
}

fn render(rows: &[Row]) -> prometheus::Result<String> {
    let registry = prometheus::Registry::new();
    for (name, help, value) in rows {
        let gauge = prometheus::IntGauge::new(*name, *help)?;
        gauge.set(i64::try_from(*value).unwrap_or(i64::MAX));
        registry.register(Box::new(gauge))?;
    }
    prometheus::TextEncoder::new().encode_to_string(&registry.gather())
}
