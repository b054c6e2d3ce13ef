//! The only place that asks what time it is: wall time for what others read, a steady count of
//! ms for everything that is measured here.

use std::{
    sync::OnceLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// µs since 1970.
#[must_use]
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// ms since 1970.
#[must_use]
pub(crate) fn wall_ms() -> u64 {
    wall_us() / 1000
}

/// ms since the first call; never goes back.
#[must_use]
pub(crate) fn steady_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
