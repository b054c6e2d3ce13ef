//! The configuration as the parts take it: each has its own small struct, filled here and nowhere
//! else.

use std::{collections::HashMap, sync::Arc};

use adsum_core::{Limits, TenantId};
use adsum_dispatcher::DispatcherConfig;
use adsum_gateway::{
    EdgeConfig, EdgeTimes, HubConfig,
    feed::FeedConfig,
    holder::HolderConfig,
    limits::TenantSettings,
    listen::{Certificates, ListenConfig},
};
use adsum_reaper::ReaperConfig;
use adsum_store::Options;

use super::{Config, ms};

impl Config {
    /// How long a new epoch settles: until every live gateway and every client that holds itself
    /// must have been heard of.
    #[must_use]
    pub(crate) fn settle_ms(&self) -> u64 {
        let ttl = self.all_times().map(|t| t.session_ttl_ms).max();
        self.times.holder_ttl_ms.max(ttl.unwrap_or_default())
    }

    /// The times that clients of a tenant without its own feel.
    #[must_use]
    pub(crate) fn edge_times(&self) -> EdgeTimes {
        let t = &self.times;
        EdgeTimes {
            heartbeat_ms: t.heartbeat_ms,
            session_ttl_ms: t.session_ttl_ms,
            linger_ms: t.linger_ms,
            retention_ms: t.retention_ms,
        }
    }

    /// The same for everybody: the node's, and every tenant's own.
    fn all_times(&self) -> impl Iterator<Item = EdgeTimes> {
        let node = self.edge_times();
        let own = self.tenants.values().map(move |own| node.with(own));
        std::iter::once(node).chain(own)
    }

    /// What tenants have of their own.
    #[must_use]
    pub(crate) fn tenant_settings(&self) -> HashMap<TenantId, TenantSettings> {
        let own = self.tenants.iter();
        own.map(|(id, own)| (id.clone(), own.clone())).collect()
    }

    /// Of the store, which is one for all tenants: what the most generous of them needs.
    #[must_use]
    pub(crate) fn store_options(&self) -> Options {
        let (t, b, settle_ms) = (&self.times, &self.bounds, self.settle_ms());
        let linger = self.all_times().map(|t| t.linger_ms).max().unwrap_or(0);
        let drained = t.drain_window_ms.saturating_add(linger);
        Options {
            shards: self.cluster.shards,
            holder_ms: t.holder_ttl_ms,
            settle_ms,
            alive_gap_ms: t.alive_gap_ms,
            tomb_ms: t.tomb_ms,
            max_deadline_ms: t.tomb_ms.max(settle_ms).max(drained).saturating_mul(2),
            retention_ms: self.all_times().map(|t| t.retention_ms).max().unwrap_or(0),
            log_len: b.log_len,
            log_max_bytes: b.log_bytes,
            limits: self.session_limits(),
        }
    }

    fn session_limits(&self) -> Limits {
        let own = self.tenants.values().map(|own| self.limits.with(own));
        let all = own.map(|limits| limits.session());
        all.fold(self.limits.session(), |most, own| Limits {
            meta_bytes: most.meta_bytes.max(own.meta_bytes),
            rooms: most.rooms.max(own.rooms),
            contacts: most.contacts.max(own.contacts),
        })
    }

    /// Of the dispatcher.
    #[must_use]
    pub(crate) fn dispatcher(&self) -> DispatcherConfig {
        DispatcherConfig {
            cluster: self.cluster.name.clone(),
            layout: self.cluster.layout,
            poll: ms(self.times.poll_ms),
            replicas: self.bounds.feed_replicas,
            unload_after: ms(self.times.unload_ms),
            history: self.bounds.feed_history,
            queue: self.bounds.feed_queue,
            ..DispatcherConfig::default()
        }
    }

    /// Of the reaper.
    #[must_use]
    pub(crate) fn reaper(&self) -> ReaperConfig {
        let t = &self.times;
        ReaperConfig {
            shards: self.cluster.shards,
            sweep_interval: ms(t.sweep_ms),
            sweep_limit: self.bounds.sweep_limit,
            ownerless_grace: ms(t.ownerless_ms),
            lease_margin: ms(t.lease_ttl_ms) / 5,
            ..ReaperConfig::default()
        }
    }

    /// Of a gateway's side of the feed.
    #[must_use]
    pub(crate) fn feed(&self) -> FeedConfig {
        let (t, c) = (&self.times, &self.cluster);
        FeedConfig {
            silent_after: ms(t.silent_ms),
            stale_after: 3 * ms(t.silent_ms),
            complete_after: ms(t.complete_ms),
            ..FeedConfig::new(c.name.clone(), c.layout, c.shards)
        }
    }

    /// Of the edge.
    #[must_use]
    pub(crate) fn edge(&self) -> EdgeConfig {
        let (t, b) = (&self.times, &self.bounds);
        EdgeConfig {
            holder: HolderConfig {
                renew: ms(t.renew_ms),
                calm: ms(t.linger_ms),
                stuck: ms(t.stuck_ms),
                gather: ms(t.gather_ms),
                backlog: b.holder_backlog,
            },
            hub: HubConfig {
                window: ms(t.window_ms),
                interval: ms(t.interval_ms),
                interval_above: b.interval_above,
                count_above: b.count_above,
                sample: b.sample,
            },
            hello_within: ms(t.hello_ms),
            expiring: ms(t.expiring_ms),
            drain_window: ms(t.drain_window_ms),
            outbox_answers: b.outbox_answers,
            outbox_entries: b.outbox_entries,
            answer_within: ms(t.answer_ms),
            users_per_request: b.users_per_request,
            page: b.page,
        }
    }

    /// Of the public listener.
    #[must_use]
    pub(crate) fn public(&self, tls: Option<Arc<Certificates>>) -> ListenConfig {
        let (t, b) = (&self.times, &self.bounds);
        ListenConfig {
            handshake_within: ms(t.handshake_ms),
            header_within: ms(t.header_ms),
            body_within: ms(t.body_ms),
            idle: ms(t.idle_ms),
            pending: b.unfinished_connections,
            streams: b.streams_per_connection,
            tls,
        }
    }
}
