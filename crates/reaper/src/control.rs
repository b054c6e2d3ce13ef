//! The control: watches members and owners, starts a sweeper for every shard to take, and stops
//! those of shards to hand over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::store::Shard;
use futures::StreamExt;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::board::Board;
use crate::reaper::Shared;
use crate::sweeper::{End, Sweeper};

/// Without any event the board is looked at this often all the same.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct Control {
    shared: Arc<Shared>,
    board: Board,
    tasks: JoinSet<(Shard, End)>,
    running: BTreeMap<Shard, Running>,
    pauses: BTreeMap<Shard, Pause>,
}

/// A sweeper at work.
struct Running {
    task: Id,
    stop: CancellationToken,
    /// Somebody says that the shard is not ours any more.
    doubt: Arc<Notify>,
}

/// When a shard may be taken again.
struct Pause {
    until: Instant,
    backoff: Backoff,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let board = Board::new(shared.config.clone(), Instant::now());
        Self {
            shared,
            board,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            pauses: BTreeMap::new(),
        }
    }

    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut nodes = self.shared.membership.watch_node().fuse();
        let mut members = self.shared.membership.watch().fuse();
        let mut owners = self.shared.membership.watch_owners().fuse();
        let mut wake = Instant::now();
        loop {
            // In this order, so that a member is known before what it owns is judged.
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(node) = nodes.next() => self.see_node(node),
                Some(members) = members.next() => self.board.see_members(members, Instant::now()),
                Some(owners) = owners.next() => {
                    let lost = self.board.see_owners(owners, Instant::now());
                    lost.iter().filter_map(|shard| self.running.get(shard))
                        .for_each(|sweeper| sweeper.doubt.notify_one());
                }
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                () = sleep_until(wake) => {}
            }
            wake = self.act();
        }
        self.drain().await;
    }

    fn see_node(&mut self, node: Option<NodeId>) {
        let shards = self.running.len();
        match &node {
            Some(node) => tracing::info!(%node, "reaping under a new lease"),
            None => tracing::warn!(shards, "no lease, so no reaping until there is one"),
        }
        self.shared.node.send_replace(node.clone());
        self.board.see_node(node);
    }

    /// Does what the board says; answers when to look again.
    fn act(&mut self) -> Instant {
        let now = Instant::now();
        let moves = self.board.moves(
            now,
            rand::random_range(0.5..=1.5),
            |shard| self.running.contains_key(&shard),
            |shard| self.pauses.get(&shard).map(|pause| pause.until),
        );
        for shard in moves.take {
            self.start(shard);
        }
        if let Some(sweeper) = moves.give.and_then(|shard| self.running.get(&shard)) {
            tracing::info!(shard = moves.give, "handing the shard over");
            sweeper.stop.cancel();
        }
        self.shared.status.send_if_modified(|status| {
            let node = self.shared.node.borrow().clone();
            let new = (
                node,
                self.board.stale(),
                self.board.candidates(),
                self.board.placed_here(),
            );
            let old = (
                status.node.take(),
                status.stale,
                status.candidates,
                status.placed,
            );
            let changed = new != old || moves.give.is_some();
            (status.node, status.stale, status.candidates, status.placed) = new;
            status.handovers += u64::from(moves.give.is_some());
            changed
        });
        moves.wake.unwrap_or(now + LONG)
    }

    fn start(&mut self, shard: Shard) {
        let (stop, doubt) = (CancellationToken::new(), Arc::new(Notify::new()));
        let sweeper = Sweeper::new(
            Arc::clone(&self.shared),
            shard,
            stop.clone(),
            Arc::clone(&doubt),
        );
        let task = self
            .tasks
            .spawn(async move { (shard, sweeper.run().await) })
            .id();
        self.running.insert(shard, Running { task, stop, doubt });
    }

    fn ended(&mut self, ended: Result<(Shard, End), JoinError>) {
        let (shard, end) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let by_id = |(_, sweeper): &(&Shard, &Running)| sweeper.task == error.id();
                let Some(shard) = self.running.iter().find(by_id).map(|(shard, _)| *shard) else {
                    return;
                };
                // Cancelled are they all when the process ends: nothing is wrong with them.
                if !error.is_cancelled() {
                    tracing::error!(shard, %error, "a sweeper broke down");
                }
                self.shared.status.send_modify(|status| {
                    status.shards.remove(&shard);
                });
                (shard, End::Failed)
            }
        };
        self.running.remove(&shard);
        let config = &self.shared.config;
        let pause = self.pauses.entry(shard).or_insert_with(|| Pause {
            until: Instant::now(),
            backoff: Backoff::new(config),
        });
        if end != End::Failed {
            pause.backoff.reset();
        }
        let rest = match end {
            // The owners that we know may still name us, and the heir comes first.
            End::Stopped => config.ownerless_grace,
            End::GaveUp => config.give_up_after,
            // The owners that we know may be behind; a moment later they are not.
            End::Lost | End::Beaten | End::Failed => pause.backoff.pause(),
        };
        pause.until = Instant::now() + rest;
    }

    /// Stops all sweepers at once; each takes a bounded time to end.
    async fn drain(mut self) {
        tracing::info!(shards = self.running.len(), "resigning all shards");
        self.running
            .values()
            .for_each(|sweeper| sweeper.stop.cancel());
        while self.tasks.join_next().await.is_some() {}
    }
}
