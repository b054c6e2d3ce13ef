//! `/admin/shards`: how all shards stand, asked of any node. `?count=true` counts people and
//! sessions, which reads them all.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use adsum_core::{
    NodeId, Version,
    store::{Position, Shard, Store, StoreError},
};
use axum::{
    Json,
    extract::{Query, State},
};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::{Parts, who::Responsible};

/// Shards asked at a time.
const AT_ONCE: usize = 64;
/// For each of them: a shard that does not answer must not hide the others.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same when all its people are counted.
const COUNTING: Duration = Duration::from_secs(30);

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Ask {
    count: bool,
}

/// How a shard stands.
#[derive(Serialize, Default)]
pub(super) struct ShardLine {
    /// Who should keep a view of it, the first one first.
    dispatchers: Vec<NodeId>,
    /// Who is elected to sweep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogLine>,
    /// Why the store says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Changes that the view here does not have yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<ViewLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reaper: Option<ReaperLine>,
}

/// Where its log stands in the store.
#[derive(Serialize)]
struct LogLine {
    epoch: u64,
    seq: u64,
    first: u64,
    settling: bool,
}

#[derive(Serialize, Default, Clone, Copy)]
struct Count {
    people: usize,
    sessions: usize,
}

#[derive(Serialize)]
struct ViewLine {
    version: Version,
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

pub(super) async fn shards(
    State(parts): State<Arc<Parts>>,
    Query(ask): Query<Ask>,
) -> Json<BTreeMap<Shard, ShardLine>> {
    let who = Responsible::now(&parts);
    let store = &parts.store;
    let asked = stream::iter(0..store.shards())
        .map(|shard| async move { (shard, stored(store, shard, ask.count).await) })
        .buffer_unordered(AT_ONCE);
    let stored: Vec<_> = asked.collect().await;
    let mut lines = BTreeMap::new();
    for (shard, stored) in stored {
        let line = ShardLine {
            dispatchers: who.dispatchers(shard),
            owner: who.reaper(shard),
            ..stored
        };
        lines.insert(shard, line);
    }
    here(&parts, &mut lines);
    Json(lines)
}

/// What the store knows of a shard.
async fn stored(store: &Arc<dyn Store>, shard: Shard, count: bool) -> ShardLine {
    let found = async {
        let position = store.log(shard, 0, 0).await?.position;
        let count = match count {
            true => Some(counted(store, shard).await?),
            false => None,
        };
        Ok::<_, StoreError>((position.map(LogLine::from), count))
    };
    let patience = if count { COUNTING } else { PATIENCE };
    let found = tokio::time::timeout(patience, found).await;
    let mut line = ShardLine::default();
    match found {
        Ok(Ok((log, count))) => (line.log, line.count) = (log, count),
        Ok(Err(error)) => line.error = Some(error.to_string()),
        Err(_) => line.error = Some("the store did not answer in time".to_owned()),
    }
    line
}

/// Roughly: who moves during the scan may be counted twice.
async fn counted(store: &Arc<dyn Store>, shard: Shard) -> Result<Count, StoreError> {
    let (mut count, mut cursor) = (Count::default(), 0);
    loop {
        let page = store.scan(shard, cursor).await?;
        count.people += page.people.len();
        let sessions = page.people.iter().map(|(_, person)| person.sessions.len());
        count.sessions += sessions.sum::<usize>();
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(count),
        }
    }
}

impl From<Position> for LogLine {
    fn from(position: Position) -> Self {
        Self {
            epoch: position.epoch,
            seq: position.seq,
            first: position.first,
            settling: position.settling,
        }
    }
}

/// Adds what this node itself does for the shards.
fn here(parts: &Parts, lines: &mut BTreeMap<Shard, ShardLine>) {
    if let Some(dispatcher) = &parts.dispatcher {
        for (shard, s) in dispatcher.status() {
            let line = lines.entry(shard).or_default();
            // The view is read after the log, so it may be ahead.
            let seq = line.log.as_ref().map(|log| log.seq);
            line.lag = seq.map(|seq| seq.saturating_sub(s.version.seq));
            line.view = Some(ViewLine {
                version: s.version,
                settling: s.settling,
                people: s.people,
                gateways: s.gateways,
                current: s.current,
            });
        }
    }
    if let Some(reaper) = &parts.reaper {
        for (shard, s) in &reaper.borrow().shards {
            lines.entry(*shard).or_default().reaper = Some(ReaperLine {
                fence: s.fence.map(|f| f.number),
                closed: s.closed,
                idle: s.idle.map(adsum_reaper::Idle::as_str),
            });
        }
    }
}
