//! The store, measured. Operations that commit changes get an origin here if they have none, and
//! the span of the commit, whose context is what travels in the log.

use std::{future::Future, sync::Arc, time::Instant};

use adsum_core::{
    DeviceId, Incarnation, Origin, Preference, SessionKey, UserId, UserKey, Version,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Preferred,
        Push, Renewed, Result, ScanPage, Shard, Store, Swept, Touch, Touched, UserRead,
    },
};
use async_trait::async_trait;
use futures::stream::BoxStream;

use super::Health;
use crate::{
    clock,
    metrics::{self, Hop, Label, Operation, metrics},
    trace::{self, Context, Span, SpanKind, TraceId},
};

/// A store whose calls are measured.
pub struct MeasuredStore {
    store: Arc<dyn Store>,
    system: &'static str,
    health: Arc<Health>,
}

impl MeasuredStore {
    /// Puts a measure around it. `system` is what OpenTelemetry calls it.
    #[must_use]
    pub fn around(store: Arc<dyn Store>, system: &'static str) -> (Arc<dyn Store>, Arc<Health>) {
        let health = Arc::new(Health::default());
        let measured = Self {
            store,
            system,
            health: health.clone(),
        };
        (Arc::new(measured), health)
    }

    async fn measure<T>(
        &self,
        operation: Operation,
        shard: Option<Shard>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let result = work.await;
        let calls = metrics().store_calls.of(operation);
        calls.record_time(began.elapsed());
        match (&result, shard) {
            (Err(error), shard) => {
                metrics().store_errors.of(error.into()).one();
                if let (Some(shard), true) = (shard, error.retry()) {
                    self.health.failed(shard, error);
                }
            }
            (Ok(_), Some(shard)) => self.health.answered(shard),
            (Ok(_), None) => {}
        }
        result
    }

    /// The span of a commit, under where the change comes from; and where it comes from, if
    /// nobody said.
    fn commit(&self, op: Operation, shard: Shard, origin: &mut Option<Origin>) -> Commit {
        if !metrics::on() && !trace::on() {
            return Commit::default();
        }
        let known = origin.get_or_insert_with(|| Origin {
            at_us: clock::wall_us(),
            traceparent: None,
        });
        let at_us = known.at_us;
        if !trace::on() {
            return Commit { at_us, span: None };
        }
        let parent = Context::sampled(known.traceparent.as_deref()).or_else(trace::current);
        let span = match parent {
            Some(parent) => trace::under("commit", SpanKind::Client, Some(parent)),
            None => trace::root("commit", SpanKind::Client),
        };
        let span = span.map(|span| {
            span.with("db.system.name", self.system)
                .with("db.operation.name", Operation::VALUES[op.place()])
                .with("adsum.shard", i64::from(shard))
        });
        known.traceparent = span.as_ref().map(Span::traceparent);
        Commit { at_us, span }
    }
}

/// A commit under way.
#[derive(Default)]
struct Commit {
    at_us: u64,
    span: Option<Span>,
}

impl Commit {
    /// How it ended. One that committed nothing leaves no trace.
    fn end<T>(self, answer: &Result<T>, committed: impl Fn(&T) -> bool) {
        let trace: Option<TraceId> = self.span.as_ref().map(|span| span.context.trace);
        match (answer, self.span) {
            (Err(error), Some(mut span)) => span.fail(error.code()),
            (Ok(answer), Some(span)) if !committed(answer) => span.forget(),
            _ => {}
        }
        if self.at_us > 0 && answer.as_ref().is_ok_and(committed) {
            let took = clock::wall_us().saturating_sub(self.at_us);
            metrics().fanout.of(Hop::Commit).record_in(took, trace);
        }
    }
}

