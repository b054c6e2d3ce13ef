//! Pauses between attempts: doubling, and jittered, so that the nodes of a cluster do not return
//! to a restarted etcd in step.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// The pauses of one repeated effort.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The effort succeeded: the next pause is a short one.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Waits for half to the whole of the current pause, and doubles it.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }

    fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.next = (self.next * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_start_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(
            pauses[10..]
                .iter()
                .all(|p| *p >= LONGEST / 2 && *p <= LONGEST)
        );
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
