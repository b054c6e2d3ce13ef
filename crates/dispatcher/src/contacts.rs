//! Lists of contacts: read from the store once per version, sent to each gateway once.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use adsum_core::{
    Item, TenantId, UserId, UserKey, Visibility,
    store::{Result, Store},
};
use futures::{StreamExt, stream};
use tokio::time::sleep;

/// Lists that are read at the same time.
const AT_ONCE: usize = 64;

/// How long states wait for the lists that they go with.
const PATIENCE: Duration = Duration::from_millis(250);

type List = Arc<Vec<UserId>>;

/// Lists that several gateways will ask for.
pub(crate) struct Lists {
    store: Arc<dyn Store>,
    known: Mutex<HashMap<UserKey, (u64, List)>>,
    limit: usize,
}

impl Lists {
    pub(crate) fn new(store: Arc<dyn Store>, limit: usize) -> Self {
        Self {
            store,
            known: Mutex::default(),
            limit,
        }
    }

    /// The list, at this version or a later one; `None` if there is none.
    pub(crate) async fn get(&self, user: &UserKey, version: u64) -> Result<Option<(u64, List)>> {
        if let Some(known) = self.cached(user).filter(|(v, _)| *v >= version) {
            return Ok(Some(known));
        }
        let Some((version, users)) = self.store.contacts(user).await? else {
            return Ok(None);
        };
        let list = (version, Arc::new(users));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.limit {
            // Rare, and the store has them all: simpler than keeping order.
            known.clear();
        }
        known.insert(user.clone(), list.clone());
        Ok(Some(list))
    }

    fn cached(&self, user: &UserKey) -> Option<(u64, List)> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(user)
            .cloned()
    }
}

/// What one gateway has of them.
#[derive(Default)]
pub(crate) struct Sent {
    sent: HashMap<UserKey, u64>,
    missing: HashSet<(UserKey, u64)>,
}

impl Sent {
    /// Notes an item that goes out: its list must follow, if it has one.
    pub(crate) fn note(&mut self, tenant: &TenantId, item: &Item) {
        if item.visibility != Visibility::Contacts || item.contacts == 0 {
            return;
        }
        let user = UserKey::new(tenant.clone(), item.user.clone());
        if self.sent.get(&user).is_none_or(|v| *v < item.contacts) {
            self.missing.insert((user, item.contacts));
        }
    }

    /// Reads what is missing, for a short time: a shard that hangs must not hold up the others.
    /// What can't be read now is tried again the next time; until then the gateway treats the
    /// person as visible to nobody.
    pub(crate) async fn fetch(&mut self, lists: &Lists, limit: usize) -> Vec<(UserKey, u64, List)> {
        if self.missing.is_empty() {
            return Vec::new();
        }
        let asked: Vec<_> = self.missing.iter().cloned().collect();
        let read = async |wanted: (UserKey, u64)| {
            let list = lists.get(&wanted.0, wanted.1).await;
            (wanted, list)
        };
        let reads = stream::iter(asked).map(read).buffer_unordered(AT_ONCE);
        let mut reads = pin!(reads.take_until(sleep(PATIENCE)));
        let mut found = Vec::new();
        while let Some((wanted, list)) = reads.next().await {
            match list {
                Ok(Some((version, list))) => {
                    if self.sent.len() >= limit {
                        self.sent.clear();
                    }
                    self.sent.insert(wanted.0.clone(), version);
                    found.push((wanted.0.clone(), version, list));
                }
                // Gone for good: nobody may see this person, which is what no list means.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "list of contacts can't be read now");
                    continue;
                }
            }
            self.missing.remove(&wanted);
        }
        found
    }
}
