//! Limits, counters and rates.

use std::{sync::Arc, thread};

use adsum_core::{TenantId, UserId, UserKey};
use proptest::prelude::*;

use super::*;

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let defaults = EdgeLimits::default();
    assert_eq!(defaults.check(), Ok(()));
    let unfit = [
        EdgeLimits {
            connections_per_user: 0,
            ..defaults.clone()
        },
        EdgeLimits {
            messages_per_second: 0,
            ..defaults.clone()
        },
        EdgeLimits {
            frame_bytes: 2048,
            ..defaults
        },
    ];
    for limits in unfit {
        assert!(limits.check().is_err(), "{limits:?}");
    }
    let unknown = r#"{"topics_per_conection": 3}"#;
    assert!(serde_json::from_str::<EdgeLimits>(unknown).is_err());
    assert!(serde_json::from_str::<TenantSettings>(r#"{"connections_per_node": 3}"#).is_err());
    let set: TenantSettings = serde_json::from_str(r#"{"meta_bytes": 3}"#).unwrap();
    assert_eq!(EdgeLimits::default().with(&set).session().meta_bytes, 3);
}

#[test]
fn limits_have_codes() {
    let limits = EdgeLimits::default();
    assert_eq!(limits.check_watched(500, 500), Ok(()));
    assert_eq!(limits.check_frame(64 * 1024), Ok(()));
    let topics = limits.check_watched(501, 0).unwrap_err();
    let users = limits.check_watched(0, 501).unwrap_err();
    let frame = limits.check_frame(10 << 20).unwrap_err();
    let codes = [topics, users, frame].map(|e| (e.code(), e.retry_after_ms()));
    assert_eq!(
        codes,
        [
            ("too_many_topics", None),
            ("too_many_users", None),
            ("frame_too_large", None)
        ]
    );
}

#[test]
fn counters_refuse_by_scope_and_count_nothing_then() {
    let counters = Arc::new(Counters::default());
    let limits = EdgeLimits {
        connections_per_node: 4,
        connections_per_tenant: 3,
        connections_per_user: 2,
        ..EdgeLimits::default()
    };
    let (t, u) = (tenant("t"), user("u"));
    let full = |scope, limit| Some(LimitError::Connections { scope, limit });
    let mut held = vec![
        counters.admit(&t, Some(&u), &limits).unwrap(),
        counters.admit(&t, Some(&u), &limits).unwrap(),
    ];
    let refused = counters.admit(&t, Some(&u), &limits).err();
    assert_eq!(refused, full(Scope::User, 2));
    assert_eq!(refused.unwrap().code(), "too_many_connections");
    assert_eq!((counters.connections(), counters.of_tenant(&t)), (2, 2));

    held.push(counters.admit(&t, None, &limits).unwrap());
    let refused = counters.admit(&t, Some(&user("v")), &limits).err();
    assert_eq!(refused, full(Scope::Tenant, 3));
    held.push(counters.admit(&tenant("t2"), Some(&u), &limits).unwrap());
    let refused = counters.admit(&tenant("t3"), None, &limits).err();
    assert_eq!(refused, full(Scope::Node, 4));
    assert_eq!(counters.of_user(&UserKey::new(t, u)), 2);

    drop(held);
    assert_eq!((counters.connections(), counters.entries()), (0, 0));
}

#[test]
fn counters_under_threads_hold_the_limit_and_return_to_zero() {
    let counters = Arc::new(Counters::default());
    let limits = EdgeLimits {
        connections_per_tenant: 20,
        connections_per_user: 3,
        ..EdgeLimits::default()
    };
    let threads = (0..8_usize).map(|n| {
        let (counters, limits) = (Arc::clone(&counters), limits.clone());
        thread::spawn(move || {
            let mut held = Vec::new();
            for i in 0..2000_usize {
                let t = tenant(&format!("t{}", i % 2));
                let u = user(&format!("u{}", (i + n) % 10));
                held.extend(counters.admit(&t, Some(&u), &limits));
                assert!(counters.of_tenant(&t) <= 20);
                assert!(counters.of_user(&UserKey::new(t, u)) <= 3);
                if held.len() > 5 {
                    drop(held.swap_remove(i % 5));
                }
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    assert_eq!((counters.connections(), counters.entries()), (0, 0));
}

fn rate(per_second: u32, burst: u32) -> EdgeLimits {
    EdgeLimits {
        messages_per_second: per_second,
        message_burst: burst,
        ..EdgeLimits::default()
    }
}

#[test]
fn rate_allows_a_burst_then_the_rate_and_says_when() {
    assert_eq!(size_of::<RateLimiter>(), 16);
    let mut limiter = RateLimiter::new(&rate(10, 5));
    let start = 7_000;
    assert!((0..5).all(|_| limiter.take(start).is_ok()));
    let refused = limiter.take(start).unwrap_err();
    assert_eq!(
        (refused.code(), refused.retry_after_ms()),
        ("rate_limited", Some(100))
    );
    // Asking too early costs nothing.
    assert_eq!(
        limiter.take(start + 60).unwrap_err().retry_after_ms(),
        Some(40)
    );
    assert_eq!(limiter.take(start + 100), Ok(()));
    assert!(limiter.take(start + 100).is_err());
    // A pause fills the bucket, and no more than that.
    assert!((0..5).all(|_| limiter.take(start + 60_000).is_ok()));
    assert!(limiter.take(start + 60_000).is_err());
    // A clock that was set back costs at most a bucket.
    assert!(limiter.take(0).unwrap_err().retry_after_ms() <= Some(500));
    assert_eq!(limiter.take(100), Ok(()));
}

proptest! {
    #[test]
    fn rate_is_never_exceeded(
        per_second in 1..500_u32,
        burst in 1..50_u32,
        gaps in prop::collection::vec(0..200_u64, 1..400),
    ) {
        let mut limiter = RateLimiter::new(&rate(per_second, burst));
        let (mut now, mut taken) = (1_000_u64, 0_u64);
        for gap in gaps {
            now += gap;
            match limiter.take(now) {
                Ok(()) => taken += 1,
                Err(error) => {
                    // What it says is true.
                    let wait = error.retry_after_ms().unwrap();
                    let mut later = limiter;
                    prop_assert!(wait > 0 && later.take(now + wait).is_ok());
                    prop_assert!(wait == 1 || limiter.take(now + wait - 2).is_err());
                }
            }
            let interval = 1_000_000 / u64::from(per_second);
            let allowed = u64::from(burst) + (now - 1_000) * 1000 / interval;
            prop_assert!(taken <= allowed, "{taken} of {allowed}");
        }
    }
}
