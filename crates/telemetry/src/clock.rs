//! The wall clock, for times that are only measured and never judged.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// µs since 1970.
#[must_use]
pub fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// A time of [`wall_us`].
pub(crate) fn system_time(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

/// As µs.
#[must_use]
pub fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
