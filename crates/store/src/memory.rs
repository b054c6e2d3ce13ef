//! Sessions in memory: for the embedded default, for tests, and as the plain statement of what
//! Redis does. The rules are in [`shard`] and beside it, free of clocks and locks; here is the
//! shell that calls them.

mod cell;
mod faults;
mod index;
mod log;
mod prefs;
mod reads;
mod sessions;
mod shard;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use adsum_core::{
    DeviceId, Incarnation, Invalid, Origin, Preference, SessionKey, UserId, UserKey, Version,
    ring::ShardRing,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Preferred,
        Push, Renewed, Result, ScanPage, Shard, Store, StoreError, Swept, Touch, Touched, UserRead,
    },
};
use async_trait::async_trait;
use futures::stream::BoxStream;

use self::{cell::Cell, shard::Call};
use crate::{
    Hooks, Options,
    numbers::{check_stamp, check_version},
};

/// Beyond this the random part of a new epoch does not go.
const NONCES: u64 = 1024;

/// Sessions in memory. Its handles are callers of the same data, as nodes are of one Redis.
#[derive(Debug)]
pub struct MemoryStore {
    data: Arc<Data>,
    options: Arc<Options>,
    ring: Arc<ShardRing>,
    /// The highest epoch of each shard that this handle saw.
    seen: Vec<AtomicU64>,
}

#[derive(Debug)]
struct Data {
    cells: Vec<Cell>,
    hooks: Hooks,
}

impl MemoryStore {
    /// An empty store that behaves as a fresh Redis does: a shard settles at its birth.
    #[must_use]
    pub fn new(options: Options, hooks: Hooks) -> Self {
        Self::build(options, hooks, false)
    }

    /// An empty store for a node that keeps its sessions itself. Its shards are born settled:
    /// it was just created, so nothing can have been lost, and absence means absence at once.
    /// Only a [`flush`](Self::flush) makes a shard that settles.
    #[must_use]
    pub fn embedded(options: Options) -> Self {
        Self::build(options, Hooks::default(), true)
    }

    fn build(options: Options, hooks: Hooks, nothing_lost: bool) -> Self {
        let cells = (0..options.shards)
            .map(|_| Cell::new(nothing_lost))
            .collect();
        Self::over(Arc::new(Data { cells, hooks }), options)
    }

    fn over(data: Arc<Data>, options: Options) -> Self {
        let ring = Arc::new(ShardRing::new(options.shards));
        let seen = fresh(&data);
        Self {
            data,
            options: Arc::new(options),
            ring,
            seen,
        }
    }

    /// Another caller of the same data, which has seen no epoch yet.
    #[must_use]
    pub fn handle(&self) -> Self {
        let (data, options) = (self.data.clone(), self.options.clone());
        Self {
            seen: fresh(&data),
            data,
            options,
            ring: self.ring.clone(),
        }
    }

    /// Another caller of the same data that is configured otherwise, as a node by mistake is.
    #[must_use]
    pub fn handle_with(&self, options: Options) -> Self {
        Self::over(self.data.clone(), options)
    }

