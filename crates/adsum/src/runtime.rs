//! The threads that do a node's work, and how often they may go to sleep.
//!
//! To sleep and to be woken costs a thread more than most of what it is woken for: of a heartbeat
//! at 25,000 a second, two fifths. A thread that has slept as often as it may takes a nap before
//! it looks again, so that what comes meanwhile is handled together. One that has less to do than
//! that, or more than it can do, never naps.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

use crate::config::Node;

/// So many times a thread may go to sleep one right after another before it naps: a change comes
/// and goes in a few.
const BURST: u32 = 8;

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

thread_local! {
    /// Until when the times that this thread went to sleep are paid for.
    static PAID_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
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
        let now = Instant::now();
        let (paid, nap) = self.pay(PAID_UNTIL.get(), now);
        PAID_UNTIL.set(Some(paid));
        if !nap.is_zero() {
            std::thread::sleep(nap);
        }
    }

    /// Until when it has paid now, and for how long it naps.
    fn pay(self, before: Option<Instant>, now: Instant) -> (Instant, Duration) {
        let paid = before.map_or(now, |before| before.max(now)) + self.every;
        (paid, (paid - now).saturating_sub(self.every * BURST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_MS: u16 = 2;

    /// Goes to sleep so many times, so long after one another; how long it naps in all, and at
    /// most.
    fn sleeps(count: u32, apart: Duration) -> (Duration, Duration) {
        let pace = Pace::new(PER_MS).unwrap();
        let (mut now, mut paid) = (Instant::now(), None);
        let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            now += apart;
            let (until, nap) = pace.pay(paid, now);
            paid = Some(until);
            now += nap;
            (all, longest) = (all + nap, longest.max(nap));
        }
        (all, longest)
    }

    #[test]
    fn who_sleeps_seldom_never_naps() {
        let apart = Duration::from_millis(1) / u32::from(PER_MS);
        assert_eq!(sleeps(10_000, apart).0, Duration::ZERO);
        let burst = sleeps(BURST, Duration::ZERO).0;
        assert_eq!(burst, Duration::ZERO, "nor in a burst");
    }

    #[test]
    fn who_sleeps_too_often_naps_briefly() {
        let (all, longest) = sleeps(2000, Duration::from_micros(50));
        let second = all + 2000 * Duration::from_micros(50);
        let off = second.abs_diff(Duration::from_secs(1));
        assert!(off < Duration::from_millis(5), "{second:?}");
        assert!(longest <= Duration::from_millis(1) / u32::from(PER_MS));
    }

    #[test]
    fn no_pace_is_no_nap() {
        assert!(Pace::new(0).is_none());
    }
}
