//! Persons and last seen, from the store. Whoever may not be seen is told exactly as whoever was
//! never there: the judgement is [`Sight`]'s, made here once for every read.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use adsum_core::{
    Holder, Item, Manual, Person, Prefs, Status, Topic, UserId, UserKey, Version, Visibility,
    store::UserRead,
};
use adsum_proto::client::LastSeen;
use futures::{StreamExt, TryStreamExt};

use super::{Requests, Result, patience::patiently};
use crate::{Caller, Sight, clock};

/// Questions of one request that are under way at the same time.
const AT_ONCE: usize = 32;

type List = Arc<HashSet<UserId>>;

/// A user as the caller may see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Who was asked for.
    pub(crate) user: UserId,
    /// `None`: offline, as far as the caller may know.
    pub(crate) item: Option<Arc<Item>>,
    /// When they were last there; never together with `item`.
    pub(crate) last_seen: Option<LastSeen>,
    /// The gateways of their devices; only for those who see everybody.
    pub(crate) gateways: Vec<String>,
}

impl Requests {
    /// One person.
    pub(crate) async fn get(&self, caller: &Caller, user: UserId) -> Result<Sighting> {
        let mut found = self.get_many(caller, vec![user.clone()]).await?;
        Ok(found.pop().unwrap_or_else(|| nobody(user)))
    }

    /// Persons, in the order asked for.
    pub(crate) async fn get_many(
        &self,
        caller: &Caller,
        users: Vec<UserId>,
    ) -> Result<Vec<Sighting>> {
        self.check_users(users.len())?;
        for user in &users {
            caller.may_watch(&Topic::User(user.clone()))?;
        }
        let tenant = &caller.identity.tenant;
        let key = |user| UserKey::new(tenant.clone(), user);
        let keys: Vec<_> = users.into_iter().map(key).collect();
        let reads = patiently(|| self.edge().store().read(&keys)).await?;
        let judged = keys.into_iter().zip(reads);
        let judged = judged.map(|(key, read)| self.judge(caller, key, read));
        let judged = futures::stream::iter(judged).buffered(AT_ONCE);
        judged.try_collect().await
    }

    /// When users were last there, in the order asked for; nothing of those who are there now.
    pub(crate) async fn last_seen(
        &self,
        caller: &Caller,
        users: Vec<UserId>,
    ) -> Result<Vec<Sighting>> {
        self.get_many(caller, users).await
    }

    /// Whether the user is there, as far as the caller may know.
    pub(super) async fn sees(&self, caller: &Caller, key: &UserKey) -> Result<bool> {
        let users = std::slice::from_ref(key);
        let mut reads = patiently(|| self.edge().store().read(users)).await?;
        let read = reads.pop().unwrap_or_default();
        let seen = self.judge(caller, key.clone(), read).await?;
        Ok(seen.item.is_some())
    }

    async fn judge(&self, caller: &Caller, key: UserKey, read: UserRead) -> Result<Sighting> {
        let truth = self.truth(&key, read).await;
        let list = self.list(&caller.sight, &key, &truth.ghost).await?;
        let retention = caller.settings.times.retention_ms;
        Ok(truth.seen_by(&caller.sight, list.as_ref(), retention))
    }

    /// A shard that has not settled does not know whom it lost; the dispatchers still do.
    async fn truth(&self, key: &UserKey, read: UserRead) -> Truth {
        if read.person.is_some() || !read.settling {
            return Truth::of(&key.user, read);
        }
        let topic = Topic::User(key.user.clone());
        let mut watch = self.edge().feed().watch(key.tenant.clone(), topic);
        match watch.ready().await.items.first() {
            Some(item) => Truth::held(Arc::clone(item), read.last_seen),
            None => Truth::of(&key.user, read),
        }
    }

    /// The list of contacts, if that is what decides.
    async fn list(&self, sight: &Sight, key: &UserKey, ghost: &Item) -> Result<Option<List>> {
        let decides = ghost.visibility == Visibility::Contacts
            && ghost.contacts != 0
            && !sight.all
            && sight.user.as_ref().is_some_and(|user| *user != key.user);
        if !decides {
            return Ok(None);
        }
        let version = ghost.contacts;
        if let Some(list) = self.edge().feed().contacts(&key.tenant, &key.user, version) {
            return Ok(Some(list));
        }
        let stored = patiently(|| self.edge().store().contacts(key)).await?;
        // One that is newer than the person is what holds now; an older one was lost since.
        let stored = stored.filter(|(stored, _)| *stored >= version);
        Ok(stored.map(|(_, list)| Arc::new(list.into_iter().collect())))
    }
}

/// What is known of a user, whoever may see it.
struct Truth {
    item: Option<Arc<Item>>,
    /// The user without sessions and without a status: who may see it may know of their absence.
    ghost: Item,
    last_seen: Option<u64>,
    gateways: Vec<String>,
}

impl Truth {
    fn of(user: &UserId, read: UserRead) -> Self {
        let prefs = read.person.as_ref().map_or(read.prefs, |p| p.prefs);
        Self {
            item: read.person.as_ref().and_then(|p| p.item(user)),
            ghost: ghost(user, &prefs),
            last_seen: read.last_seen,
            gateways: read.person.as_ref().map(gateways).unwrap_or_default(),
        }
    }

    fn held(item: Arc<Item>, last_seen: Option<u64>) -> Self {
        let ghost = Item {
            status: Status::Offline,
            ..Item::clone(&item)
        };
        Self {
            item: Some(item),
            ghost,
            last_seen,
            gateways: Vec::new(),
        }
    }

    fn seen_by(self, sight: &Sight, list: Option<&List>, retention_ms: u64) -> Sighting {
        let sees = |item: &Item| sight.sees(item, |_, _| list.cloned());
        let user = self.ghost.user.clone();
        if let Some(item) = self.item.filter(|item| sees(item)) {
            return Sighting {
                user,
                item: Some(item),
                last_seen: None,
                gateways: if sight.all { self.gateways } else { Vec::new() },
            };
        }
        if !sees(&self.ghost) {
            return nobody(user);
        }
        // While invisible the last seen is the one from before, whether they are there or not.
        let frozen = Some(self.ghost.frozen_at).filter(|at| *at != 0);
        let now = clock::wall_ms();
        let at = frozen.or(self.last_seen);
        let at = at.filter(|at| at.saturating_add(retention_ms) >= now);
        Sighting {
            last_seen: at.and_then(|at| LastSeen::new(at, now)),
            ..nobody(user)
        }
    }
}

/// Somebody of whom nothing may be told, or who never was.
fn nobody(user: UserId) -> Sighting {
    Sighting {
        user,
        item: None,
        last_seen: None,
        gateways: Vec::new(),
    }
}

fn ghost(user: &UserId, prefs: &Prefs) -> Item {
    let invisible = prefs.status.value == Some(Manual::Invisible);
    Item {
        user: user.clone(),
        status: Status::Offline,
        devices: Vec::new(),
        meta: None,
        since: 0,
        v: Version::ZERO,
        visibility: prefs.visibility.value,
        contacts: prefs.contacts,
        frozen_at: if invisible { prefs.frozen_at } else { 0 },
    }
}

fn gateways(person: &Person) -> Vec<String> {
    let nodes = person.sessions.values().filter_map(|s| match &s.holder {
        Holder::Gateway(incarnation) => Some(incarnation.node().to_owned()),
        Holder::Own => None,
    });
    nodes.collect::<BTreeSet<_>>().into_iter().collect()
}
