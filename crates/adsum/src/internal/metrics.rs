//! `/metrics`: how things are now, for Prometheus. What the parts keep themselves is brought up to
//! date here, whoever asks: Prometheus, or the collector's turn.

use std::sync::{Arc, Weak};

use adsum_core::{TenantId, membership::Role};
use adsum_telemetry::metrics::{self, Format, Metrics, Point};
use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::Parts;

pub(super) async fn metrics(headers: HeaderMap) -> Response {
    if !metrics::on() {
        let said = "telemetry.metrics is off\n";
        return (StatusCode::NOT_FOUND, said).into_response();
    }
    let accept = headers.get(header::ACCEPT);
    let format = Format::accepted(accept.and_then(|value| value.to_str().ok()));
    match format.write(&metrics::measured()) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// From now on numbers are brought up to date before they are read.
pub(super) fn observe(parts: &Arc<Parts>) {
    let parts = Arc::downgrade(parts);
    metrics::observe(move |metrics| {
        if let Some(parts) = Weak::upgrade(&parts) {
            look(&parts, metrics);
        }
    });
}

fn look(parts: &Parts, metrics: &Metrics) {
    let node = &parts.config.node;
    let roles: Vec<_> = node.roles.iter().map(|role| role.as_str()).collect();
    let build = Point::gauge(1.0)
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("roles", roles.join(","))
        .with("zone", node.zone.clone());
    metrics.build.replace(vec![build]);
    membership(parts, metrics);
    gateway(parts, metrics);
    dispatcher(parts, metrics);
    reaper(parts, metrics);
}

fn membership(parts: &Parts, metrics: &Metrics) {
    let (members, left) = (parts.membership.members(), parts.membership.lease_left());
    metrics.members.set(members.nodes.len());
    let stale = members.stale || left.is_zero();
    metrics.membership_stale.set(usize::from(stale));
    // Local membership has no lease to lose.
    let left = Some(left).filter(|left| left.as_secs() < 86_400);
    let left = left.map(|left| Point::gauge(left.as_secs_f64()));
    metrics.lease_left.replace(left.into_iter().collect());
}

fn gateway(parts: &Parts, metrics: &Metrics) {
    let Some(public) = &parts.public else { return };
    let (edge, feed) = (&public.edge, public.feed.metrics());
    metrics.sessions.set(edge.sessions());
    metrics.outbox_peak.set(edge.outbox_peak().0);
    let named = parts.config.telemetry.tenants.iter();
    let named = named.filter_map(|name| TenantId::new(name.as_str()).ok());
    let tenant = |tenant: TenantId| {
        #[allow(clippy::cast_precision_loss)]
        let connections = edge.counters().of_tenant(&tenant) as f64;
        Point::gauge(connections).with("tenant", tenant.to_string())
    };
    metrics
        .tenant_connections
        .replace(named.map(tenant).collect());
    for (gauge, now) in [
        (&metrics.feed_dispatchers, &feed.links),
        (&metrics.feed_topics, &feed.topics),
        (&metrics.feed_stale_shards, &feed.stale_shards),
        (&metrics.feed_contacts, &feed.contacts),
    ] {
        gauge.set(usize::try_from(now.get()).unwrap_or(usize::MAX));
    }
    for (counter, total) in [
        (&metrics.feed_states, &feed.states),
        (&metrics.feed_parts, &feed.parts),
        (&metrics.feed_diffs, &feed.diffs),
        (&metrics.feed_resyncs, &feed.resyncs),
        (&metrics.feed_moves, &feed.moves),
        (&metrics.feed_asked_again, &feed.asked_again),
        (&metrics.feed_failures, &feed.failures),
        (&metrics.feed_malformed, &feed.malformed),
        (&metrics.feed_contacts_evicted, &feed.contacts_evicted),
    ] {
        counter.observe(total.get());
    }
}

#[allow(clippy::cast_precision_loss)]
fn dispatcher(parts: &Parts, metrics: &Metrics) {
    let Some(dispatcher) = &parts.dispatcher else {
        return;
    };
    let status = dispatcher.status();
    metrics.views.set(status.len());
    let current = status.values().filter(|s| s.current).count();
    metrics.views_current.set(current);
    metrics.queue_peak.set(dispatcher.queue_peak().0);
    let table = |value: fn(&adsum_dispatcher::ShardStatus) -> f64| {
        let points = status.iter();
        let point =
            |(shard, s): (&u16, &_)| Point::gauge(value(s)).with("shard", shard.to_string());
        points.map(point).collect()
    };
    metrics.shard_seq.replace(table(|s| s.version.seq as f64));
    metrics.shard_lag.replace(table(|s| s.lag as f64));
    metrics.shard_people.replace(table(|s| s.people as f64));
    metrics.shard_rooms.replace(table(|s| s.rooms as f64));
    let age = table(|s| s.agreed.elapsed().as_secs_f64());
    metrics.shard_age.replace(age);
}

fn reaper(parts: &Parts, metrics: &Metrics) {
    let Some(reaper) = &parts.reaper else { return };
    let status = reaper.borrow();
    metrics.reaper_shards.set(status.shards.len());
    let idle = f64::from(u8::from(status.idle().is_some()));
    metrics.reaper_idle.replace(vec![Point::gauge(idle)]);
    let owned = status.shards.keys();
    let owned = owned.map(|shard| Point::gauge(1.0).with("shard", shard.to_string()));
    metrics.reaper_owner.replace(owned.collect());
    for (counter, total) in [
        (&metrics.sweeps, status.sweeps),
        (&metrics.reaper_closed, status.closed),
        (&metrics.refusals, status.refusals),
        (&metrics.elections, status.elections),
        (&metrics.reaper_losses, status.losses),
        (&metrics.handovers, status.handovers),
        (&metrics.reaper_errors, status.errors),
    ] {
        counter.observe(total);
    }
    let anybody = parts.membership.members().with(Role::Reaper).count() > 0;
    let owners = parts.membership.owners().len();
    let shards = usize::from(parts.store.shards());
    // A node that has not heard of its own cluster yet knows nothing of owners.
    let without = if anybody {
        shards.saturating_sub(owners)
    } else {
        0
    };
    metrics.ownerless.set(without);
}
