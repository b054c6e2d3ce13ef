//! What all tasks of the feed share. Links put into the rosters what they read, side by side: a
//! topic's lock is all that they can meet at.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use adsum_core::{Change, TenantId, UserId, ring::ShardRing, states_of, store::Shard};
use adsum_proto::Check;
use adsum_telemetry::{clock, metrics, trace};
use tokio::time::Instant;

use super::{
    config::FeedConfig,
    contacts::Contacts,
    frames::{Decoded, Kind, Seen},
    metrics::FeedMetrics,
    topic::Op,
    topics::Topics,
    watch::Cause,
};

/// Told the epoch of a shard when a frame shows a new one: the store's `observe`.
pub type Observe = Arc<dyn Fn(Shard, u64) + Send + Sync>;

/// Told of sessions that a service has closed or whose user prefers something else, wherever they
/// are connected.
pub type OnCheck = Arc<dyn Fn(Check) + Send + Sync>;

pub(super) struct Shared {
    pub(super) config: Arc<FeedConfig>,
    pub(super) topics: Arc<Topics>,
    pub(super) contacts: Contacts,
    pub(super) metrics: Arc<FeedMetrics>,
    observe: Observe,
    pub(super) check: OnceLock<OnCheck>,
    epochs: Vec<AtomicU64>,
    started: Instant,
}

impl Shared {
    pub(super) fn new(config: Arc<FeedConfig>, ring: ShardRing, observe: Observe) -> Self {
        let shards = usize::from(config.shards);
        Self {
            topics: Arc::new(Topics::new(Arc::clone(&config), ring)),
            contacts: Contacts::new(config.contacts_max),
            metrics: Arc::default(),
            observe,
            check: OnceLock::new(),
            epochs: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            started: Instant::now(),
            config,
        }
    }

    /// Puts a batch into the rosters and tells their watchers; answers what the router must know.
    pub(super) fn take(&self, batch: Decoded) -> Vec<Seen> {
        batch.seen.iter().for_each(|s| self.saw_epoch(s));
        self.metrics.states.add(batch.states);
        self.metrics.parts.add(batch.parts);
        // Lists come first, so that those they decide about are judged rightly at once.
        let mut listed: HashMap<TenantId, Vec<UserId>> = HashMap::new();
        for list in batch.contacts {
            let owner = list.owner.clone();
            if (self.contacts).put(list.owner, list.version, list.users, &self.metrics) {
                listed.entry(owner.tenant).or_default().push(owner.user);
            }
        }
        let now = self.now();
        for (key, ops) in batch.ops {
            // What was dropped lately may still be under way.
            if let Some(topic) = self.topics.get(&key) {
                topic.take(ops, now, &self.metrics);
            }
        }
        for (tenant, users) in listed {
            self.topics.contacts(&tenant, &users, &self.metrics);
        }
        if let Some(tell) = self.check.get() {
            batch.checks.into_iter().for_each(|check| tell(check));
        }
        let mut seen = batch.seen;
        seen.retain(|s| s.settling || s.kind != Kind::Other);
        seen
    }

    /// Puts a change into the rosters ahead of the feed. What the feed says of it later is no news.
    pub(super) fn foresee(&self, shard: Shard, change: &Change) {
        let measured = change
            .origin
            .as_ref()
            .filter(|_| metrics::on() || trace::on());
        let cause = measured.map(|origin| {
            let now = clock::wall_us();
            Cause {
                origin: origin.clone(),
                committed_us: now,
                routed_us: now,
                received_us: now,
            }
        });
        for state in states_of(change) {
            let key = (state.tenant, state.topic);
            if let Some(topic) = self.topics.get(&key) {
                let op = Op::State {
                    user: state.user,
                    presence: state.presence,
                    version: state.version,
                    cause: cause.clone(),
                };
                topic.foresee(shard, change.version.epoch, op, self.now(), &self.metrics);
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn saw_epoch(&self, seen: &Seen) {
        let Some(known) = self.epochs.get(usize::from(seen.shard)) else {
            return;
        };
        let epoch = seen.version.epoch;
        if known.fetch_max(epoch, Ordering::Relaxed) < epoch {
            (self.observe)(seen.shard, epoch);
        }
    }
}
