//! Which changes get a trace: decided once, at the gateway that takes them, by chance and by what
//! the client asks for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::context::Context;
use crate::clock;

/// What a client's own decision counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    /// What a client has sampled, or not sampled, stays so: at most so many sampled ones a second
    /// are believed.
    Believed(u64),
    /// Chance alone decides.
    Ignored,
}

/// How to sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The part of all changes, 0 to 1.
    pub rate: f64,
    /// What clients say.
    pub parents: Parents,
}

#[derive(Debug)]
pub(super) struct Sampler {
    /// Of all numbers there are.
    below: Option<u64>,
    parents: Parents,
    believed: Bucket,
}

/// What a change becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Sampled(Option<Context>),
    Not,
}

impl Sampler {
    pub(super) fn new(sampling: Sampling) -> Self {
        let rate = sampling.rate.clamp(0.0, 1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        #[allow(clippy::cast_precision_loss)]
        let below = (rate < 1.0).then_some((rate * u64::MAX as f64) as u64);
        Self {
            below,
            parents: sampling.parents,
            believed: Bucket::default(),
        }
    }

    pub(super) fn decide(&self, client: Option<&str>) -> Decision {
        let client = client.and_then(Context::read);
        match (client, self.parents) {
            (Some((_, false)), Parents::Believed(_)) => Decision::Not,
            (Some((context, true)), Parents::Believed(most)) => {
                match self.believed.take(most, clock::wall_us() / 1_000_000) {
                    true => Decision::Sampled(Some(context)),
                    false => Decision::Not,
                }
            }
            (client, _) if self.chance() => Decision::Sampled(client.map(|(context, _)| context)),
            _ => Decision::Not,
        }
    }

    pub(super) fn chance(&self) -> bool {
        self.below
            .is_none_or(|below| below > 0 && rand::random::<u64>() < below)
    }
}

/// So many a second, and no more.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    second: AtomicU64,
    taken: AtomicU64,
}

impl Bucket {
    pub(super) fn take(&self, most: u64, second: u64) -> bool {
        if self.second.swap(second, Relaxed) != second {
            self.taken.store(0, Relaxed);
        }
        self.taken.fetch_add(1, Relaxed) < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YES: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const NO: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn sampler(rate: f64, parents: Parents) -> Sampler {
        Sampler::new(Sampling { rate, parents })
    }

    #[test]
    fn a_client_decides_if_it_is_believed() {
        let asked = sampler(0.0, Parents::Believed(1000));
        assert!(matches!(
            asked.decide(Some(YES)),
            Decision::Sampled(Some(_))
        ));
        assert_eq!(asked.decide(Some("nonsense")), Decision::Not);
        let all = sampler(1.0, Parents::Believed(1000));
        assert_eq!(all.decide(Some(NO)), Decision::Not);
        assert_eq!(all.decide(None), Decision::Sampled(None));
        let deaf = sampler(0.0, Parents::Ignored);
        assert_eq!(deaf.decide(Some(YES)), Decision::Not);
        let deaf = sampler(1.0, Parents::Ignored);
        assert!(matches!(deaf.decide(Some(NO)), Decision::Sampled(Some(_))));
    }

    #[test]
    fn clients_can_not_ask_for_everything() {
        let bucket = Bucket::default();
        assert_eq!((0..100).filter(|_| bucket.take(10, 7)).count(), 10);
        assert!(bucket.take(10, 8));
        assert!(!Bucket::default().take(0, 1));
    }

    #[test]
    fn a_rate_is_kept() {
        let some = sampler(0.01, Parents::Ignored);
        let taken = (0..100_000).filter(|_| some.chance()).count();
        assert!((700..1300).contains(&taken), "{taken}");
        assert!(!sampler(0.0, Parents::Ignored).chance());
    }
}
