//! Reads every shard's log as it grows, beside everybody else: which number meant what is a
//! matter of the record, and a number that means two things is a violation.

use std::time::Duration;

use adsum_core::store::{Shard, Store};
use adsum_store::RedisStore;
use adsum_tests::history::Event;
use tokio::time::{MissedTickBehavior, interval};

use crate::record::Record;

/// Between two looks at a log.
const LOOK: Duration = Duration::from_millis(400);

/// Entries read at once.
const PAGE: usize = 1_000;

/// From the beginning again after a new epoch, since a failover may rewrite a log.
pub(super) async fn read(store: RedisStore, shard: Shard, limit: u64, record: Record) {
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut after, mut epoch, mut longest) = (None, 0, 0);
    loop {
        tick.tick().await;
        let Ok(page) = store.log(shard, after.unwrap_or(0), PAGE).await else {
            continue;
        };
        // What was there before is not of this round.
        let known = after.is_none();
        for change in page.entries {
            after = Some(change.version.seq);
            if !known {
                record.note(Event::Committed {
                    shard,
                    v: change.version,
                    what: format!("{:?}", change.event),
                });
            }
        }
        let Some(position) = page.position else {
            continue;
        };
        after.get_or_insert(position.seq);
        if std::mem::replace(&mut epoch, position.epoch) != position.epoch && !known {
            after = Some(0);
        }
        let length = (position.seq + 1).saturating_sub(position.first);
        if length > longest {
            longest = length;
            record.note(Event::Size {
                what: "entries of a shard's log".to_owned(),
                size: length,
                limit,
            });
        }
    }
}
