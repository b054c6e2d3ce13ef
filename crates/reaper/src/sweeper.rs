//! One tenure of one shard: elected, claimed, sweeping, resigned.

mod election;
mod outcome;

use std::sync::Arc;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::store::{Answer, Fence, Shard, Swept};
use adsum_telemetry::metrics::metrics;
use adsum_telemetry::trace::{self, Span, SpanKind};
use tokio::sync::{Notify, SemaphorePermit, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::reaper::Shared;
use crate::{Idle, LastSweep};

/// Why a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Another node was elected first.
    Beaten,
    /// The election could not be held.
    Failed,
    /// The shard is not ours any more.
    Lost,
    /// The store does not answer us, and somebody else may have more luck.
    GaveUp,
    /// Told to stop.
    Stopped,
}

/// What to do after a step: rest, or go on at once when there is more to do.
type Step = Result<Option<Duration>, End>;

pub(crate) struct Sweeper {
    shared: Arc<Shared>,
    shard: Shard,
    stop: CancellationToken,
    doubt: Arc<Notify>,
    node_changes: watch::Receiver<Option<NodeId>>,
    /// Whom the election was won as.
    node: NodeId,
    /// Cleared whenever there is doubt: what follows a doubt is a new fence.
    fence: Option<Fence>,
    proved: bool,
    settling: bool,
    failing_since: Option<Instant>,
    /// Refused since the last sweep that was accepted.
    refused: bool,
    backoff: Backoff,
    /// When the last sweep said that something would be due.
    due: Option<Instant>,
}

impl Sweeper {
    pub(crate) fn new(
        shared: Arc<Shared>,
        shard: Shard,
        stop: CancellationToken,
        doubt: Arc<Notify>,
    ) -> Self {
        Self {
            node_changes: shared.node.subscribe(),
            node: shared.membership.node(),
            backoff: Backoff::new(&shared.config),
            shared,
            shard,
            stop,
            doubt,
            fence: None,
            proved: false,
            settling: false,
            failing_since: None,
            refused: false,
            due: None,
        }
    }

    pub(crate) async fn run(mut self) -> End {
        let end = self.tenure().await;
        if matches!(end, End::Stopped | End::GaveUp) {
            self.note(|shard| shard.idle = Some(Idle::Leaving));
            self.resign().await;
        }
        self.shared.status.send_if_modified(|status| {
            let owned = status.shards.remove(&self.shard).is_some();
            status.losses += u64::from(owned && end == End::Lost);
            owned
        });
        tracing::debug!(shard = self.shard, ?end, "the tenure ended");
        end
    }

    async fn tenure(&mut self) -> End {
        if let Err(end) = self.elect().await {
            return end;
        }
        loop {
            let step = match self.step().await {
                Ok(Some(rest)) => self.rest(rest).await,
                // The turn was given back, so others in line are served first; on a busy
                // runtime they must also get to run.
                Ok(None) => self.or_stop(tokio::task::yield_now()).await,
                Err(end) => Err(end),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// One attempt at a sweep, with all that must be true before it.
    async fn step(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        if !shared.has_lease() {
            self.lose_faith(Idle::NoLease);
            return Ok(Some(shared.config.lease_poll));
        }
        if shared.membership.node() != self.node {
            self.lose_faith(Idle::Unproved);
        }
        if !self.proved
            && let Some(rest) = self.prove().await?
        {
            return Ok(Some(rest));
        }
        let Some(fence) = self.fence else {
            return self.claim().await;
        };
        // Who got no answer last time may get none this time: it is no load, and no company to
        // wait in line with.
        let turn = match self.failing_since {
            Some(_) => None,
            None => self.or_stop(shared.turns.acquire()).await?.ok(),
        };
        // The line may have been long.
        if !self.certain() {
            return Ok(None);
        }
        self.sweep(fence, turn).await
    }

    async fn sweep(&mut self, fence: Fence, turn: Option<SemaphorePermit<'_>>) -> Step {
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        let limit = shared.config.sweep_limit;
        let mut turn = turn;
        let span = trace::root("sweep", SpanKind::Internal);
        let origin = trace::origin(span.as_ref());
        let sweep = async {
            let call = (shared.store).sweep_from(self.shard, fence, limit, Some(origin));
            let call = shared.store(call);
            tokio::pin!(call);
            tokio::select! {
                answer = &mut call => return answer,
                () = sleep(shared.config.turn) => drop(turn.take()),
            }
            call.await
        };
        let late = async {
            self.stop.cancelled().await;
            sleep(shared.config.finish_timeout).await;
        };
        let answer = tokio::select! {
            answer = sweep => answer,
            () = late => return Err(End::Stopped),
        };
        drop(turn);
        let Answer { at, value, .. } = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failed(&error),
        };
        let Swept::Ok { closed, next_ms } = value else {
            return Ok(self.refused(fence));
        };
        self.measured(span, closed, began.elapsed());
        let (epoch, number) = (fence.epoch, fence.number);
        tracing::trace!(shard = self.shard, epoch, number, at, closed, "swept");
        let last = LastSweep {
            at,
            answered: Instant::now(),
            took: began.elapsed(),
            closed,
        };
        self.due = next_ms.map(|ms| last.answered + Duration::from_millis(ms));
        self.swept(last, next_ms).await
    }

    /// A sweep was accepted; one that closed nobody leaves no trace.
    fn measured(&self, span: Option<Span>, closed: u64, took: Duration) {
        let metrics = metrics();
        metrics.sweep_duration.record_time(took);
        if closed == 0 {
            if let Some(span) = span {
                span.forget();
            }
            return;
        }
        if let Some(due) = self.due {
            metrics.lateness.record_time(due.elapsed());
        }
        if let Some(mut span) = span {
            span.set("adsum.shard", i64::from(self.shard));
            span.set("adsum.closed", i64::try_from(closed).unwrap_or(i64::MAX));
        }
    }
}
