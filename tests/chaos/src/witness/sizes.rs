//! How large things are that must not grow without end: queues, outboxes, tombstones and the
//! memory of every node.

use std::{fs, sync::Arc, time::Duration};

use adsum_tests::{Process, history::Event};
use anyhow::Result;
use redis::cmd;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::{record::Record, world::World};

/// Between two measurements.
const LOOK: Duration = Duration::from_secs(2);

/// What a node may take at the clients and the bounds of a run. Nothing that is left behind at
/// every connection, change or fault stays below it for long.
const MEMORY: u64 = 256 << 20;

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// Measures now and then, until dropped.
pub(super) async fn measure(world: Arc<World>, record: Record) {
    loop {
        sleep(LOOK).await;
        for part in world.parts() {
            let (role, node) = (part.role(), &part.node);
            look(role, node.process(), node.readyz(), &record).await;
        }
    }
}

/// Notes how large a node is, and what it says of itself when it is asked for its readiness.
pub async fn look(
    role: &str,
    process: &Process,
    readyz: impl Future<Output = Result<Value>>,
    record: &Record,
) {
    if let Some(size) = process.pid().and_then(memory) {
        note(record, format!("memory of a {role}"), size, MEMORY);
    }
    if !process.is_live() {
        return;
    }
    // Who does not answer is asked again, and then tells of the time between, too: these are
    // peaks since its start.
    let Ok(Ok(ready)) = timeout(LOOK / 2, readyz).await else {
        return;
    };
    let peaks = [
        ("gateway", "outbox", "entries that wait for one client"),
        ("dispatcher", "queue", "states that wait for one gateway"),
    ];
    for (role, name, what) in peaks {
        let of = |end: &str| ready[role][format!("{name}_{end}")].as_u64();
        if let (Some(peak), Some(limit)) = (of("peak"), of("limit")) {
            note(record, what.to_owned(), peak, limit);
        }
    }
}

/// Resident bytes.
fn memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

fn note(record: &Record, what: String, size: u64, limit: u64) {
    record.note(Event::Size { what, size, limit });
}

/// A session leaves at most one tombstone, for a while: of those of a round and the one before
/// some may be there.
pub(super) async fn left_over(world: &World, record: &Record, sessions: u64) -> Result<()> {
    let mut all = 0;
    for keys in &world.keys {
        let Some(tombs) = keys.all.iter().find(|key| key.ends_with(":tombs")) else {
            continue;
        };
        let master = world.redis.master_of(keys.slot).await?;
        // One keeps the key alive.
        let tombs: u64 = master.query(cmd("HLEN").arg(tombs)).await?;
        all += tombs.saturating_sub(1);
    }
    note(record, "tombstones".to_owned(), all, 2 * sessions);
    Ok(())
}
