//! A store and a membership that remember what was asked, and can be made slow, deaf or unsure.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adsum_cluster::LocalMembership;
use adsum_core::membership::{Members, Membership, MembershipError, Owners};
use adsum_core::store::{
    Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Preferred,
    Push, Renewed, Result, ScanPage, Shard, Store, StoreError, Swept, Touch, Touched, UserRead,
};
use adsum_core::{DeviceId, Incarnation, NodeId, Origin, Preference, SessionKey, UserId, UserKey};
use adsum_store::MemoryStore;
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::watch;

/// What a reaper asked, in the order in which it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Prove(Shard),
    Claim(Shard),
    /// `None` if refused, else how many were closed.
    Sweep(Shard, Fence, Option<u64>),
}

/// All that was asked, with the names of those who asked.
pub(crate) type Record = Arc<Mutex<Vec<(String, Asked)>>>;

/// A store as one node sees it.
pub(crate) struct SpyStore {
    pub(crate) inner: MemoryStore,
    pub(crate) name: String,
    pub(crate) record: Record,
    /// Sweeps of this shard wait before they reach the store.
    pub(crate) held_up: watch::Sender<Option<Shard>>,
    /// Every sweep that closes something takes this long.
    pub(crate) work: Duration,
    pub(crate) deaf: AtomicBool,
}

impl SpyStore {
    fn hear(&self) -> Result<()> {
        if self.deaf.load(SeqCst) {
            return Err(StoreError::Unavailable("cut off by a test".into()));
        }
        Ok(())
    }

    fn note(&self, asked: Asked) {
        self.record.lock().unwrap().push((self.name.clone(), asked));
    }
}

#[async_trait]
impl Store for SpyStore {
    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        self.hear()?;
        self.note(Asked::Claim(shard));
        self.inner.claim(shard).await
    }

    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        let mut held_up = self.held_up.subscribe();
        let _ = held_up.wait_for(|held_up| *held_up != Some(shard)).await;
        self.hear()?;
        // The store in memory never waits, so nobody can get between the sweep and the note.
        let answer = self.inner.sweep_from(shard, fence, limit, origin).await?;
        let closed = match answer.value {
            Swept::Ok { closed, .. } => Some(closed),
            Swept::Refused => None,
        };
        self.note(Asked::Sweep(shard, fence, closed));
        if closed > Some(0) && !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        Ok(answer)
    }

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
        self.inner.open(op).await
    }
    async fn alter(&self, op: Alter) -> Result<Answer<Altered>> {
        self.inner.alter(op).await
    }
    async fn close(&self, op: Close) -> Result<Answer<Closed>> {
        self.inner.close(op).await
    }
    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        self.inner.touch(ops).await
    }
    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        self.inner.kick(user, device).await
    }
    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        self.inner.purge(user).await
    }
    async fn renew(&self, shard: Shard, by: &Incarnation, lease: Lease) -> Result<Answer<Renewed>> {
        self.inner.renew(shard, by, lease).await
    }
    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        self.inner.held(shard, holder, after, limit).await
    }
    async fn prefer_from(
        &self,
        user: &UserKey,
        what: Preference,
        v: u64,
        origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        self.inner.prefer_from(user, what, v, origin).await
    }
    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        self.inner.contacts(user).await
    }
    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        self.inner.read(users).await
    }
    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        self.hear()?;
        self.inner.log(shard, after, limit).await
    }
    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        self.inner.scan(shard, cursor).await
    }
    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        self.inner.deadlines(shard, limit).await
    }
    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>> {
        self.inner.subscribe(shard).await
    }
}

/// A node's membership, whose lease a test can make uncertain.
pub(crate) struct SpyMembership {
    pub(crate) inner: LocalMembership,
    pub(crate) name: String,
    pub(crate) record: Record,
    pub(crate) left: Mutex<Option<Duration>>,
}

#[async_trait]
impl Membership for SpyMembership {
    async fn prove(&self, shard: u16) -> std::result::Result<bool, MembershipError> {
        let proved = self.inner.prove(shard).await;
        self.record
            .lock()
            .unwrap()
            .push((self.name.clone(), Asked::Prove(shard)));
        proved
    }
    fn lease_left(&self) -> Duration {
        self.left
            .lock()
            .unwrap()
            .unwrap_or_else(|| self.inner.lease_left())
    }
    fn node(&self) -> NodeId {
        self.inner.node()
    }
    fn watch_node(&self) -> BoxStream<'static, Option<NodeId>> {
        self.inner.watch_node()
    }
    fn members(&self) -> Arc<Members> {
        self.inner.members()
    }
    fn watch(&self) -> BoxStream<'static, Arc<Members>> {
        self.inner.watch()
    }
    fn owners(&self) -> Arc<Owners> {
        self.inner.owners()
    }
    fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>> {
        self.inner.watch_owners()
    }
    async fn campaign(&self, shard: u16) -> std::result::Result<bool, MembershipError> {
        self.inner.campaign(shard).await
    }
    async fn resign(&self, shard: u16) -> std::result::Result<(), MembershipError> {
        self.inner.resign(shard).await
    }
    async fn leave(&self) -> std::result::Result<(), MembershipError> {
        self.inner.leave().await
    }
}
