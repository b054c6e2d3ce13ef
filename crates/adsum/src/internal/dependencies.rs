//! What a node stands on, each with how it is and since when: the part of `/readyz` that explains
//! the rest.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use serde::Serialize;

use super::{Parts, ready};
use crate::clock;

/// How often it is looked even if nobody asks, so that `since` means something.
const EVERY: Duration = Duration::from_secs(1);

/// How one of them is.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    pub(super) ok: bool,
    /// Wall clock, ms: since when it is so.
    pub(super) since: u64,
    /// What it is made of here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    /// What is wrong, and what that means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// All of them by name.
pub(super) type Lines = BTreeMap<&'static str, Line>;

/// Since when each of them is as it is.
#[derive(Debug, Default)]
pub(crate) struct Since(Mutex<BTreeMap<&'static str, (bool, u64)>>);

impl Since {
    /// How it is; answers since when.
    fn note(&self, name: &'static str, ok: bool) -> u64 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now_ms();
        let entry = known.entry(name).or_insert((ok, now));
        if entry.0 != ok {
            *entry = (ok, now);
        }
        entry.1
    }
}

/// Looks now and then.
pub(super) fn watch(parts: &Arc<Parts>) {
    let parts = Arc::downgrade(parts);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(EVERY).await;
            let Some(parts) = Weak::upgrade(&parts) else {
                return;
            };
            drop(ready::how(&parts));
        }
    });
}

/// How all of them are.
pub(super) fn look(parts: &Parts) -> Lines {
    let mut lines = Lines::new();
    let (trouble, since) = parts.health.now();
    let error = trouble.map(|trouble| {
        format!(
            "{} shards do not answer; their users wait ({})",
            trouble.shards, trouble.error
        )
    });
    let store = Line {
        ok: error.is_none(),
        since,
        kind: Some(match parts.config.redis.urls.is_empty() {
            true => "memory",
            false => "redis",
        }),
        error,
    };
    lines.insert("store", store);
    let mut add = |name, kind, error: Option<String>| {
        let ok = error.is_none();
        let since = parts.since.note(name, ok);
        let line = Line {
            ok,
            since,
            kind,
            error,
        };
        lines.insert(name, line);
    };
    let kind = match parts.config.etcd.endpoints.is_empty() {
        true => "local",
        false => "etcd",
    };
    add("membership", Some(kind), membership(parts));
    if let Some(public) = &parts.public {
        let metrics = public.feed.metrics();
        let (stale, links) = (metrics.stale_shards.get(), metrics.links.get());
        let error = (stale > 0).then(|| {
            format!(
                "{stale} shards have no source ({links} dispatchers): what is seen of them is old"
            )
        });
        add("feed", None, error);
    }
    if let Some(dispatcher) = &parts.dispatcher {
        let status = dispatcher.status();
        let behind = status.values().filter(|s| !s.current).count();
        let all = status.len();
        let text = || format!("{behind} of {all} views can't follow their shard");
        add("views", None, (behind > 0).then(text));
    }
    if let Some(reaper) = &parts.reaper {
        let idle = reaper.borrow().idle();
        let text = |idle: adsum_reaper::Idle| format!("nothing can be closed: {}", idle.as_str());
        add("reaper", None, idle.map(text));
    }
    lines
}

fn membership(parts: &Parts) -> Option<String> {
    let stale = parts.membership.members().stale;
    let lost = parts.membership.lease_left().is_zero();
    match (stale, lost) {
        (_, true) => Some("this node has no lease: it reaps nothing".to_owned()),
        (true, false) => Some("members are as last known: nothing is reaped or moved".to_owned()),
        (false, false) => None,
    }
}
