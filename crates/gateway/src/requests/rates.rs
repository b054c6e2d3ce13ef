//! How often a caller may ask: one bucket for each user, and one for each service, of a tenant.
//! Bounded: whoever has not asked for so long that the bucket is full again needs none.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
};

use adsum_core::{TenantId, UserId};

use super::Result;
use crate::{
    Caller,
    auth::Role,
    clock,
    limits::{EdgeLimits, RateLimiter},
};

const SHARDS: usize = 64;
/// Of one shard: a quarter of a million callers in all.
const CALLERS: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    tenant: TenantId,
    user: Option<UserId>,
    service: bool,
}

#[derive(Debug)]
struct Bucket {
    limiter: RateLimiter,
    /// From when on it is as good as a new one, ms.
    full_at: u64,
}

#[derive(Debug)]
pub(super) struct Rates {
    hasher: RandomState,
    shards: [Mutex<HashMap<Key, Bucket>>; SHARDS],
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Rates {
    /// Counts one request.
    pub(super) fn take(&self, caller: &Caller) -> Result<()> {
        let identity = &caller.identity;
        let key = Key {
            tenant: identity.tenant.clone(),
            user: identity.user.clone(),
            service: identity.role == Role::Service,
        };
        self.take_at(key, &caller.settings.limits, clock::steady_ms())
    }

    fn take_at(&self, key: Key, limits: &EdgeLimits, now: u64) -> Result<()> {
        #[allow(clippy::cast_possible_truncation)]
        let at = self.hasher.hash_one(&key) as usize % SHARDS;
        let mut shard = self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= CALLERS && !shard.contains_key(&key) {
            make_room(&mut shard, now);
        }
        let bucket = shard.entry(key).or_insert_with(|| Bucket {
            limiter: RateLimiter::new(limits),
            full_at: now,
        });
        bucket.limiter.retune(limits);
        bucket.full_at = now.saturating_add(refill_ms(limits));
        Ok(bucket.limiter.take(now)?)
    }
}

/// How long an empty bucket needs, at the most, to be full.
fn refill_ms(limits: &EdgeLimits) -> u64 {
    let (rate, burst) = (limits.messages_per_second.max(1), limits.message_burst);
    (u64::from(burst) * 1000).div_ceil(u64::from(rate)) + 1
}

/// Drops full buckets; if there are hardly any, the quarter that would be full first: they have
/// least to forgive. Many at once, because this looks at all.
fn make_room(shard: &mut HashMap<Key, Bucket>, now: u64) {
    shard.retain(|_, bucket| bucket.full_at > now);
    if shard.len() < CALLERS - CALLERS / 4 {
        return;
    }
    let mut times: Vec<_> = shard.values().map(|bucket| bucket.full_at).collect();
    let (_, quarter, _) = times.select_nth_unstable(CALLERS / 4);
    shard.retain(|_, bucket| bucket.full_at > *quarter);
}

#[cfg(test)]
mod tests {
    use super::*;
    use adsum_proto::client::Code;

    fn key(user: &str, service: bool) -> Key {
        Key {
            tenant: TenantId::new("t").unwrap(),
            user: Some(UserId::new(user).unwrap()),
            service,
        }
    }

    #[test]
    fn each_caller_has_a_bucket_of_their_own() {
        let limits = EdgeLimits {
            messages_per_second: 10,
            message_burst: 2,
            ..EdgeLimits::default()
        };
        let rates = Rates::default();
        let take = |user, service| rates.take_at(key(user, service), &limits, 1000);
        assert!(take("ann", false).is_ok() && take("ann", false).is_ok());
        let refused = take("ann", false).unwrap_err();
        assert_eq!(
            (refused.code, refused.retry_after_ms),
            (Code::RateLimited, Some(100))
        );
        assert!(take("ann", true).is_ok() && take("bob", false).is_ok());
    }

    #[test]
    fn however_many_callers_the_map_is_bounded() {
        let (rates, limits) = (Rates::default(), EdgeLimits::default());
        let all = u64::try_from(SHARDS * CALLERS).unwrap();
        for n in 0..all + all / 4 {
            rates
                .take_at(key(&n.to_string(), false), &limits, n / 1000)
                .unwrap();
        }
        let sizes = rates.shards.iter().map(|s| s.lock().unwrap().len());
        assert!(sizes.max().unwrap() <= CALLERS);
    }
}
