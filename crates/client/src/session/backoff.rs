//! How long to wait before the next try: exponential, with full jitter, so that a crowd that lost
//! its gateway does not come back in step.

use std::time::Duration;

/// Small random numbers, seeded from outside: nothing here has to be unpredictable.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// A sequence of its own for each seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64).
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Up to the whole of it.
    pub(crate) fn below(&mut self, whole: Duration) -> Duration {
        let part = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        whole.mul_f64(part)
    }

    /// Between nine tenths and the whole of it.
    pub(crate) fn nearly(&mut self, whole: Duration) -> Duration {
        whole - self.below(whole / 10)
    }
}

/// Counts the tries that failed in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    tries: u32,
}

impl Backoff {
    /// Between `min`, doubled with each try, and `max`.
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, tries: 0 }
    }

    /// How long to wait now.
    pub(crate) fn next(&mut self, jitter: &mut Jitter) -> Duration {
        let ceiling = self.min.saturating_mul(1 << self.tries.min(20));
        self.tries = self.tries.saturating_add(1);
        jitter.below(ceiling.min(self.max))
    }

    /// All is well again.
    pub(crate) const fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_most_with_full_jitter() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(10));
        let mut jitter = Jitter::new(1);
        let mut longest = vec![Duration::ZERO; 12];
        for _ in 0..500 {
            let mut backoff = Backoff::new(min, max);
            for longest in &mut longest {
                *longest = backoff.next(&mut jitter).max(*longest);
            }
        }
        for (n, longest) in longest.iter().enumerate() {
            let ceiling = (min * (1 << n)).min(max);
            assert!(
                *longest <= ceiling && *longest > ceiling / 2,
                "{n}: {longest:?}"
            );
        }
    }

    #[test]
    fn beats_come_early_and_never_late() {
        let mut jitter = Jitter::new(2);
        for _ in 0..500 {
            let beat = jitter.nearly(Duration::from_secs(10));
            assert!((9_000..=10_000).contains(&beat.as_millis()), "{beat:?}");
        }
    }
}
