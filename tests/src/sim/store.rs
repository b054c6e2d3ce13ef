//! One process's way to the real store in memory, through the simulated network. Notes what only
//! the store can know for sure: who got a fence, whose sweep was accepted.

use std::sync::Arc;

use adsum_core::{
    DeviceId, Incarnation, Origin, Preference, SessionKey, UserId, UserKey, Version,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Preferred,
        Push, Renewed, Result, ScanPage, Shard, Store, StoreError, Swept, Touch, Touched, UserRead,
    },
};
use adsum_store::MemoryStore;
use async_trait::async_trait;
use futures::{FutureExt, stream::BoxStream};

use super::net::{Copy, Net};
use crate::history::Event;

pub(super) struct SimStore {
    inner: Arc<MemoryStore>,
    net: Arc<Net>,
    process: usize,
    name: String,
}

/// The store in memory never waits.
pub(super) fn now<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Err(StoreError::Corrupt("the store in memory waits".into()));
    answer.now_or_never().unwrap_or_else(late)
}

impl SimStore {
    pub(super) fn new(store: &MemoryStore, net: &Arc<Net>, process: usize, name: &str) -> Self {
        Self {
            inner: Arc::new(store.handle()),
            net: net.clone(),
            process,
            name: name.to_owned(),
        }
    }

    fn copy(&self, step: impl FnOnce(&MemoryStore) + Send + 'static) -> Option<Copy> {
        let inner = self.inner.clone();
        Some(Box::new(move || step(&inner)))
    }

    fn wrote<T>(&self, shard: Shard, answer: &Result<T>, changed: impl FnOnce(&T) -> bool) {
        if answer.as_ref().is_ok_and(changed) {
            self.net.wrote(shard, false);
        }
    }

    fn swept(&self, shard: Shard, fence: Fence, answer: &Result<Answer<Swept>>) {
        if let Ok(Answer {
            value: Swept::Ok { .. },
            ..
        }) = answer
        {
            self.net.note(Event::Swept {
                shard,
                reaper: self.name.clone(),
                fence: (fence.epoch, fence.number),
            });
        }
    }
}

#[async_trait]
impl Store for SimStore {
    fn shards(&self) -> Shard {
        self.inner.shards()
    }

    fn shard_of(&self, user: &UserKey) -> Shard {
        self.inner.shard_of(user)
    }

    fn observe(&self, shard: Shard, epoch: u64) {
        self.inner.observe(shard, epoch);
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }

    async fn open(&self, op: Open) -> Result<Answer<Opened>> {
        let again = op.clone();
        let copy = self.copy(move |store| drop(now(store.open(again))));
        let shard = self.shard_of(&op.key.owner);
        let step = || {
            let answer = now(self.inner.open(op));
            self.wrote(
                shard,
                &answer,
                |a| matches!(a.value, Opened::Ok { committed, .. } if committed),
            );
            answer
        };
        self.net.call(self.process, copy, step).await
    }

    async fn alter(&self, op: Alter) -> Result<Answer<Altered>> {
        let again = op.clone();
        let copy = self.copy(move |store| drop(now(store.alter(again))));
        let shard = self.shard_of(&op.key.owner);
        let step = || {
            let answer = now(self.inner.alter(op));
            self.wrote(
                shard,
                &answer,
                |a| matches!(a.value, Altered::Ok { committed, .. } if committed),
            );
            answer
        };
        self.net.call(self.process, copy, step).await
    }

    async fn close(&self, op: Close) -> Result<Answer<Closed>> {
        let again = op.clone();
        let copy = self.copy(move |store| drop(now(store.close(again))));
        let shard = self.shard_of(&op.key.owner);
        let step = || {
            let answer = now(self.inner.close(op));
            self.wrote(
                shard,
                &answer,
                |a| matches!(a.value, Closed::Ok { committed } if committed),
            );
            answer
        };
        self.net.call(self.process, copy, step).await
    }

    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        let again = ops.clone();
        let copy = self.copy(move |store| drop(now(store.touch(again))));
        let step = || now(self.inner.touch(ops));
        self.net.call(self.process, copy, step).await
    }

    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        let step = || now(self.inner.kick(user, device));
        self.net.call(self.process, None, step).await
    }

    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        let step = || now(self.inner.purge(user));
        self.net.call(self.process, None, step).await
    }

    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>> {
        let step = || {
            let answer = now(self.inner.renew(shard, holder, lease));
            self.wrote(shard, &answer, |a| matches!(a.value, Renewed::Ok { .. }));
            answer
        };
        self.net.call(self.process, None, step).await
    }

    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        let step = || now(self.inner.held(shard, holder, after, limit));
        self.net.read(self.process, step).await
    }

    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        let step = || {
            let answer = now(self.inner.claim(shard));
            self.wrote(shard, &answer, |_| true);
            if let Ok(Answer { value: fence, .. }) = &answer {
                self.net.note(Event::Claimed {
                    shard,
                    reaper: self.name.clone(),
                    fence: (fence.epoch, fence.number),
                });
            }
            answer
        };
        self.net.call(self.process, None, step).await
    }

    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        let step = || {
            let answer = now(self.inner.sweep_from(shard, fence, limit, origin));
            self.swept(shard, fence, &answer);
            answer
        };
        self.net.call(self.process, None, step).await
    }

    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        let (inner, owner) = (self.inner.clone(), user.clone());
        let (again, cause) = (preference.clone(), origin.clone());
        let copy: Copy =
            Box::new(move || drop(now(inner.prefer_from(&owner, again, version, cause))));
        let step = || {
            let answer = now(self.inner.prefer_from(user, preference, version, origin));
            // It waits for a replica, so neither it nor anything before it can be lost.
            self.net.wrote(self.shard_of(user), true);
            answer
        };
        self.net.call(self.process, Some(copy), step).await
    }

    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        let step = || now(self.inner.contacts(user));
        self.net.read(self.process, step).await
    }

    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        let step = || now(self.inner.read(users));
        self.net.read(self.process, step).await
    }

    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        let step = || now(self.inner.log(shard, after, limit));
        self.net.read(self.process, step).await
    }

    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        let step = || now(self.inner.ends_with(shard, last));
        self.net.read(self.process, step).await
    }

    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        let step = || now(self.inner.scan(shard, cursor));
        self.net.read(self.process, step).await
    }

    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        let step = || now(self.inner.deadlines(shard, limit));
        self.net.read(self.process, step).await
    }

    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>> {
        self.inner.subscribe(shard).await
    }
}
