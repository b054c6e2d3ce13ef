//! What a seed stands for: how large the cluster is, how bad its network, and what breaks when.
//! The faults are drawn before the run begins, so that some can be left out to shorten a story.

use super::{net::Noise, rng::Rng, times::Times};

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    KillGateway,
    FreezeGateway,
    DrainGateway,
    CutGateway,
    CutFeed,
    SlowFeed,
    KillDispatcher,
    FreezeDispatcher,
    DeafDispatcher,
    MutePushes,
    KillReaper,
    FreezeReaper,
    Failover,
    FailBack,
    Flush,
    Stall,
    StepClock,
}

impl Kind {
    const ALL: [Self; 17] = [
        Self::KillGateway,
        Self::FreezeGateway,
        Self::DrainGateway,
        Self::CutGateway,
        Self::CutFeed,
        Self::SlowFeed,
        Self::KillDispatcher,
        Self::FreezeDispatcher,
        Self::DeafDispatcher,
        Self::MutePushes,
        Self::KillReaper,
        Self::FreezeReaper,
        Self::Failover,
        Self::FailBack,
        Self::Flush,
        Self::Stall,
        Self::StepClock,
    ];

    /// For how long, ms: short, about as long as what it delays, or longer.
    const fn lengths(self) -> &'static [u64] {
        match self {
            Self::KillGateway => &[2_000, 8_000, 16_000],
            Self::FreezeGateway => &[800, 3_000, 9_000, 15_000],
            Self::DrainGateway => &[8_500],
            Self::CutGateway => &[1_000, 4_000, 9_000, 16_000],
            Self::CutFeed => &[500, 2_000, 6_000],
            Self::SlowFeed => &[500, 1_500],
            Self::KillDispatcher => &[500, 4_000, 12_000],
            Self::FreezeDispatcher => &[1_000, 4_000, 10_000],
            Self::DeafDispatcher => &[1_500, 5_000, 10_000],
            Self::MutePushes => &[2_000, 6_000],
            Self::KillReaper => &[2_000, 8_000],
            Self::FreezeReaper => &[3_000, 6_000, 10_000],
            Self::Failover => &[1, 1_500, 5_000, 12_000],
            Self::Stall => &[800, 3_000, 8_000, 20_000],
            Self::FailBack | Self::Flush | Self::StepClock => &[0],
        }
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: u64,
    pub(super) kind: Kind,
    pub(super) lasts: u64,
    /// Chooses whom it hits, and what else there is to choose.
    pub(super) lot: u64,
}

/// What a seed stands for.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) shards: u16,
    pub(super) gateways: usize,
    pub(super) noise: Noise,
    pub(super) faults: Vec<Planned>,
    /// Users change their settings: not where a flush loses them for good.
    pub(super) settings: bool,
    /// States that may wait for a gateway.
    pub(super) queue: usize,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let noise = Noise {
            lost: *rng.pick(&[0, 0, 5, 20]),
            copied: *rng.pick(&[0, 20, 100]),
            pushes_lost: *rng.pick(&[0, 50, 300]),
        };
        let count = *rng.pick(&[0, 1, 1, 2, 3, 4, 6]);
        let close = rng.chance(500);
        let start = rng.range(8_000, 30_000);
        let mut faults: Vec<_> = (0..count)
            .map(|_| Self::fault(&mut rng, close.then_some(start)))
            .collect();
        faults.sort_by_key(|fault| fault.at);
        let flushed = faults.iter().any(|f| f.kind == Kind::Flush);
        Self {
            seed,
            shards: *rng.pick(&[1, 1, 2]),
            gateways: *rng.pick(&[2, 3]),
            noise,
            settings: !flushed && rng.chance(600),
            faults,
            queue: *rng.pick(&[4, 1_000]),
        }
    }

    fn fault(rng: &mut Rng, close_to: Option<u64>) -> Planned {
        let kind = *rng.pick(&Kind::ALL);
        let at = match close_to {
            Some(start) => start + rng.range(0, 8_000),
            None => rng.range(5_000, Times::DEFAULT.active - 2_000),
        };
        Planned {
            at,
            kind,
            lasts: *rng.pick(kind.lengths()),
            lot: rng.next(),
        }
    }

    pub(super) const fn noisy(&self) -> bool {
        self.noise.lost > 0
    }
}
