//! The threads that do a node's work, and how often they may go to sleep.
//!
//! To sleep and to be woken costs a thread more than most of what it is woken for: of a heartbeat
//! at 25,000 a second, two fifths. A thread that has slept as often as it may takes a nap before
//! it looks again, so that what comes meanwhile is handled together, and a longer one if that is
//! heartbeats for the most part. One that has less to do than that, or more than it can do, never
//! naps.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use adsum_gateway::beats;
use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

use crate::config::Node;

/// So many times a thread may go to sleep one right after another before it naps: a change comes
/// and goes in a few.
const BURST: u32 = 8;

/// A thread that answered so many heartbeats since it went to sleep last is busy with them above
/// all, and naps longer: nobody waits for the answer to one.
const BEATS: u64 = 4;

/// By so many times.
const LONGER: u32 = 4;

/// What a node's work is done with.
pub(crate) fn of_node(node: &Node) -> Result<Runtime> {
    // One thread alone needs nothing of what several need to share their work.
    let mut builder = match node.threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if node.threads > 0 {
        builder.worker_threads(node.threads.into());
    }
    if let Some(pace) = Pace::new(node.sleeps_per_ms) {
        builder.on_thread_park(move || pace.nap());
    }
    build(&mut builder)
}

/// What a command of a person is done with.
pub(crate) fn of_command() -> Result<Runtime> {
    build(Builder::new_multi_thread().worker_threads(1))
}

fn build(builder: &mut Builder) -> Result<Runtime> {
    let built = builder.enable_all().build();
    built.context("the runtime can't start")
}

/// How often a thread may go to sleep.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// For each time that it does.
    every: Duration,
}

/// What a thread has slept so far.
#[derive(Debug, Default, Clone, Copy)]
struct Slept {
    /// Until when the times that it went to sleep are paid for.
    paid_until: Option<Instant>,
    /// Heartbeats that it had answered when it last did.
    beats: u64,
}

thread_local! {
    static SLEPT: Cell<Slept> = const {
        Cell::new(Slept { paid_until: None, beats: 0 })
    };
}

impl Pace {
    /// `None` for as often as it takes.
    fn new(per_ms: u16) -> Option<Self> {
        (per_ms > 0).then(|| Self {
            every: Duration::from_millis(1) / u32::from(per_ms),
        })
    }

    /// This thread is about to sleep.
    fn nap(self) {
        let mut slept = SLEPT.get();
        let nap = self.pay(&mut slept, Instant::now(), beats::answered());
        SLEPT.set(slept);
        if !nap.is_zero() {
            std::thread::sleep(nap);
        }
    }

    /// Pays for a sleep, and tells how long to nap before it.
    fn pay(self, slept: &mut Slept, now: Instant, beats: u64) -> Duration {
        let price = match beats.wrapping_sub(slept.beats) {
            0..BEATS => self.every,
            _ => self.every * LONGER,
        };
        let paid = slept.paid_until.map_or(now, |paid| paid.max(now)) + price;
        (slept.paid_until, slept.beats) = (Some(paid), beats);
        (paid - now).saturating_sub(self.every * BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_MS: u16 = 2;

    /// Goes to sleep so many times, so long after one another, with so many beats in between; how
    /// long it naps in all, and at most.
    fn sleeps(count: u32, apart: Duration, beats: u64) -> (Duration, Duration) {
        let pace = Pace::new(PER_MS).unwrap();
        let (mut now, mut slept, mut answered) = (Instant::now(), Slept::default(), 0);
        let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            now += apart;
            answered += beats;
            let nap = pace.pay(&mut slept, now, answered);
            now += nap;
            (all, longest) = (all + nap, longest.max(nap));
        }
        (all, longest)
    }

    fn every() -> Duration {
        Duration::from_millis(1) / u32::from(PER_MS)
    }

    /// Naps of one that would sleep every 50 µs: so much time for each sleep.
    fn busy(beats: u64, each: Duration) {
        let apart = Duration::from_micros(50);
        let (all, longest) = sleeps(2000, apart, beats);
        let (time, fair) = (all + 2000 * apart, 2000 * each);
        let off = time.abs_diff(fair);
        assert!(off < Duration::from_millis(5), "{time:?} not {fair:?}");
        assert!(longest <= each);
    }

    #[test]
    fn who_sleeps_seldom_never_naps() {
        assert_eq!(sleeps(10_000, every(), 1).0, Duration::ZERO);
        let burst = sleeps(BURST, Duration::ZERO, 1).0;
        assert_eq!(burst, Duration::ZERO, "nor in a burst");
    }

    #[test]
    fn who_sleeps_too_often_naps_briefly() {
        busy(0, every());
        busy(BEATS - 1, every());
    }

    #[test]
    fn who_does_so_for_heartbeats_naps_longer() {
        busy(BEATS, every() * LONGER);
        let seldom = sleeps(10_000, every() * LONGER, 100).0;
        assert_eq!(seldom, Duration::ZERO, "unless it sleeps seldom anyway");
    }

    #[test]
    fn no_pace_is_no_nap() {
        assert!(Pace::new(0).is_none());
    }
}
