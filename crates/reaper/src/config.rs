//! The reaper's numbers and times.

use std::time::Duration;

use adsum_core::store::Shard;

/// Numbers and times of a reaper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaperConfig {
    /// Shards of the store.
    pub shards: Shard,
    /// The longest time between two sweeps of a shard.
    pub sweep_interval: Duration,
    /// The shortest time between two sweeps of a shard that left nothing undone: deadlines that
    /// follow one another closely are swept together.
    pub sweep_pause: Duration,
    /// Most sessions that one sweep closes.
    pub sweep_limit: usize,
    /// Most sweeps of this node at a time.
    pub concurrent_sweeps: usize,
    /// How long a sweep may keep others waiting: a store that hangs on one shard must not hold
    /// up the rest.
    pub turn: Duration,
    /// Most campaigns, proofs and resignations of this node at a time.
    pub concurrent_elections: usize,
    /// Nothing is asked of a shard with less than this left of the lease.
    pub lease_margin: Duration,
    /// How often to look whether the lease is certain again.
    pub lease_poll: Duration,
    /// After so long without an owner a shard is anybody's.
    pub ownerless_grace: Duration,
    /// Then each further node on the ring waits for this much more, so that not all come at once.
    pub ownerless_step: Duration,
    /// How long a placement must have stood before shards are handed over because of it.
    pub handover_after: Duration,
    /// Between two hand-overs of this node, on average.
    pub handover_interval: Duration,
    /// A shard that came back is not handed over again before this: nodes that disagree about
    /// the placement must not play ball with it.
    pub handover_again: Duration,
    /// How long a node that gave up what was placed with it, or never took it, is passed over.
    pub retired_for: Duration,
    /// The longest wait for an answer of the store or the membership.
    pub call_timeout: Duration,
    /// How long a running sweep may take to finish before its shard is resigned all the same.
    pub finish_timeout: Duration,
    /// How long to try to resign before leaving it to the lease.
    pub resign_timeout: Duration,
    /// A shard whose store has not answered for so long is left to another node, if there is one.
    pub give_up_after: Duration,
    /// The first pause after a failure; doubled each time, and jittered.
    pub backoff: Duration,
    /// The longest pause after a failure.
    pub backoff_max: Duration,
}

impl Default for ReaperConfig {
    fn default() -> Self {
        Self {
            shards: 64,
            sweep_interval: Duration::from_secs(3),
            sweep_pause: Duration::from_millis(50),
            sweep_limit: 100,
            concurrent_sweeps: 4,
            turn: Duration::from_millis(100),
            concurrent_elections: 8,
            lease_margin: Duration::from_secs(1),
            lease_poll: Duration::from_millis(200),
            ownerless_grace: Duration::from_secs(2),
            ownerless_step: Duration::from_millis(100),
            handover_after: Duration::from_millis(500),
            handover_interval: Duration::from_millis(100),
            handover_again: Duration::from_secs(30),
            retired_for: Duration::from_secs(30),
            call_timeout: Duration::from_secs(5),
            finish_timeout: Duration::from_millis(500),
            resign_timeout: Duration::from_secs(1),
            give_up_after: Duration::from_secs(10),
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(2),
        }
    }
}

impl ReaperConfig {
    /// Whether the numbers make sense together, for leases of this length.
    ///
    /// # Errors
    /// A sentence that says which rule is broken, and why it is one.
    pub fn check(&self, lease_ttl: Duration) -> Result<(), String> {
        let positive = [
            ("sweep_limit", self.sweep_limit),
            ("concurrent_sweeps", self.concurrent_sweeps),
            ("concurrent_elections", self.concurrent_elections),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, number)| *number == 0) {
            return Err(format!("{name} is 0: nothing would ever be swept"));
        }
        // A lease is renewed after a third of its life, so two thirds are left at worst.
        if self.lease_margin >= lease_ttl * 2 / 3 {
            return Err(format!(
                "lease_margin is {:?}, but of a lease of {lease_ttl:?} no more than {:?} may be \
                 left just before it is renewed: sweeps would stop again and again",
                self.lease_margin,
                lease_ttl * 2 / 3
            ));
        }
        let pauses = [
            ("sweep_pause", self.sweep_pause),
            ("lease_poll", self.lease_poll),
            ("backoff", self.backoff),
        ];
        if let Some((name, _)) = pauses.iter().find(|(_, pause)| pause.is_zero()) {
            return Err(format!("{name} is 0: a loop would never rest"));
        }
        if self.sweep_pause > self.sweep_interval {
            return Err(
                "sweep_pause is longer than sweep_interval: departures would be late".into(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_the_usual_lease() {
        let ttl = Duration::from_secs(5);
        assert_eq!(ReaperConfig::default().check(ttl), Ok(()));
        let config = ReaperConfig {
            lease_margin: Duration::from_secs(4),
            ..ReaperConfig::default()
        };
        assert!(
            config
                .check(ttl)
                .is_err_and(|why| why.contains("lease_margin"))
        );
        let config = ReaperConfig {
            concurrent_sweeps: 0,
            ..ReaperConfig::default()
        };
        assert!(
            config
                .check(ttl)
                .is_err_and(|why| why.contains("concurrent_sweeps"))
        );
    }
}
