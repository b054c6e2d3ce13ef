//! How a node stops: the order, in one place. First it says that it is not ready, then its clients
//! are sent elsewhere, then what others follow here ends, and last it leaves the cluster.

use std::{sync::Arc, time::Duration};

use adsum_core::membership::Membership;
use adsum_dispatcher::Dispatcher;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::public::Public;

/// How far a node has come with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// It is not stopping.
    Running,
    /// Its clients are sent elsewhere.
    Draining,
    /// Its clients are gone; the rest ends.
    Leaving,
    /// All is done; the process ends.
    Done,
}

/// Asks the node to stop, and tells how far it is. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Drain {
    asked: CancellationToken,
    stage: Arc<watch::Sender<Stage>>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        let (stage, _) = watch::channel(Stage::Running);
        Self {
            asked: CancellationToken::new(),
            stage: Arc::new(stage),
        }
    }

    /// Stop, please; asking again changes nothing.
    pub(crate) fn ask(&self) {
        self.asked.cancel();
    }

    /// Waits until somebody asked.
    pub(crate) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// How far it is.
    pub(crate) fn stage(&self) -> Stage {
        match *self.stage.borrow() {
            Stage::Running if self.asked.is_cancelled() => Stage::Draining,
            stage => stage,
        }
    }

    /// How far it is, and every step from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    fn reached(&self, stage: Stage) {
        tracing::info!(?stage, "stopping");
        self.stage.send_replace(stage);
    }
}

/// All that has to end, and what ends it.
pub(crate) struct Parts {
    /// The handle of it all.
    pub(crate) drain: Drain,
    /// With the role.
    pub(crate) public: Option<Public>,
    /// Ends the public port.
    pub(crate) stop_public: CancellationToken,
    /// What runs because of the public port.
    pub(crate) public_tasks: TaskTracker,
    /// With the role.
    pub(crate) dispatcher: Option<Dispatcher>,
    /// Ends the feed's listener and the reaper.
    pub(crate) stop_inner: CancellationToken,
    /// The feed's listener and the reaper.
    pub(crate) inner_tasks: TaskTracker,
    /// Whom to leave.
    pub(crate) membership: Arc<dyn Membership>,
    /// Ends the internal port, which tells about all this until the end.
    pub(crate) stop_internal: CancellationToken,
    /// The internal port.
    pub(crate) internal_tasks: TaskTracker,
}

/// What requests under way have to end, on either port.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Stops a node within a time.
///
/// # Errors
/// When it took longer; whatever is left ends with the process.
pub(crate) async fn run(parts: Parts, within: Duration) -> Result<()> {
    let deadline = Instant::now() + within;
    parts.drain.ask();
    let stopped = tokio::time::timeout_at(deadline, stop(&parts)).await;
    parts.drain.reached(Stage::Done);
    parts.stop_internal.cancel();
    parts.internal_tasks.close();
    // Whoever asked hears the end, if they listen.
    let _ = tokio::time::timeout(LAST_WORDS, parts.internal_tasks.wait()).await;
    match stopped {
        Ok(left) => left.context("could not leave the cluster; the lease will end by itself"),
        Err(_) => bail!("did not stop within times.stop_ms"),
    }
}

async fn stop(parts: &Parts) -> Result<()> {
    // From here on `/readyz` says no.
    parts.drain.reached(Stage::Draining);
    if let Some(public) = &parts.public {
        public.edge.drain().await;
    }
    parts.drain.reached(Stage::Leaving);
    parts.stop_public.cancel();
    parts.public_tasks.close();
    // Requests under way are finished; one that takes its time must not keep the shards waiting.
    let _ = tokio::time::timeout(LAST_WORDS, parts.public_tasks.wait()).await;
    // Then what others would wait for: shards to reap, streams to follow.
    parts.stop_inner.cancel();
    if let Some(public) = &parts.public {
        public.feed.stop().await;
    }
    if let Some(dispatcher) = &parts.dispatcher {
        dispatcher.stop().await;
    }
    parts.inner_tasks.close();
    parts.inner_tasks.wait().await;
    parts.membership.leave().await?;
    Ok(())
}
