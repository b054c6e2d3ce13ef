//! The names of a shard's keys, and the hash tags that spread the shards over the slots. The
//! only file that builds keys.

use adsum_core::store::Shard;

const SLOTS: u32 = 16_384;

/// The slot of a key without braces, or of the text between them: CRC-16/XMODEM mod 16,384.
#[must_use]
pub fn slot_of(tag: &str) -> u16 {
    let mut crc: u16 = 0;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc & 0x3fff
}

/// One tag per shard, in the middle of the shard's own stretch of slots: shard `s` of `n` gets
/// the first `s<shard>.<number>` whose slot falls into the middle sixteenth of
/// `[s, s + 1) × 16384 / n`. The middle, so that masters that split the slots evenly split the
/// shards evenly too; a sixteenth, so that it is found quickly.
#[must_use]
pub fn tags(shards: Shard) -> Vec<String> {
    let n = u32::from(shards.max(1));
    (0..n)
        .map(|s| {
            let (from, to) = (s * SLOTS / n, (s + 1) * SLOTS / n);
            let (middle, half) = ((from + to) / 2, (to - from) / 32);
            let wanted = middle - half..=middle + half;
            (0_u32..)
                .map(|i| format!("s{s}.{i}"))
                .find(|tag| wanted.contains(&u32::from(slot_of(tag))))
                // CRC-16 reaches every slot within some ten thousand names.
                .unwrap_or_default()
        })
        .collect()
}

/// The keys of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// `people deadlines held log meta seen tombs prefs`, as every function declares them.
    pub all: [String; 8],
    /// Where changes are pushed.
    pub channel: String,
    /// Their slot.
    pub slot: u16,
}

impl Keys {
    /// The order of [`all`](Self::all).
    pub const NAMES: [&str; 8] = [
        "people",
        "deadlines",
        "held",
        "log",
        "meta",
        "seen",
        "tombs",
        "prefs",
    ];

    /// The keys of every shard, in order.
    #[must_use]
    pub fn of_all(cluster: &str, layout: u32, shards: Shard) -> Vec<Self> {
        tags(shards)
            .into_iter()
            .map(|tag| Self::new(cluster, layout, &tag))
            .collect()
    }

    /// The key outside of all shards that says how many there are.
    pub(crate) fn count(cluster: &str, layout: u32) -> String {
        format!("adsum:{cluster}:{layout}:shards")
    }

    fn new(cluster: &str, layout: u32, tag: &str) -> Self {
        let prefix = format!("adsum:{cluster}:{layout}:{{{tag}}}:");
        Self {
            all: Self::NAMES.map(|name| format!("{prefix}{name}")),
            channel: format!("{prefix}feed"),
            slot: slot_of(tag),
        }
    }

    /// The key with one of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn named(&self, name: &str) -> &str {
        let place = Self::NAMES
            .iter()
            .position(|n| *n == name)
            .unwrap_or_default();
        &self.all[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // From the Redis Cluster specification and `CLUSTER KEYSLOT`.
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
    }

    #[test]
    fn shards_split_over_masters_with_at_most_one_difference() {
        for shards in [1, 3, 16, 64, 256] {
            let slots: Vec<_> = tags(shards).iter().map(|t| u32::from(slot_of(t))).collect();
            assert!(slots.windows(2).all(|w| w[0] < w[1]));
            for masters in 1..=u32::from(shards.min(12)) {
                let mut load = vec![0; masters as usize];
                slots
                    .iter()
                    .for_each(|s| load[(s * masters / SLOTS) as usize] += 1);
                let (low, high) = (load.iter().min().unwrap(), load.iter().max().unwrap());
                assert!(
                    high - low <= 1,
                    "{shards} shards on {masters} masters: {load:?}"
                );
            }
        }
    }

    #[test]
    fn keys_of_a_shard_share_their_slot() {
        let keys = &Keys::of_all("blue", 1, 64)[5];
        assert!(keys.all[0].starts_with("adsum:blue:1:{s5."));
        assert_eq!(keys.named("log"), keys.all[3]);
        let (_, rest) = keys.channel.split_once('{').unwrap();
        assert_eq!(slot_of(rest.split_once('}').unwrap().0), keys.slot);
    }
}
