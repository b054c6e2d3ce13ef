//! Connections counted by node, tenant and user. Who is admitted holds an [`Admission`], and is
//! counted until it is dropped.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use adsum_core::{TenantId, UserId, UserKey};

use super::{EdgeLimits, LimitError, Scope};

/// Locks per tally. A lock is held for one lookup, so a few are enough for a storm of reconnects.
const SHARDS: usize = 16;

/// The connections of a node.
#[derive(Debug, Default)]
pub struct Counters {
    node: AtomicUsize,
    tenants: Tally<TenantId>,
    users: Tally<UserKey>,
}

impl Counters {
    /// Counts one more connection, if none of the limits is reached.
    ///
    /// # Errors
    /// When one is; nothing is counted then.
    pub fn admit(
        self: &Arc<Self>,
        tenant: &TenantId,
        user: Option<&UserId>,
        limits: &EdgeLimits,
    ) -> Result<Admission, LimitError> {
        let full = |scope, limit| LimitError::Connections { scope, limit };
        let limit = limits.connections_per_node;
        let one_more = |count: usize| (count < limit).then_some(count + 1);
        self.node
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| full(Scope::Node, limit))?;
        // From here on its drop undoes what was counted.
        let mut admission = Admission {
            counters: Arc::clone(self),
            tenant: None,
            user: None,
        };
        let limit = limits.connections_per_tenant;
        if !self.tenants.add(tenant, limit) {
            return Err(full(Scope::Tenant, limit));
        }
        admission.tenant = Some(tenant.clone());
        if let Some(user) = user {
            let key = UserKey::new(tenant.clone(), user.clone());
            let limit = limits.connections_per_user;
            if !self.users.add(&key, limit) {
                return Err(full(Scope::User, limit));
            }
            admission.user = Some(key);
        }
        Ok(admission)
    }

    /// Connections of this node.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.node.load(Ordering::Relaxed)
    }

    /// Connections of a tenant on this node.
    #[must_use]
    pub fn of_tenant(&self, tenant: &TenantId) -> usize {
        self.tenants.count(tenant)
    }

    /// Connections of a user on this node.
    #[must_use]
    pub fn of_user(&self, user: &UserKey) -> usize {
        self.users.count(user)
    }

    /// Entries kept, for tests of leaks.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.tenants.entries() + self.users.entries()
    }
}

/// One counted connection.
#[derive(Debug)]
#[must_use = "a connection is counted only while its admission is kept"]
pub struct Admission {
    counters: Arc<Counters>,
    tenant: Option<TenantId>,
    user: Option<UserKey>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            self.counters.users.remove(user);
        }
        if let Some(tenant) = &self.tenant {
            self.counters.tenants.remove(tenant);
        }
        self.counters.node.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts by key; a key with nothing to count takes no memory.
#[derive(Debug)]
struct Tally<K> {
    hasher: RandomState,
    shards: [Mutex<HashMap<K, usize>>; SHARDS],
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl<K: Hash + Eq + Clone> Tally<K> {
    fn shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, usize>> {
        #[allow(clippy::cast_possible_truncation)]
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: &K, limit: usize) -> bool {
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(count) if *count >= limit => return false,
            Some(count) => *count += 1,
            None if limit == 0 => return false,
            None => drop(shard.insert(key.clone(), 1)),
        }
        true
    }

    fn remove(&self, key: &K) {
        let mut shard = self.shard(key);
        match shard.get_mut(key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(shard.remove(key)),
        }
        // After a wave of connections the table itself is what would stay.
        if shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
    }

    fn count(&self, key: &K) -> usize {
        self.shard(key).get(key).copied().unwrap_or(0)
    }

    #[cfg(test)]
    fn entries(&self) -> usize {
        self.shards.iter().map(|s| s.lock().unwrap().len()).sum()
    }
}
