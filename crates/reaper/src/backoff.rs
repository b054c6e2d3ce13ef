//! Pauses between attempts: doubling, and jittered, so that the sweepers of a cluster do not
//! return to a restarted store in step.

use std::time::Duration;

use crate::ReaperConfig;

/// The pauses of one repeated effort.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(config: &ReaperConfig) -> Self {
        Self {
            first: config.backoff,
            longest: config.backoff_max,
            next: config.backoff,
        }
    }

    /// The effort succeeded: the next pause is a short one.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Half to the whole of the current pause, which then doubles.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_start_again() {
        let config = ReaperConfig::default();
        let mut backoff = Backoff::new(&config);
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= config.backoff / 2 && pauses[0] <= config.backoff);
        assert!(
            pauses[10..]
                .iter()
                .all(|p| *p >= config.backoff_max / 2 && *p <= config.backoff_max)
        );
        backoff.reset();
        assert!(backoff.pause() <= config.backoff);
    }
}