#[async_trait]
impl Store for MeasuredStore {
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
        self.measure(Operation::Check, None, self.store.check())
            .await
    }

    async fn open(&self, mut op: Open) -> Result<Answer<Opened>> {
        let shard = self.shard_of(&op.key.owner);
        let commit = self.commit(Operation::Open, shard, &mut op.origin);
        let call = self.store.open(op);
        let answer = self.measure(Operation::Open, Some(shard), call).await;
        commit.end(&answer, |a| {
            matches!(
                a.value,
                Opened::Ok {
                    committed: true,
                    ..
                }
            )
        });
        answer
    }

    async fn alter(&self, mut op: Alter) -> Result<Answer<Altered>> {
        let shard = self.shard_of(&op.key.owner);
        let commit = self.commit(Operation::Alter, shard, &mut op.origin);
        let call = self.store.alter(op);
        let answer = self.measure(Operation::Alter, Some(shard), call).await;
        commit.end(&answer, |a| {
            matches!(
                a.value,
                Altered::Ok {
                    committed: true,
                    ..
                }
            )
        });
        answer
    }

    async fn close(&self, mut op: Close) -> Result<Answer<Closed>> {
        let shard = self.shard_of(&op.key.owner);
        let commit = self.commit(Operation::Close, shard, &mut op.origin);
        let call = self.store.close(op);
        let answer = self.measure(Operation::Close, Some(shard), call).await;
        commit.end(&answer, |a| a.value == Closed::Ok { committed: true });
        answer
    }

    async fn touch(&self, mut ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        let shard = ops.first().map(|op| self.shard_of(&op.key.owner));
        // Beats come in batches of one request, so they share where they come from.
        let mut origin = ops.first().and_then(|op| op.origin.clone());
        let commit = self.commit(Operation::Touch, shard.unwrap_or(0), &mut origin);
        for op in &mut ops {
            op.origin.clone_from(&origin);
        }
        let call = self.store.touch(ops);
        let answer = self.measure(Operation::Touch, shard, call).await;
        let one = |a: &Answer<Touched>| a.value == Touched::Ok { committed: true };
        commit.end(&answer, |all| all.iter().any(one));
        answer
    }

    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        let shard = Some(self.shard_of(user));
        let call = self.store.kick(user, device);
        self.measure(Operation::Kick, shard, call).await
    }

    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        let shard = Some(self.shard_of(user));
        let call = self.store.purge(user);
        self.measure(Operation::Purge, shard, call).await
    }

    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>> {
        let call = self.store.renew(shard, holder, lease);
        self.measure(Operation::Renew, Some(shard), call).await
    }

    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        let call = self.store.held(shard, holder, after, limit);
        self.measure(Operation::Held, Some(shard), call).await
    }

    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        let call = self.store.claim(shard);
        self.measure(Operation::Claim, Some(shard), call).await
    }

    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        let call = self.store.sweep_from(shard, fence, limit, origin);
        self.measure(Operation::Sweep, Some(shard), call).await
    }

    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        mut origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        let shard = self.shard_of(user);
        let commit = self.commit(Operation::Prefer, shard, &mut origin);
        let call = self.store.prefer_from(user, preference, version, origin);
        let answer = self.measure(Operation::Prefer, Some(shard), call).await;
        commit.end(&answer, |a| matches!(a.value, Preferred::Ok(_)));
        answer
    }

    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        let shard = Some(self.shard_of(user));
        let call = self.store.contacts(user);
        self.measure(Operation::Contacts, shard, call).await
    }

    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        self.measure(Operation::Read, None, self.store.read(users))
            .await
    }

    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        let call = self.store.log(shard, after, limit);
        self.measure(Operation::Log, Some(shard), call).await
    }

    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        let call = self.store.ends_with(shard, last);
        self.measure(Operation::Log, Some(shard), call).await
    }

    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        let call = self.store.scan(shard, cursor);
        self.measure(Operation::Scan, Some(shard), call).await
    }

    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        let call = self.store.deadlines(shard, limit);
        self.measure(Operation::Deadlines, Some(shard), call).await
    }

    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>> {
        let call = self.store.subscribe(shard);
        self.measure(Operation::Subscribe, None, call).await
    }
}
