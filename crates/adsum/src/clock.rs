//! The wall clock, for what people are shown.

use std::time::{SystemTime, UNIX_EPOCH};

/// ms since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
