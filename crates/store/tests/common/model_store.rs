//! The model behind the store's contract, and a lab for it.

use std::sync::{Arc, Mutex, MutexGuard};

use adsum_core::{
    Conn, DeviceId, Incarnation, Invalid, Origin, Preference, SessionKey, UserId, UserKey, Version,
    ring::ShardRing,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Position,
        Preferred, Push, Renewed, Result, ScanPage, Shard, Store, StoreError, Swept, Touch,
        Touched, UserRead,
    },
};
use adsum_store::{
    Options,
    conformance::{Lab, Labs, START},
};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};

use crate::model::{Call, ModelShard};

/// Sets up [`ModelLab`]s.
pub(crate) struct ModelLabs;

/// One model.
pub(crate) struct ModelLab {
    options: Options,
    world: Arc<Mutex<World>>,
}

#[derive(Default)]
struct World {
    now: u64,
    shards: Vec<ModelShard>,
    /// The identity of each shard's server.
    servers: Vec<u64>,
    /// Each shard before each write that changed it.
    history: Vec<Vec<ModelShard>>,
}

struct ModelStore {
    options: Options,
    ring: ShardRing,
    world: Arc<Mutex<World>>,
    seen: Mutex<Vec<u64>>,
}

impl ModelLab {
    pub(crate) fn new(options: Options) -> Self {
        let shards = usize::from(options.shards);
        let world = World {
            now: START,
            shards: vec![ModelShard::default(); shards],
            servers: vec![1; shards],
            history: vec![vec![]; shards],
        };
        Self {
            options,
            world: Arc::new(Mutex::new(world)),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn undo(&self, shard: Shard, writes: usize) {
        let (mut world, shard) = (self.world(), usize::from(shard));
        for _ in 0..writes {
            if let Some(before) = world.history[shard].pop() {
                world.shards[shard] = before;
            }
        }
    }
}

#[async_trait]
impl Labs for ModelLabs {
    async fn lab(&self, options: Options) -> Box<dyn Lab> {
        Box::new(ModelLab::new(options))
    }
}

#[async_trait]
impl Lab for ModelLab {
    fn options(&self) -> &Options {
        &self.options
    }

    async fn caller(&self) -> Arc<dyn Store> {
        self.caller_with(self.options.clone()).await
    }

    async fn caller_with(&self, options: Options) -> Arc<dyn Store> {
        let ring = ShardRing::new(options.shards);
        let seen = Mutex::new(vec![0; usize::from(options.shards)]);
        Arc::new(ModelStore {
            options,
            ring,
            world: self.world.clone(),
            seen,
        })
    }

    fn now(&self) -> u64 {
        self.world().now
    }

    fn advance(&self, ms: i64) {
        let mut world = self.world();
        world.now = world.now.checked_add_signed(ms).unwrap();
    }

    async fn fail_over(&self, shard: Shard) {
        self.world().servers[usize::from(shard)] += 1;
    }

    async fn lose_last(&self, shard: Shard, writes: usize) {
        self.undo(shard, writes);
        self.fail_over(shard).await;
    }

    async fn rewind(&self, shard: Shard, writes: usize) {
        self.undo(shard, writes);
        let (mut world, shard) = (self.world(), usize::from(shard));
        if let Some(meta) = &world.shards[shard].meta {
            world.servers[shard] = meta.replid;
        }
    }

    async fn flush(&self, shard: Shard) {
        let mut world = self.world();
        world.write(shard, |shard| *shard = ModelShard::default());
    }
}

impl World {
    fn write<T>(&mut self, shard: Shard, step: impl FnOnce(&mut ModelShard) -> T) -> T {
        let place = usize::from(shard);
        let before = self.shards[place].clone();
        let answer = step(&mut self.shards[place]);
        if self.shards[place].sorted() != before.sorted() {
            self.history[place].push(before);
        }
        answer
    }
}

impl ModelStore {
    fn call<'a>(&'a self, world: &World, shard: Shard) -> Call<'a> {
        let place = usize::from(shard);
        Call {
            now: world.now,
            seen: self.seen.lock().unwrap()[place],
            server: world.servers[place],
            options: &self.options,
        }
    }

