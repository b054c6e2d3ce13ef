//! What a watcher knows of a topic, in eight bytes.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::{UserId, Version};

/// The wrapping sum of XXH3-64 over `user 0x1F epoch-seq` of everybody the watcher may see.
/// A sum, so that it follows joins, leaves and updates without a look at the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Digest(u64);

impl Digest {
    fn of(user: &UserId, v: Version) -> u64 {
        xxh3_64(format!("{user}\u{1f}{v}").as_bytes())
    }

    /// Counts a member in.
    pub fn add(&mut self, user: &UserId, v: Version) {
        self.0 = self.0.wrapping_add(Self::of(user, v));
    }

    /// Counts a member out.
    pub fn remove(&mut self, user: &UserId, v: Version) {
        self.0 = self.0.wrapping_sub(Self::of(user, v));
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for Digest {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}
