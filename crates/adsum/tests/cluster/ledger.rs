//! What the logs and the nodes say of departures and of those who sweep: read from outside, and
//! compared with what was done.

use std::collections::BTreeMap;
use std::time::Duration;

use adsum_core::{
    Event, Incarnation, SessionKey,
    store::{Due, Shard, Store},
};
use adsum_tests::{Node, eventually};
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;

use crate::world::{SHARDS, key};

/// Entries of a log that are read at once.
const PAGE: usize = 1000;

/// Where every log stood.
#[derive(Debug)]
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// Where they stand now.
    pub(crate) async fn now(store: &dyn Store) -> Result<Self> {
        let all = (0..store.shards()).map(|shard| async move {
            let position = store.log(shard, 0, 0).await?.position;
            anyhow::Ok(position.context("a shard was not born")?.seq)
        });
        Ok(Self(try_join_all(all).await?))
    }

    /// How many logs have grown since then.
    pub(crate) async fn changed(&self, store: &dyn Store) -> Result<usize> {
        let now = Self::now(store).await?;
        let grown = self.0.iter().zip(&now.0).filter(|(was, is)| is > was);
        Ok(grown.count())
    }

    /// All closes since then: when, by the shards' clocks, and why.
    pub(crate) async fn closes(&self, store: &dyn Store) -> Result<Closes> {
        let all = (0..).zip(&self.0).map(|(shard, mark)| async move {
            let (mut after, mut found) = (*mark, Vec::new());
            loop {
                let page = store.log(shard, after, PAGE).await?;
                ensure!(!page.hole, "the log of shard {shard} was trimmed");
                let Some(last) = page.entries.last() else {
                    return Ok(found);
                };
                after = last.version.seq;
                for change in page.entries {
                    if let Event::Session {
                        owner,
                        device,
                        after: None,
                        ..
                    } = change.event
                    {
                        found.push((SessionKey::new(owner, device), change.at));
                    }
                }
            }
        });
        let mut closes: BTreeMap<SessionKey, Vec<u64>> = BTreeMap::new();
        for (key, at) in try_join_all(all).await?.into_iter().flatten() {
            closes.entry(key).or_default().push(at);
        }
        Ok(Closes(closes))
    }
}

/// Closes of sessions, with their times.
#[derive(Debug)]
pub(crate) struct Closes(BTreeMap<SessionKey, Vec<u64>>);

impl Closes {
    /// Whether exactly these sessions were closed, each of them once; when the last one was.
    pub(crate) fn once_each(&self, keys: &[SessionKey]) -> Result<u64> {
        for (key, times) in &self.0 {
            ensure!(times.len() == 1, "{key:?} was closed at {times:?}");
        }
        let missing = keys.iter().filter(|key| !self.0.contains_key(key)).count();
        ensure!(missing == 0, "{missing} of {} are not closed", keys.len());
        let (closed, wanted) = (self.0.len(), keys.len());
        ensure!(closed == wanted, "{closed} were closed, not {wanted}");
        self.last().context("nothing was closed")
    }

    /// When the last one was.
    pub(crate) fn last(&self) -> Option<u64> {
        self.0.values().flatten().copied().max()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Waits until exactly these sessions have been closed since `marks`, each of them once; answers
/// when the last one was.
pub(crate) async fn all_closed(
    store: &dyn Store,
    marks: &Marks,
    keys: &[SessionKey],
    limit: Duration,
) -> Result<u64> {
    eventually("all departures are in the logs", limit, || async {
        let closes = marks.closes(store).await?;
        let (closed, wanted) = (closes.len(), keys.len());
        ensure!(closed >= wanted, "{closed} of {wanted}");
        Ok(())
    })
    .await?;
    marks.closes(store).await?.once_each(keys)
}

/// One session for every shard, of users numbered from `from` on.
pub(crate) fn one_per_shard(store: &dyn Store, from: u64) -> Result<Vec<SessionKey>> {
    let mut found: BTreeMap<Shard, SessionKey> = BTreeMap::new();
    for n in from.. {
        let key = key(n)?;
        found.entry(store.shard_of(&key.owner)).or_insert(key);
        if found.len() == usize::from(store.shards()) {
            break;
        }
    }
    Ok(found.into_values().collect())
}

/// The latest deadline of a holder, in any shard; by the shards' clocks.
pub(crate) async fn deadline(store: &dyn Store, holder: &Incarnation) -> Result<u64> {
    let all = (0..store.shards()).map(|shard| store.deadlines(shard, 100));
    let wanted = Due::Holder(holder.clone());
    let dues = try_join_all(all).await?;
    let times = dues.iter().flatten().filter(|(due, _)| *due == wanted);
    let latest = times.map(|(_, at)| *at).max();
    latest.with_context(|| format!("{holder:?} has no deadline"))
}

/// The shards that a node sweeps: elected, claimed, and accepted; by the number of the fence.
pub(crate) async fn swept_by(node: &Node) -> Result<BTreeMap<Shard, u64>> {
    let all = node.shards().await?;
    let mut swept = BTreeMap::new();
    for (shard, line) in all.as_object().context("no object")? {
        let reaper = &line["reaper"];
        if let (Some(fence), true) = (reaper["fence"].as_u64(), reaper["idle"].is_null()) {
            swept.insert(shard.parse()?, fence);
        }
    }
    Ok(swept)
}

/// Waits until each shard is swept by exactly one of these nodes; answers how many by each.
pub(crate) async fn all_swept(nodes: &[&Node], limit: Duration) -> Result<Vec<usize>> {
    eventually("every shard is swept", limit, || async {
        let all = try_join_all(nodes.iter().map(|node| swept_by(node))).await?;
        let counts: Vec<usize> = all.iter().map(BTreeMap::len).collect();
        let mut shards: Vec<Shard> = all.iter().flat_map(|swept| swept.keys().copied()).collect();
        shards.sort_unstable();
        let every: Vec<Shard> = (0..SHARDS).collect();
        ensure!(shards == every, "swept: {counts:?}");
        Ok(counts)
    })
    .await
}
