//! The wall clock, for times that are only measured and never judged.

use std::time::{SystemTime, UNIX_EPOCH};

/// µs since 1970.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
