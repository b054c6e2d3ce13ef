//! A random run beside the store in memory, which must answer the same.

use std::sync::atomic::Ordering::Relaxed;

use adsum_core::{
    Activity, Manual, Preference, Prefs, UserId, Versioned, Visibility,
    store::{Alter, Lease, Store},
};
use adsum_store::{Hooks, MemoryStore, Options, RedisStore};
use anyhow::Result;
use futures::future::join_all;
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};

use crate::{
    lab::{Lab, START, close, holder, key, open, options, stamp, state, touch, user},
    records::assert_log_bytes,
};

/// One random operation on both stores; their answers must be equal.
async fn step(n: u64, rng: &mut SmallRng, lab: &Lab, memory: &MemoryStore) -> Result<()> {
    let name = ["ann", "bob", "cy"][rng.random_range(0..3)];
    let device = ["phone", "web", "Tab"][rng.random_range(0..3)];
    let key = key(name, device);
    let by = ["a", "ab", "b~1"][rng.random_range(0..3)];
    let stamp = stamp(n / 40 + rng.random_range(1..5), rng.random_range(1..6));
    let mut state = state(&["x", "y"][..rng.random_range(0..3)]);
    if rng.random_bool(0.3) {
        state.activity = Activity::Away;
    }
    if let Some(stay) = state.rooms.iter_mut().map(|(_, stay)| stay).next() {
        stay.since = [0, START - 7, START + 900_000_000][rng.random_range(0..3)];
    }
    let redis = &lab.store;
    match rng.random_range(0..27) {
        0..=5 => {
            let mut op = open(key, by, stamp, state);
            op.opened_at = [0, START - 5][rng.random_range(0..2)];
            if rng.random_bool(0.3) {
                let version = n / 100 + rng.random_range(0..9);
                let value = [None, Some(Manual::Invisible), Some(Manual::Busy)];
                op.prefs = Some(Prefs {
                    status: Versioned {
                        value: value[rng.random_range(0..3)],
                        version,
                    },
                    visibility: Versioned {
                        value: Visibility::Nobody,
                        version: 3,
                    },
                    contacts: 5,
                    frozen_at: 17,
                    shown_at: START - 9,
                });
            }
            assert_eq!(redis.open(op.clone()).await, memory.open(op).await);
        }
        6 | 7 => {
            let op = Alter {
                key,
                stamp,
                state,
                origin: None,
            };
            assert_eq!(redis.alter(op.clone()).await, memory.alter(op).await);
        }
        8 => {
            let op = close(key, stamp);
            assert_eq!(redis.close(op.clone()).await, memory.close(op).await);
        }
        9..=11 => {
            let one = touch(key, stamp, state.clone());
            let mut two = one.clone();
            two.stamp.rev += 1;
            two.ttl_ms = 7_000;
            let ops = vec![one, two];
            assert_eq!(redis.touch(ops.clone()).await, memory.touch(ops).await);
        }
        12 => {
            let only = rng.random_bool(0.5).then_some(&key.device);
            let answer = memory.kick(&key.owner, only).await;
            assert_eq!(redis.kick(&key.owner, only).await, answer);
        }
        13 if rng.random_bool(0.3) => {
            assert_eq!(
                redis.purge(&key.owner).await,
                memory.purge(&key.owner).await
            );
        }
        13 | 14 => {
            let lease = if rng.random_bool(0.3) {
                Lease::Drain(9_000)
            } else {
                Lease::Usual
            };
            let answer = memory.renew(0, &holder(by), lease).await;
            assert_eq!(redis.renew(0, &holder(by), lease).await, answer);
        }
        15..=17 => {
            let mut fence = memory.claim(0).await?;
            assert_eq!(redis.claim(0).await?, fence);
            if rng.random_bool(0.1) {
                fence.value.number -= 1;
            }
            let limit = rng.random_range(0..4);
            let answer = memory.sweep(0, fence.value, limit).await;
            assert_eq!(redis.sweep(0, fence.value, limit).await, answer);
        }
        18 | 19 => {
            let preference = match rng.random_range(0..4) {
                0 => Preference::Status(Some(Manual::Invisible)),
                1 => Preference::Status(None),
                2 => Preference::Visibility(Visibility::Contacts),
                _ => Preference::Contacts(vec![UserId::new(name)?]),
            };
            let version = n / 100 + rng.random_range(1..12);
            let answer = memory.prefer(&key.owner, preference.clone(), version).await;
            assert_eq!(redis.prefer(&key.owner, preference, version).await, answer);
        }
        24..27 => several(n, rng, redis, memory).await,
        20 if rng.random_bool(0.2) => {
            memory.fail_over(0);
            lab.change_identity().await?;
        }
        20 if rng.random_bool(0.02) => {
            memory.flush(0);
            lab.server.flush_all().await?;
        }
        _ => {
            let by = [1, 700, 5_000, 9_000, 30_000, 46_000][rng.random_range(0..6)];
            if rng.random_bool(0.1) {
                lab.clock.fetch_sub(by, Relaxed);
            } else {
                lab.wait(by);
            }
        }
    }
    Ok(())
}