    fn write<T>(
        &self,
        shard: Shard,
        step: impl FnOnce(&mut ModelShard, Call<'_>) -> Result<T>,
    ) -> Result<Answer<T>> {
        let mut world = self.world.lock().unwrap();
        let call = self.call(&world, shard);
        let value = world.write(shard, |shard| step(shard, call))?;
        let epoch = world.shards[usize::from(shard)]
            .meta
            .as_ref()
            .unwrap()
            .epoch;
        self.observe(shard, epoch);
        Ok(Answer {
            epoch,
            at: call.now,
            whole: None,
            value,
        })
    }

    /// A step about one session: the change that it committed, if it is all there is to say.
    fn write_session<T>(
        &self,
        owner: &UserKey,
        step: impl FnOnce(&mut ModelShard, Call<'_>) -> Result<T>,
    ) -> Result<Answer<T>> {
        let answer = self.write(self.shard_of(owner), |shard, call| {
            let before = shard.newest();
            let value = step(shard, call)?;
            Ok((value, shard.whole(before, owner)))
        })?;
        let (value, whole) = answer.value;
        Ok(Answer {
            epoch: answer.epoch,
            at: answer.at,
            whole,
            value,
        })
    }

    fn look<T>(&self, shard: Shard, look: impl FnOnce(&ModelShard, Call<'_>) -> T) -> T {
        let world = self.world.lock().unwrap();
        let call = self.call(&world, shard);
        look(&world.shards[usize::from(shard)], call)
    }

    /// A look that tells the epoch.
    fn look_at<T>(&self, shard: Shard, look: impl FnOnce(&ModelShard, Call<'_>) -> T) -> T {
        let epoch = self.look(shard, |s, _| s.meta.as_ref().map_or(0, |m| m.epoch));
        let answer = self.look(shard, look);
        self.observe(shard, epoch);
        answer
    }
}

#[async_trait]
impl Store for ModelStore {
    fn shards(&self) -> Shard {
        self.options.shards
    }

    fn shard_of(&self, user: &UserKey) -> Shard {
        self.ring.shard_of(user)
    }

    fn observe(&self, shard: Shard, epoch: u64) {
        let seen = &mut self.seen.lock().unwrap()[usize::from(shard)];
        *seen = epoch.max(*seen);
    }

    async fn check(&self) -> Result<()> {
        let shards = self.world.lock().unwrap().shards.len();
        (0..shards).try_for_each(|n| self.look_at(u16::try_from(n).unwrap(), |s, c| s.check(c)))
    }

    async fn open(&self, op: Open) -> Result<Answer<Opened>> {
        self.options.limits.check(&op.state)?;
        self.write_session(&op.key.owner, |s, c| s.open(c, &op))
    }

    async fn alter(&self, op: Alter) -> Result<Answer<Altered>> {
        self.options.limits.check(&op.state)?;
        self.write_session(&op.key.owner, |s, c| s.alter(c, &op))
    }

    async fn close(&self, op: Close) -> Result<Answer<Closed>> {
        self.write_session(&op.key.owner, |s, c| s.close(c, &op))
    }

    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        for op in &ops {
            self.options.limits.check(&op.state)?;
        }
        let mut answers: Vec<Option<Answer<Touched>>> = vec![None; ops.len()];
        for shard in 0..self.options.shards {
            let here = |op: &Touch| self.shard_of(&op.key.owner) == shard;
            let places: Vec<_> = (0..ops.len()).filter(|n| here(&ops[*n])).collect();
            if places.is_empty() {
                continue;
            }
            let group: Vec<_> = places.iter().map(|n| ops[*n].clone()).collect();
            let answer = self.write(shard, |s, c| s.touch(c, &group))?;
            for (place, value) in places.into_iter().zip(answer.value) {
                answers[place] = Some(Answer {
                    epoch: answer.epoch,
                    at: answer.at,
                    whole: None,
                    value,
                });
            }
        }
        Ok(answers.into_iter().map(Option::unwrap).collect())
    }

    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        self.write(self.shard_of(user), |s, c| s.kick(c, user, device))
    }

    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        self.write(self.shard_of(user), |s, c| s.purge(c, user))
    }

    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>> {
        self.write(shard, |s, c| s.renew(c, holder, lease))
    }

    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        Ok(self.look(shard, |s, _| s.held(holder, after, limit)))
    }

    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        self.write(shard, |s, c| s.claim(c))
    }

    // The model knows what is true, not where it came from.
    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        _origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        self.write(shard, |s, c| s.sweep(c, fence, limit))
    }

    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        _origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        if version == 0 || version > Conn::MAX {
            return Err(StoreError::Refused(
                "a version is between 1 and 2^53 - 1".into(),
            ));
        }
        if let Preference::Contacts(list) = &preference
            && list.len() > self.options.limits.contacts
        {
            let (count, limit) = (list.len(), self.options.limits.contacts);
            return Err(Invalid::TooManyContacts { count, limit }.into());
        }
        self.write(self.shard_of(user), |s, c| {
            s.prefer(c, user, &preference, version)
        })
    }

    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        Ok(self.look(self.shard_of(user), |s, _| s.contacts(user)))
    }

    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        let read = |user| self.look_at(self.shard_of(user), |s, c| s.read(c, user));
        users.iter().map(read).collect()
    }

    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        self.look_at(shard, |s, c| s.log(c, after, limit))
    }

    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        let page = self.look_at(shard, |s, c| s.log(c, 0, 0))?;
        let quiet = |p: Position| !p.settling && Version::new(p.epoch, p.seq) == last;
        Ok(page.position.is_some_and(quiet))
    }

    async fn scan(&self, shard: Shard, _: u64) -> Result<ScanPage> {
        Ok(self.look(shard, |s, _| ScanPage {
            people: s.people.clone(),
            next: None,
        }))
    }

    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        Ok(self.look(shard, |s, _| s.due(limit)))
    }

    /// The model pushes nothing: the log is the truth.
    async fn subscribe(&self, _: Shard) -> Result<BoxStream<'static, Push>> {
        Ok(futures::stream::pending().boxed())
    }
}