    fn now(&self) -> u64 {
        if let Some(clock) = &self.data.hooks.clock {
            return clock.load(Relaxed);
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn cell(&self, shard: Shard) -> Result<&Cell> {
        let found = self.data.cells.get(usize::from(shard));
        found.ok_or_else(|| StoreError::Refused(format!("there is no shard {shard}")))
    }

    /// One write: one step of one shard, judged by its clock.
    fn write<T>(
        &self,
        shard: Shard,
        step: impl FnOnce(&mut shard::Shard, &Call<'_>) -> Result<T>,
    ) -> Result<Answer<T>> {
        self.write_from(shard, None, step)
    }

    fn write_from<T>(
        &self,
        shard: Shard,
        origin: Option<&Origin>,
        step: impl FnOnce(&mut shard::Shard, &Call<'_>) -> Result<T>,
    ) -> Result<Answer<T>> {
        let mut cell = self.cell(shard)?.lock()?;
        let nonce = self.data.hooks.nonce;
        let call = Call {
            now: self.now(),
            replid: cell.replid,
            seen: self.seen[usize::from(shard)].load(Relaxed),
            nonce: nonce.unwrap_or_else(|| rand::random_range(0..NONCES)),
            options: &self.options,
            origin,
        };
        let value = cell.write(|shard| step(shard, &call))?;
        let epoch = cell.shard.meta.as_ref().map_or(0, |m| m.epoch);
        self.observe(shard, epoch);
        Ok(Answer {
            epoch,
            at: call.now,
            whole: None,
            value,
        })
    }

    /// A step that is about one session, and the change that it committed if that is all there is to
    /// say of its owner.
    fn write_session<T>(
        &self,
        shard: Shard,
        step: impl FnOnce(&mut shard::Shard, &Call<'_>) -> Result<T>,
    ) -> Result<Answer<T>> {
        let answer = self.write(shard, |shard, call| {
            let value = step(shard, call)?;
            Ok((value, shard.whole()))
        })?;
        let (value, whole) = answer.value;
        Ok(Answer {
            epoch: answer.epoch,
            at: answer.at,
            whole,
            value,
        })
    }

    fn write_preference(
        &self,
        user: &UserKey,
        preference: &Preference,
        version: u64,
        origin: Option<&Origin>,
    ) -> Result<Answer<Preferred>> {
        check_version(version)?;
        let limit = self.options.limits.contacts;
        match preference {
            Preference::Contacts(list) if list.len() > limit => {
                return Err(Invalid::TooManyContacts {
                    count: list.len(),
                    limit,
                }
                .into());
            }
            _ => {}
        }
        self.write_from(self.shard_of(user), origin, |shard, call| {
            shard.prefer(call, user, preference, version)
        })
    }
}

fn fresh(data: &Data) -> Vec<AtomicU64> {
    data.cells.iter().map(|_| AtomicU64::new(0)).collect()
}

#[async_trait]
impl Store for MemoryStore {
    fn shards(&self) -> Shard {
        self.options.shards
    }

    fn shard_of(&self, user: &UserKey) -> Shard {
        self.ring.shard_of(user)
    }

    fn observe(&self, shard: Shard, epoch: u64) {
        if let Some(seen) = self.seen.get(usize::from(shard)) {
            seen.fetch_max(epoch, Relaxed);
        }
    }

    async fn check(&self) -> Result<()> {
        self.data
            .cells
            .iter()
            .try_for_each(|cell| cell.lock()?.shard.check_shards(&self.options))
    }

    async fn open(&self, op: Open) -> Result<Answer<Opened>> {
        self.options.limits.check(&op.state)?;
        self.write_session(self.shard_of(&op.key.owner), |shard, call| {
            shard.open(call, &op)
        })
    }

    async fn alter(&self, op: Alter) -> Result<Answer<Altered>> {
        self.options.limits.check(&op.state)?;
        self.write_session(self.shard_of(&op.key.owner), |shard, call| {
            shard.alter(call, &op)
        })
    }

    async fn close(&self, op: Close) -> Result<Answer<Closed>> {
        check_stamp(op.stamp)?;
        self.write_session(self.shard_of(&op.key.owner), |shard, call| {
            shard.close(call, &op)
        })
    }

    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        ops.iter()
            .try_for_each(|op| self.options.limits.check(&op.state))?;
        let mut order: Vec<_> = (0..)
            .zip(&ops)
            .map(|(n, op)| (self.shard_of(&op.key.owner), n, op))
            .collect();
        order.sort_by_key(|(shard, n, _)| (*shard, *n));
        let mut answers: Vec<(usize, Answer<Touched>)> = Vec::with_capacity(ops.len());
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            let Some((shard, ..)) = group.first() else {
                continue;
            };
            let answer = self.write(*shard, |shard, call| {
                shard.begin(call)?;
                Ok(group
                    .iter()
                    .map(|(_, n, op)| (*n, shard.touch(call, op)))
                    .collect::<Vec<_>>())
            })?;
            let Answer {
                epoch, at, value, ..
            } = answer;
            answers.extend(value.into_iter().map(|(n, value)| {
                (
                    n,
                    Answer {
                        epoch,
                        at,
                        whole: None,
                        value,
                    },
                )
            }));
        }
        answers.sort_by_key(|(n, _)| *n);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        self.write(self.shard_of(user), |shard, call| {
            shard.kick(call, user, device)
        })
    }

    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        self.write(self.shard_of(user), |shard, call| shard.purge(call, user))
    }

    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>> {
        if self.cell(shard)?.lock()?.unrenewed {
            return Err(StoreError::Unavailable("renewals are refused".into()));
        }
        self.write(shard, |shard, call| shard.renew(call, holder, lease))
    }

    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        Ok(self
            .cell(shard)?
            .lock()?
            .shard
            .held
            .after(holder, after, limit))
    }

    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        self.write(shard, |shard, call| shard.claim(call))
    }

    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        self.write_from(shard, origin.as_ref(), |shard, call| {
            shard.sweep(call, fence, limit)
        })
    }

    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        self.write_preference(user, &preference, version, origin.as_ref())
    }

    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        Ok(self.cell(self.shard_of(user))?.lock()?.shard.contacts(user))
    }

    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        let read = |user| {
            let shard = self.shard_of(user);
            let cell = self.cell(shard)?.lock()?;
            let read = cell.shard.read(&self.options, cell.replid, user)?;
            self.observe(shard, cell.shard.meta.as_ref().map_or(0, |m| m.epoch));
            Ok(read)
        };
        users.iter().map(read).collect()
    }

    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        let cell = self.cell(shard)?.lock()?;
        let page = cell
            .shard
            .log_page(&self.options, cell.replid, after, limit)?;
        if let Some(position) = page.position {
            self.observe(shard, position.epoch);
        }
        Ok(page)
    }

    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        let cell = self.cell(shard)?.lock()?;
        let meta = cell.shard.meta.as_ref();
        Ok(meta.is_some_and(|m| !m.unsettled && Version::new(m.epoch, m.seq) == last))
    }

    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        Ok(self.cell(shard)?.lock()?.shard.scan(cursor))
    }

    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        Ok(self.cell(shard)?.lock()?.shard.due(limit))
    }

    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>> {
        Ok(self.cell(shard)?.lock()?.subscribe())
    }
}
