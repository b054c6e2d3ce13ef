//! The only look at the wall clock: connection numbers are made of it.

use std::time::{SystemTime, UNIX_EPOCH};

/// ms since 1970; 0 for a clock that is before that.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
