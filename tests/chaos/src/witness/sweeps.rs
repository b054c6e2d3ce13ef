//! Who claimed and who swept which shard with which fence, as the reapers log it: every claim and
//! every accepted sweep, at the time of the shard's own clock. An answer may be late, the clock
//! under which the script ran is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use adsum_tests::{Process, history::Event};
use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::record::Record;

/// What reapers have to log for this.
pub const FILTER: &str = "info,adsum_reaper::sweeper=trace";

/// Epoch and number.
type Fence = (u64, u64);

/// What was read of the reapers' logs so far.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Read>);

#[derive(Debug, Default)]
struct Read {
    offsets: BTreeMap<String, u64>,
    /// Who has the highest fence of each shard.
    highest: BTreeMap<u16, (Fence, String)>,
    /// Shards whose clock was set in this round: it does not tell what came first.
    doubted: BTreeSet<u16>,
}

#[derive(Deserialize)]
struct Line {
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
    shard: u16,
    epoch: u64,
    number: u64,
    at: u64,
}

impl Ledger {
    fn read(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of these shards is set.
    pub(crate) fn doubt(&self, shards: Vec<u16>) {
        self.read().doubted.extend(shards);
    }

    /// Notes what was logged since the last time; first the claims of before.
    pub fn tell<'a>(
        &self,
        reapers: impl IntoIterator<Item = (&'a str, &'a Process)>,
        record: &Record,
        begun: u64,
    ) -> Result<()> {
        let mut read = self.read();
        let doubted = std::mem::take(&mut read.doubted);
        for (shard, (fence, reaper)) in &read.highest {
            record.note_at(begun, claimed(*shard, reaper, *fence));
        }
        let (mut claims, mut sweeps) = (Vec::new(), 0_u64);
        for (reaper, process) in reapers {
            let offset = read.offsets.entry(reaper.to_owned()).or_default();
            let (text, next) = process.log_from(*offset)?;
            *offset = next;
            let lines = text.lines().filter_map(fields);
            for fields in lines.filter(|f| !doubted.contains(&f.shard)) {
                let (at, fence) = (record.of_conn(fields.at), (fields.epoch, fields.number));
                match fields.message.as_str() {
                    "claimed" => claims.push((at, fields.shard, fence, reaper.to_owned())),
                    "swept" if at >= begun => {
                        sweeps += 1;
                        record.note_at(at, swept(fields.shard, reaper, fence));
                    }
                    _ => {}
                }
            }
        }
        // A check that sees nothing finds nothing.
        ensure!(sweeps > 0, "the reapers say nothing of their sweeps");
        // After the sweeps: within one ms nobody knows which came first.
        for (at, shard, fence, reaper) in claims {
            record.note_at(at.max(begun), claimed(shard, &reaper, fence));
            let highest = read.highest.entry(shard).or_default();
            if fence > highest.0 {
                *highest = (fence, reaper);
            }
        }
        Ok(())
    }
}

/// Of a line about a shard; others are plain text, or about something else.
fn fields(line: &str) -> Option<Fields> {
    let line: Line = serde_json::from_str(line).ok()?;
    Some(line.fields)
}

fn claimed(shard: u16, reaper: &str, fence: Fence) -> Event {
    let reaper = reaper.to_owned();
    Event::Claimed {
        shard,
        reaper,
        fence,
    }
}

fn swept(shard: u16, reaper: &str, fence: Fence) -> Event {
    let reaper = reaper.to_owned();
    Event::Swept {
        shard,
        reaper,
        fence,
    }
}
