//! The number of a change: which epoch of its shard, and where in the log.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Epoch and sequence number; ordered, and never used twice for different content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// The shard's epoch: new at every failover, restart, flush or birth.
    pub epoch: u64,
    /// The place in the shard's log; goes on across epochs.
    pub seq: u64,
}

impl Version {
    /// Below every version that a shard can make.
    pub const ZERO: Self = Self { epoch: 0, seq: 0 };

    /// A version of its two parts.
    #[must_use]
    pub const fn new(epoch: u64, seq: u64) -> Self {
        Self { epoch, seq }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(s: &str) -> Result<Self, BadVersion> {
        let (epoch, seq) = s.split_once('-').ok_or(BadVersion)?;
        Ok(Self {
            epoch: epoch.parse().map_err(|_| BadVersion)?,
            seq: seq.parse().map_err(|_| BadVersion)?,
        })
    }
}

/// The text is not `epoch-seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a version is written epoch-seq, for instance 1731724800000-42")]
pub struct BadVersion;

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_epoch_first() {
        assert!(Version::new(2, 1) > Version::new(1, 9));
        assert!(Version::new(2, 2) > Version::new(2, 1));
    }

    #[test]
    fn text_round_trip_and_bad_text() {
        let v = Version::new(1_731_724_800_000, 42);
        assert_eq!(v.to_string().parse::<Version>(), Ok(v));
        for bad in ["", "1", "1-", "-1", "a-b", "1-2-3", "1--2"] {
            assert_eq!(bad.parse::<Version>(), Err(BadVersion), "{bad}");
        }
    }
}
