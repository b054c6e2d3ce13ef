//! Sees every entry of every log, by push and by reading, and remembers what each number meant.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use adsum_core::{
    Change, Event, Reason, UserKey, Version,
    store::{Push, Shard, Store},
};
use anyhow::{Result, bail};
use futures::StreamExt;

/// What was seen.
#[derive(Default)]
pub(crate) struct Witness(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    entries: HashMap<(Shard, Version), Change>,
    violations: Vec<String>,
}

impl Witness {
    fn see(&self, shard: Shard, change: Change) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (shard, change.version);
        match seen.entries.get(&key) {
            Some(known) if *known != change => {
                let text = format!("shard {shard}: {known:?} and {change:?}");
                seen.violations.push(text);
            }
            Some(_) => {}
            None => {
                if let Event::Session {
                    reason: Some(reason),
                    owner,
                    ..
                } = &change.event
                    && matches!(reason, Reason::NodeLost | Reason::Timeout)
                {
                    let text = format!("shard {shard}: {owner:?} was closed as {reason:?}");
                    seen.violations.push(text);
                }
                seen.entries.insert(key, change);
            }
        }
    }

    /// How many entries were seen, if nothing was wrong with them.
    pub(crate) fn check(&self) -> Result<usize> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = seen.violations.first() {
            bail!("{} violations, the first: {first}", seen.violations.len());
        }
        Ok(seen.entries.len())
    }

    /// All that happened to a user, and the epochs of their shard: what a failure is told with.
    pub(crate) fn story(&self, shard: Shard, owner: &UserKey) -> String {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = |event: &Event| match event {
            Event::Epoch | Event::Settled => true,
            Event::Session { owner: who, .. } | Event::Prefs { owner: who, .. } => who == owner,
        };
        let mut lines: Vec<_> = seen
            .entries
            .iter()
            .filter(|((s, _), change)| *s == shard && about(&change.event))
            .map(|((_, version), change)| {
                (
                    *version,
                    format!("{version} at {} {:?}", change.at, change.event),
                )
            })
            .collect();
        lines.sort();
        let lines: Vec<_> = lines
            .into_iter()
            .rev()
            .take(12)
            .map(|(_, line)| line)
            .collect();
        lines.join("\n")
    }

    /// How many new epochs began.
    pub(crate) fn epochs(&self) -> usize {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entries
            .values()
            .filter(|c| c.event == Event::Epoch)
            .count()
    }
}

/// Listens to a shard for good.
pub(crate) async fn listen(witness: Arc<Witness>, store: Arc<dyn Store>, shard: Shard) {
    loop {
        let Ok(mut pushes) = store.subscribe(shard).await else {
            continue;
        };
        while let Some(push) = pushes.next().await {
            if let Push::Change(change) = push {
                witness.see(shard, *change);
            }
        }
    }
}

/// Reads a shard's log again and again: from its beginning, since a failover may rewrite it.
pub(crate) async fn read(witness: Arc<Witness>, store: Arc<dyn Store>, shard: Shard) {
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let (mut after, mut epoch) = (0, 0);
    loop {
        tick.tick().await;
        let Ok(page) = store.log(shard, after, 1000).await else {
            continue;
        };
        for change in page.entries {
            after = change.version.seq;
            witness.see(shard, change);
        }
        if let Some(position) = page.position
            && position.epoch != epoch
        {
            (after, epoch) = (0, position.epoch);
        }
    }
}

/// Sweeps a shard as an elected reaper would.
pub(crate) async fn sweep(store: Arc<dyn Store>, shard: Shard) {
    use adsum_core::store::Swept;
    let mut fence = None;
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tick.tick().await;
        let Some(held) = fence else {
            fence = store.claim(shard).await.ok().map(|answer| answer.value);
            continue;
        };
        if let Ok(answer) = store.sweep(shard, held, 500).await
            && answer.value == Swept::Refused
        {
            fence = None;
        }
    }
}
