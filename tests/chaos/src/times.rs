//! The times of a run: the defaults of the product, some times faster.

use std::time::Duration;

use adsum_client::Timing;
use adsum_tests::checker::Bounds;

/// How much faster than the defaults a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    scale: u32,
}

impl Times {
    /// So many times faster.
    #[must_use]
    pub const fn faster(scale: u32) -> Self {
        Self {
            scale: if scale == 0 { 1 } else { scale },
        }
    }

    /// How many times faster.
    #[must_use]
    pub const fn scale(self) -> u32 {
        self.scale
    }

    /// A time of the defaults, as it is in this run.
    #[must_use]
    pub fn ms(self, default: u64) -> u64 {
        default / u64::from(self.scale)
    }

    /// The same as a duration.
    #[must_use]
    pub fn of(self, default: u64) -> Duration {
        Duration::from_millis(self.ms(default))
    }

    /// Between two beats of a client.
    #[must_use]
    pub fn beat(self) -> u64 {
        self.ms(15_000)
    }

    /// After so long a silent client is closed; also how long a new epoch settles.
    #[must_use]
    pub fn ttl(self) -> u64 {
        self.ms(45_000)
    }

    /// How long a broken socket lingers.
    #[must_use]
    pub fn linger(self) -> u64 {
        self.ms(10_000)
    }

    /// A holder's deadline.
    #[must_use]
    pub fn holder(self) -> u64 {
        self.ms(30_000)
    }

    /// How long a draining gateway sends its clients away.
    #[must_use]
    pub fn window(self) -> u64 {
        self.ms(20_000)
    }

    /// What is asked of a silent store is answered as taken after so long.
    #[must_use]
    pub fn answer(self) -> u64 {
        self.ms(2_000)
    }

    /// A silent dispatcher is left after so long.
    #[must_use]
    pub fn silent(self) -> u64 {
        self.ms(2_000).max(600)
    }

    /// A node's lease; etcd counts whole seconds, and not below two.
    #[must_use]
    pub fn lease(self) -> u64 {
        (self.ms(5_000) / 1000 * 1000).max(2_000)
    }

    /// The settings of a node, as its configuration spells them.
    #[must_use]
    pub fn settings(self) -> Vec<(String, u64)> {
        let stop = self.window() * 5 / 4 + 3_000;
        let times = [
            ("HEARTBEAT", self.beat()),
            ("SESSION_TTL", self.ttl()),
            ("LINGER", self.linger()),
            ("DRAIN_WINDOW", self.window()),
            ("STOP", stop),
            ("HELLO", self.ms(10_000)),
            ("ANSWER", self.answer()),
            ("STUCK", self.ms(10_000)),
            ("ACK_TIMEOUT", self.ms(5_000)),
            ("RENEW", self.ms(5_000)),
            ("HOLDER_TTL", self.holder()),
            ("ALIVE_GAP", self.ms(10_000)),
            ("TOMB", self.ms(60_000)),
            ("SWEEP", self.ms(1_000)),
            ("OWNERLESS", self.ms(2_000)),
            ("LEASE_TTL", self.lease()),
            // Faster would be a load of its own on a machine with two cores.
            ("POLL", self.silent() / 4),
            ("SILENT", self.silent()),
            ("COMPLETE", self.ms(1_000).max(200)),
            ("UNLOAD", self.ms(60_000)),
        ];
        let setting = |(name, ms): (&str, u64)| (format!("TIMES__{name}_MS"), ms);
        times.map(setting).into()
    }

    /// The times of a client.
    #[must_use]
    pub fn timing(self) -> Timing {
        Timing::default().faster(self.scale)
    }

    /// What the design promises at these times.
    #[must_use]
    pub fn bounds(self) -> Bounds {
        Bounds {
            renew_ms: self.ms(5_000),
            holder_ms: self.holder(),
            settle_ms: self.ttl(),
            ttl_ms: self.ttl(),
            linger_ms: self.linger(),
            window_ms: self.window(),
            lease_ms: self.lease(),
            told_ms: 4_500,
            slack_ms: 1_000,
        }
    }

    /// How long all must be calm until everything that was broken has healed and everybody who
    /// is gone has been told as gone.
    #[must_use]
    pub fn quiet(self) -> u64 {
        self.ttl() + self.holder() + self.linger() + self.lease() + 3_000
    }
}
