//! All instruments. `docs/metrics.md` is made from this list.

use std::sync::LazyLock;

use adsum_core::Reason;

use super::{
    instrument::{
        Counter, Family, Gauge, Histogram, Instrument, SIZES, TIMES, Table, Totals, WAITS,
    },
    labels::{
        Call, Hop, Limit, Loss, Operation, Refusal, RegistryFault, Renewal, Signal, StoreFault,
        TopicKind, Transport,
    },
    snapshot::{About, Measured},
};

macro_rules! catalogue {
    ($(
        $(#[doc = $help:literal])*
        $field:ident: $type:ty = $make:expr, $name:literal, $unit:literal, [$($label:literal),*];
    )*) => {
        /// Everything that is counted and measured in this process.
        #[derive(Debug)]
        pub struct Metrics {
            $($(#[doc = $help])* pub $field: $type,)*
        }

        impl Metrics {
            fn new() -> Self {
                Self { $($field: $make,)* }
            }

            pub(super) fn measured(&self) -> Vec<Measured> {
                vec![$(Measured {
                    about: About {
                        name: $name,
                        unit: $unit,
                        help: concat!($($help),*).trim(),
                        kind: <$type as Instrument>::KIND,
                        labels: &[$($label),*],
                    },
                    points: self.$field.points(),
                }),*]
            }
        }
    };
}

type PerHop = Family<Hop, Histogram>;
type PerReason = Family<Reason, Histogram>;
type PerOperation = Family<Operation, Histogram>;
type PerCall = Family<Call, Histogram>;

fn times() -> Histogram {
    Histogram::new(TIMES)
}

catalogue! {
    /// What runs here: always 1.
    build: Table = Table::default(), "adsum.build.info", "", ["version", "roles", "zone"];
    /// Memory of the process that is in RAM.
    process_memory: Gauge = Gauge::default(), "process.memory.usage", "By", [];
    /// Processor time that the process has used.
    process_cpu: Totals = Totals::default(), "process.cpu.time", "s", [];
    /// Files and sockets that the process has open.
    process_files: Gauge = Gauge::default(), "process.open_files", "{file}", [];

    /// Nodes in the cluster, as this one knows it.
    members: Gauge = Gauge::default(), "adsum.members", "{node}", [];
    /// 1 while the registry (etcd) can't be reached: members are as last known, nothing is reaped.
    membership_stale: Gauge = Gauge::default(), "adsum.membership.stale", "", [];
    /// How long this node's lease still lives if it is not renewed.
    lease_left: Table = Table::default(), "adsum.membership.lease.remaining", "s", [];
    /// How long calls of the registry took.
    registry_calls: PerCall = Family::new(times), "adsum.registry.call.duration", "s", ["operation"];
    /// Calls of the registry that failed.
    registry_errors: Family<RegistryFault, Counter> = Family::new(Counter::default), "adsum.registry.errors", "{error}", ["error.type"];

    /// How long calls of the store (Redis) took, whether they succeeded or not.
    store_calls: PerOperation = Family::new(times), "db.client.operation.duration", "s", ["db.operation.name"];
    /// Calls of the store that failed.
    store_errors: Family<StoreFault, Counter> = Family::new(Counter::default), "adsum.store.errors", "{error}", ["error.type"];
    /// Shards whose last call to the store from this node failed.
    store_failing: Gauge = Gauge::default(), "adsum.store.failing.shards", "{shard}", [];

    /// Clients that are connected to this node.
    connections: Family<Transport, Gauge> = Family::new(Gauge::default), "adsum.connections", "{connection}", ["transport"];
    /// The same by tenant, for the tenants that `telemetry.tenants` names.
    tenant_connections: Table = Table::default(), "adsum.tenant.connections", "{connection}", ["tenant"];
    /// Sessions that this node holds for connected clients.
    sessions: Gauge = Gauge::default(), "adsum.sessions", "{session}", [];
    /// Topics that clients of this node watch.
    topics: Family<TopicKind, Gauge> = Family::new(Gauge::default), "adsum.topics", "{topic}", ["kind"];
    /// Watchers of topics at this node: one client that watches three topics counts three times.
    subscriptions: Gauge = Gauge::default(), "adsum.subscriptions", "{subscription}", [];
    /// How long a change took, hop by hop: `commit` (client's word to store's answer, at the gateway that took it), `route` (commit to the dispatcher's queues; the commit is known in ms), `deliver` (from there to the outboxes of watchers, at each gateway and topic; from the store's answer where the gateway committed it itself, ADR 14), `total`.
    fanout: PerHop = Family::new(times), "adsum.fanout.duration", "s", ["hop"];
    /// Changes that took longer than `telemetry.slow_ms`.
    fanout_slow: Counter = Counter::default(), "adsum.fanout.slow", "{change}", [];
    /// How long after a client's last sign of life its session was closed, by the gateway that held it. For `node_lost` see `adsum.reaper.lateness`.
    detection: PerReason = Family::new(|| Histogram::new(WAITS)), "adsum.detection.duration", "s", ["reason"];
    /// Diffs that were put into clients' outboxes.
    deliveries: Counter = Counter::default(), "adsum.deliveries", "{diff}", [];
    /// Whole states that were put into clients' outboxes.
    snapshots: Counter = Counter::default(), "adsum.snapshots", "{state}", [];
    /// Diffs that were merged into others because their client had not read those yet.
    conflations: Counter = Counter::default(), "adsum.conflations", "{diff}", [];
    /// Times that too much waited for a client and a topic, and a fresh state took its place.
    resyncs: Counter = Counter::default(), "adsum.resyncs", "{resync}", [];
    /// Entries in the fullest outbox, noted once for each diff that a topic told.
    outbox_depth: Histogram = Histogram::new(SIZES), "adsum.outbox.depth", "{entry}", [];
    /// The most entries that ever waited for one client of this node.
    outbox_peak: Gauge = Gauge::default(), "adsum.outbox.peak", "{entry}", [];
    /// Limits that somebody ran into.
    limits: Family<Limit, Counter> = Family::new(Counter::default), "adsum.limits.hit", "{refusal}", ["limit"];
    /// Tokens that were refused.
    auth_failures: Family<Refusal, Counter> = Family::new(Counter::default), "adsum.auth.failures", "{refusal}", ["reason"];
    /// Renewals of this gateway's holders, one holder for each shard.
    renewals: Family<Renewal, Counter> = Family::new(Counter::default), "adsum.holder.renewals", "{renewal}", ["outcome"];
    /// Sessions that the store had closed although their client was connected here: somebody was told something wrong. They are opened again at once.
    sessions_lost: Family<Loss, Counter> = Family::new(Counter::default), "adsum.sessions.lost", "{session}", ["cause"];

    /// Dispatchers that feed this gateway.
    feed_dispatchers: Gauge = Gauge::default(), "adsum.feed.dispatchers", "{dispatcher}", [];
    /// Topics that this gateway asks dispatchers for.
    feed_topics: Gauge = Gauge::default(), "adsum.feed.topics", "{topic}", [];
    /// Shards without a source: what clients see of them does not change.
    feed_stale_shards: Gauge = Gauge::default(), "adsum.feed.stale.shards", "{shard}", [];
    /// States that came from dispatchers.
    feed_states: Counter = Counter::default(), "adsum.feed.states", "{state}", [];
    /// Parts of topics that came from dispatchers.
    feed_parts: Counter = Counter::default(), "adsum.feed.parts", "{part}", [];
    /// Diffs that topics made of them.
    feed_diffs: Counter = Counter::default(), "adsum.feed.diffs", "{diff}", [];
    /// Topics whose task was too slow and took a new snapshot.
    feed_resyncs: Counter = Counter::default(), "adsum.feed.resyncs", "{resync}", [];
    /// Shards that went from one dispatcher to another.
    feed_moves: Counter = Counter::default(), "adsum.feed.moves", "{move}", [];
    /// Shards that were asked for again because a part did not come.
    feed_asked_again: Counter = Counter::default(), "adsum.feed.retries", "{retry}", [];
    /// Streams to dispatchers that broke or could not be opened.
    feed_failures: Counter = Counter::default(), "adsum.feed.failures", "{failure}", [];
    /// Frames of dispatchers that made no sense.
    feed_malformed: Counter = Counter::default(), "adsum.feed.malformed", "{frame}", [];
    /// Ids in all lists of contacts that this gateway keeps.
    feed_contacts: Gauge = Gauge::default(), "adsum.feed.contacts", "{user}", [];
    /// Lists of contacts that had to go for others.
    feed_contacts_evicted: Counter = Counter::default(), "adsum.feed.contacts.evicted", "{list}", [];

    /// Shards with a view at this dispatcher.
    views: Gauge = Gauge::default(), "adsum.views", "{view}", [];
    /// Views that follow their shard.
    views_current: Gauge = Gauge::default(), "adsum.views.current", "{view}", [];
    /// Views that were loaded anew because their log had a hole or their epoch settled.
    view_reloads: Counter = Counter::default(), "adsum.view.reloads", "{reload}", [];
    /// The number of the last change in the view of a shard.
    shard_seq: Table = Table::default(), "adsum.shard.seq", "{change}", ["shard"];
    /// Changes that the last look found in a shard's log and not in its view.
    shard_lag: Table = Table::default(), "adsum.shard.lag", "{change}", ["shard"];
    /// How long ago a shard's log was last seen to agree with its view.
    shard_age: Table = Table::default(), "adsum.shard.age", "s", ["shard"];
    /// People in the view of a shard, whoever may see them.
    shard_people: Table = Table::default(), "adsum.shard.people", "{person}", ["shard"];
    /// Rooms with somebody of this shard in them.
    shard_rooms: Table = Table::default(), "adsum.shard.rooms", "{room}", ["shard"];
    /// Changes that this dispatcher took from logs and pushes.
    changes: Counter = Counter::default(), "adsum.dispatcher.changes", "{change}", [];
    /// States that this dispatcher put into the queues of gateways.
    states: Counter = Counter::default(), "adsum.dispatcher.states", "{state}", [];
    /// Gateways attached to this dispatcher.
    streams: Gauge = Gauge::default(), "adsum.dispatcher.gateways", "{gateway}", [];
    /// Times that a gateway read too slowly, lost its queue, and got its topics whole.
    overflows: Counter = Counter::default(), "adsum.dispatcher.overflows", "{overflow}", [];
    /// The most states that ever waited for one gateway.
    queue_peak: Gauge = Gauge::default(), "adsum.feed.queue.peak", "{state}", [];

    /// Shards that this node was elected to reap.
    reaper_shards: Gauge = Gauge::default(), "adsum.reaper.shards", "{shard}", [];
    /// 1 for each shard that this node was elected to reap.
    reaper_owner: Table = Table::default(), "adsum.reaper.owner", "", ["shard"];
    /// Shards for which nobody is elected, as this node knows the registry.
    ownerless: Gauge = Gauge::default(), "adsum.reaper.ownerless.shards", "{shard}", [];
    /// 1 while this node can close nothing at all; only where the role is.
    reaper_idle: Table = Table::default(), "adsum.reaper.idle", "", [];
    /// Sweeps that were accepted.
    sweeps: Counter = Counter::default(), "adsum.reaper.sweeps", "{sweep}", [];
    /// How long sweeps took.
    sweep_duration: Histogram = times(), "adsum.reaper.sweep.duration", "s", [];
    /// How long after its deadline the first session of a sweep was closed. Who was lost with its node was silent for `times.holder_ttl_ms` before that, who beats over HTTP for `times.session_ttl_ms`.
    lateness: Histogram = Histogram::new(WAITS), "adsum.reaper.lateness", "s", [];
    /// Sessions that sweeps closed.
    reaper_closed: Counter = Counter::default(), "adsum.reaper.closed", "{session}", [];
    /// Sweeps that were refused by the fence.
    refusals: Counter = Counter::default(), "adsum.reaper.refusals", "{sweep}", [];
    /// Elections that this node won.
    elections: Counter = Counter::default(), "adsum.reaper.elections", "{election}", [];
    /// Shards that this node lost: its lease ended, or another node was elected.
    reaper_losses: Counter = Counter::default(), "adsum.reaper.losses", "{shard}", [];
    /// Shards that this node handed over to the one they are placed with.
    handovers: Counter = Counter::default(), "adsum.reaper.handovers", "{shard}", [];
    /// Calls of this reaper that failed.
    reaper_errors: Counter = Counter::default(), "adsum.reaper.errors", "{error}", [];

    /// Spans that were handed to the exporter.
    spans: Counter = Counter::default(), "adsum.telemetry.spans", "{span}", [];
    /// Batches that the collector did not take. What does not fit into the queue meanwhile is lost.
    export_failures: Family<Signal, Counter> = Family::new(Counter::default), "adsum.telemetry.export.failures", "{batch}", ["signal"];
}

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// The instruments of this process.
#[must_use]
pub fn metrics() -> &'static Metrics {
    &METRICS
}
