//! Keeps the copy of the registry up to date: a list, a watch from the list's revision, and a
//! check every now and then that the watch has missed nothing. On any doubt, whatever its cause,
//! it lists again; nothing is ever resumed, so compaction can take nothing away.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::membership::MembershipError;
use etcd_client::{
    Client, EventType, GetOptions, KeyValue, SortOrder, SortTarget, WatchOptions, WatchResponse,
    WatchStream,
};
use tokio::time::{Instant, sleep};

use crate::registry::{Fingerprint, Item, Registry};
use crate::{backoff::Backoff, keys::Keys, pool::Pool, views::Views};

/// The task's state.
pub(crate) struct Mirror {
    pool: Arc<Pool>,
    prefix: Arc<str>,
    registry: Registry,
    views: Arc<Views>,
    check_interval: Duration,
}

impl Mirror {
    /// A mirror that publishes to `views`; `patience` is for members that an etcd without memory
    /// does not know yet.
    pub(crate) fn new(
        pool: Arc<Pool>,
        keys: Keys,
        views: Arc<Views>,
        check_interval: Duration,
        patience: Duration,
    ) -> Self {
        let prefix = keys.prefix().into();
        Self {
            pool,
            prefix,
            registry: Registry::new(keys, patience),
            views,
            check_interval,
        }
    }

    /// Reads everything, and publishes it.
    pub(crate) async fn list(&mut self) -> Result<(), MembershipError> {
        let prefix = &*self.prefix;
        let options = GetOptions::new().with_prefix();
        let get = |mut etcd: Client| {
            let options = options.clone();
            async move { etcd.get(prefix, Some(options)).await }
        };
        let list = self.pool.call(get).await?;
        let revision = list.header().map_or(0, |header| header.revision());
        self.registry.replace(revision, list.kvs().iter().map(item));
        self.publish();
        Ok(())
    }

    /// Follows the registry, from a copy that was just listed, for as long as it is polled.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            let doubt = self.follow().await;
            tracing::info!(doubt, "listing the registry again");
            if started.elapsed() > self.check_interval {
                backoff.reset();
            }
            loop {
                backoff.wait().await;
                let Err(error) = self.list().await else { break };
                tracing::warn!(%error, "etcd can't be reached, members are as last known");
                self.away();
            }
        }
    }

    /// Applies what the watch tells until there is a doubt, and gives it.
    async fn follow(&mut self) -> String {
        let mut stream = match self.watch().await {
            Ok(stream) => stream,
            Err(error) => return error.to_string(),
        };
        loop {
            match self.listen(&mut stream).await {
                Err(doubt) => return doubt,
                Ok(Err(error)) => {
                    self.away();
                    return error.to_string();
                }
                Ok(Ok(seen)) if seen.revision < self.registry.revision() => {
                    return "the revision went back".to_owned();
                }
                // Also when the watch is about to tell: listing once too often does no harm.
                Ok(Ok(seen)) if seen.fingerprint != self.registry.fingerprint() => {
                    return "the watch has missed something".to_owned();
                }
                // Those who were remembered may have had their time.
                Ok(Ok(_)) => self.publish(),
            }
        }
    }

    /// Applies what the watch tells until the next check, and gives what that has seen; a check
    /// that waits for etcd does not keep the watch waiting.
    async fn listen(&mut self, stream: &mut WatchStream) -> Result<Checked, String> {
        let (pool, prefix) = (Arc::clone(&self.pool), Arc::clone(&self.prefix));
        let mut check = std::pin::pin!(check(&pool, &prefix, self.check_interval));
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(response)) if response.canceled() => {
                        let (why, at) = (response.cancel_reason(), response.compact_revision());
                        return Err(format!("watch cancelled, compacted at {at}: {why}"));
                    }
                    Ok(Some(response)) => self.apply(&response),
                    Ok(None) => return Err("watch ended".to_owned()),
                    Err(error) => return Err(format!("watch broke: {error}")),
                },
                checked = &mut check => return Ok(checked),
            }
        }
    }

    fn apply(&mut self, response: &WatchResponse) {
        for event in response.events() {
            match (event.event_type(), event.kv()) {
                (EventType::Put, Some(kv)) => self.registry.put(&item(kv)),
                (EventType::Delete, Some(kv)) => self.registry.delete(kv.key()),
                (_, None) => {}
            }
        }
        if let Some(header) = response.header() {
            self.registry.advance(header.revision());
        }
        self.publish();
    }

    async fn watch(&self) -> Result<WatchStream, MembershipError> {
        let prefix = &*self.prefix;
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(self.registry.revision() + 1)
            .with_progress_notify();
        let watch = |mut etcd: Client| {
            let options = options.clone();
            async move { etcd.watch(prefix, Some(options)).await }
        };
        self.pool.call(watch).await
    }

    fn away(&mut self) {
        self.registry.away = true;
        self.publish();
    }

    fn publish(&mut self) {
        self.views
            .publish(self.registry.members(), self.registry.owners());
    }
}

/// What a check found.
struct Seen {
    revision: i64,
    fingerprint: Fingerprint,
}

type Checked = Result<Seen, MembershipError>;

/// After the interval, a linearizable read of one key's metadata: it tells of an etcd that is
/// gone, that was wiped or restored, or whose watch is silent.
async fn check(pool: &Pool, prefix: &str, interval: Duration) -> Checked {
    sleep(interval).await;
    let options = GetOptions::new()
        .with_prefix()
        .with_keys_only()
        .with_sort(SortTarget::Mod, SortOrder::Descend)
        .with_limit(1);
    let get = |mut etcd: Client| {
        let options = options.clone();
        async move { etcd.get(prefix, Some(options)).await }
    };
    let found = pool.call(get).await?;
    let fingerprint = Fingerprint {
        count: usize::try_from(found.count()).unwrap_or(0),
        last: found.kvs().first().map_or(0, KeyValue::mod_revision),
    };
    let revision = found.header().map_or(0, |header| header.revision());
    Ok(Seen {
        revision,
        fingerprint,
    })
}

fn item(kv: &KeyValue) -> Item<'_> {
    Item {
        key: kv.key(),
        value: kv.value(),
        mod_revision: kv.mod_revision(),
    }
}