/// Operations that are asked for in one turn, which go in few calls; in memory one after another.
async fn several(n: u64, rng: &mut SmallRng, redis: &RedisStore, memory: &MemoryStore) {
    let (mut opens, mut alters, mut closes) = (Vec::new(), Vec::new(), Vec::new());
    for name in ["ann", "bob", "cy", "dee", "eve"] {
        let device = ["phone", "web", "Tab"][rng.random_range(0..3)];
        let (key, at) = (key(name, device), n / 40 + rng.random_range(1..5));
        let stamp = stamp(at, rng.random_range(1..6));
        let state = state(&["x", "y"][..rng.random_range(0..3)]);
        let origin = None;
        match rng.random_range(0..3) {
            0 => opens.push(open(
                key,
                ["a", "b~1"][rng.random_range(0..2)],
                stamp,
                state,
            )),
            1 => alters.push(Alter {
                key,
                stamp,
                state,
                origin,
            }),
            _ => closes.push(close(key, stamp)),
        }
    }
    let together = futures::future::join3(
        join_all(opens.iter().map(|op| redis.open(op.clone()))),
        join_all(alters.iter().map(|op| redis.alter(op.clone()))),
        join_all(closes.iter().map(|op| redis.close(op.clone()))),
    );
    let (opened, altered, closed) = together.await;
    for (op, answer) in opens.into_iter().zip(opened) {
        assert_eq!(answer, memory.open(op).await);
    }
    for (op, answer) in alters.into_iter().zip(altered) {
        assert_eq!(answer, memory.alter(op).await);
    }
    for (op, answer) in closes.into_iter().zip(closed) {
        assert_eq!(answer, memory.close(op).await);
    }
}

async fn assert_same(lab: &Lab, memory: &MemoryStore) -> Result<()> {
    let redis = &lab.store;
    let users = ["ann", "bob", "cy", "nobody"].map(user);
    assert_eq!(redis.read(&users).await?, memory.read(&users).await?);
    for after in [0, 3, 40] {
        let page = memory.log(0, after, 1000).await?;
        assert_eq!(redis.log(0, after, 1000).await?, page);
    }
    assert_eq!(
        redis.deadlines(0, 99).await?,
        memory.deadlines(0, 99).await?
    );
    for name in ["a", "ab", "b~1"] {
        let held = memory.held(0, &holder(name), None, 99).await?;
        assert_eq!(redis.held(0, &holder(name), None, 99).await?, held);
        let after = held.first();
        let rest = memory.held(0, &holder(name), after, 1).await?;
        assert_eq!(redis.held(0, &holder(name), after, 1).await?, rest);
    }
    for user in &users {
        assert_eq!(redis.contacts(user).await?, memory.contacts(user).await?);
    }
    assert_eq!(
        adsum_core::load(redis, 0).await?,
        adsum_core::load(memory, 0).await?
    );
    Ok(())
}

#[tokio::test]
async fn a_random_run_is_the_same_in_memory() -> Result<()> {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    let steps = std::env::var("STEPS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1500);
    let rng = &mut SmallRng::seed_from_u64(seed);
    let options = Options {
        log_max_bytes: 6_000,
        max_deadline_ms: 40_000,
        ..options(1)
    };
    let lab = Lab::new(options.clone()).await?;
    let hooks = Hooks {
        clock: Some(lab.clock.clone()),
        nonce: Some(0),
    };
    let memory = MemoryStore::new(options, hooks);
    assert_eq!(lab.store.log(0, 0, 9).await?, memory.log(0, 0, 9).await?);
    let mut log_seen = 0;
    for n in 0..steps {
        step(n, rng, &lab, &memory).await?;
        assert_same(&lab, &memory).await?;
        let page = lab.store.log(0, 0, 0).await?;
        if page.position.is_some_and(|p| p.seq != log_seen) {
            log_seen = page.position.map_or(0, |p| p.seq);
            assert_log_bytes(&lab).await?;
        }
    }
    println!(
        "seed {seed}: {steps} steps, log at {log_seen}, {}",
        rng.next_u32()
    );
    Ok(())
}
