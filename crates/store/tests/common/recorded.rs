//! A caller whose writes are recorded, so that they can be lost.

use std::sync::Arc;

use adsum_core::{
    DeviceId, Incarnation, Origin, Preference, SessionKey, UserId, UserKey, Version,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Preferred,
        Push, Renewed, Result, ScanPage, Shard, Store, Swept, Touch, Touched, UserRead,
    },
};
use adsum_store::RedisStore;
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::Mutex;

use crate::redis_lab::Tape;

pub(crate) struct Recorded {
    store: RedisStore,
    tapes: Arc<Vec<Mutex<Tape>>>,
}

impl Recorded {
    pub(crate) fn new(store: RedisStore, tapes: Arc<Vec<Mutex<Tape>>>) -> Self {
        Self { store, tapes }
    }

    /// Writes, and then looks what that changed.
    async fn record<T>(&self, write: impl Future<Output = T> + Send) -> T {
        let answer = write.await;
        for tape in &*self.tapes {
            tape.lock().await.record().await;
        }
        answer
    }
}

#[async_trait]
impl Store for Recorded {
    fn shards(&self) -> Shard {
        self.store.shards()
    }

    fn shard_of(&self, user: &UserKey) -> Shard {
        self.store.shard_of(user)
    }

    fn observe(&self, shard: Shard, epoch: u64) {
        self.store.observe(shard, epoch);
    }

    async fn check(&self) -> Result<()> {
        self.store.check().await
    }

    async fn open(&self, op: Open) -> Result<Answer<Opened>> {
        self.record(self.store.open(op)).await
    }

    async fn alter(&self, op: Alter) -> Result<Answer<Altered>> {
        self.record(self.store.alter(op)).await
    }

    async fn close(&self, op: Close) -> Result<Answer<Closed>> {
        self.record(self.store.close(op)).await
    }

    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        self.record(self.store.touch(ops)).await
    }

    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        self.record(self.store.kick(user, device)).await
    }

    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        self.record(self.store.purge(user)).await
    }

    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>> {
        self.record(self.store.renew(shard, holder, lease)).await
    }

    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        self.store.held(shard, holder, after, limit).await
    }

    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        self.record(self.store.claim(shard)).await
    }

    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        self.record(self.store.sweep_from(shard, fence, limit, origin))
            .await
    }

    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        self.record(self.store.prefer_from(user, preference, version, origin))
            .await
    }

    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        self.store.contacts(user).await
    }

    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        self.store.read(users).await
    }

    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        self.store.log(shard, after, limit).await
    }

    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        self.store.ends_with(shard, last).await
    }

    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        self.store.scan(shard, cursor).await
    }

    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        self.store.deadlines(shard, limit).await
    }

    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>> {
        self.store.subscribe(shard).await
    }
}
