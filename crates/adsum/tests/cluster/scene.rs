//! A cluster that lives: reapers at work, a gateway that keeps renewing, and crowds of sessions
//! whose gateway dies when a test says so.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::{
    Incarnation, SessionKey,
    store::{Lease, Renewed, Shard, Store},
};
use adsum_tests::{Node, NodeOptions};
use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::ledger::{all_swept, deadline, one_per_shard};
use crate::world::{World, open, renew_for_good, settled, state};

/// Sessions that are opened at a time.
const IN_FLIGHT: usize = 256;

pub(crate) struct Scene {
    // Dropped, and so killed, before what they stand on.
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Arc<dyn Store>,
    /// A gateway that lives through everything: a cluster in which nobody renews is one that
    /// was away, and settles.
    _bystander: Crowd,
    pub(crate) world: World,
}

impl Scene {
    /// A cluster with so many reapers, every shard of which is swept.
    pub(crate) async fn new(name: &str, reapers: usize) -> Result<Self> {
        Self::with(name, reapers, |options| options).await
    }

    /// The same, with these settings of the nodes.
    pub(crate) async fn with(
        name: &str,
        reapers: usize,
        settings: impl Fn(NodeOptions) -> NodeOptions,
    ) -> Result<Self> {
        let world = World::new(name).await?;
        let store = world.store().await?;
        let mut nodes = Vec::new();
        for n in 0..reapers {
            let options = settings(world.options(&format!("reaper-{n}"), "reaper"));
            nodes.push(Node::start(world.dir.path(), &options).await?);
        }
        settled(&*store).await?;
        let keys = one_per_shard(&*store, 1_000_000)?;
        let bystander = Crowd::open(&store, "bystander~1", keys).await?;
        let scene = Self {
            nodes,
            store,
            _bystander: bystander,
            world,
        };
        let counts = scene.all_swept().await?;
        println!("{name}: the reapers sweep {counts:?} shards");
        Ok(scene)
    }

    /// Waits until each shard is swept by exactly one node; answers how many by each.
    pub(crate) async fn all_swept(&self) -> Result<Vec<usize>> {
        let nodes: Vec<&Node> = self.nodes.iter().collect();
        all_swept(&nodes, Duration::from_secs(30)).await
    }

    /// A gateway with one session in every shard, of users numbered from `from` on.
    pub(crate) async fn crowd(&self, name: &str, from: u64) -> Result<Crowd> {
        let keys = one_per_shard(&*self.store, from)?;
        Crowd::open(&self.store, name, keys).await
    }

    /// Now, by the shards' clocks.
    pub(crate) async fn clock(&self) -> Result<u64> {
        let unknown = Incarnation::new("nobody~1")?;
        Ok(self.store.renew(0, &unknown, Lease::Usual).await?.at)
    }

    /// Waits until a time of the shards' clocks; the time itself is the event.
    pub(crate) async fn until(&self, at: u64) -> Result<()> {
        let left = at.saturating_sub(self.clock().await?);
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(left)).await;
        Ok(())
    }
}

/// The sessions of one gateway, which renews until it lapses.
pub(crate) struct Crowd {
    store: Arc<dyn Store>,
    pub(crate) holder: Incarnation,
    pub(crate) keys: Vec<SessionKey>,
    renewing: JoinHandle<()>,
}

impl Crowd {
    pub(crate) async fn open(
        store: &Arc<dyn Store>,
        holder: &str,
        keys: Vec<SessionKey>,
    ) -> Result<Self> {
        let holder = Incarnation::new(holder)?;
        let renewing = tokio::spawn(renew_for_good(Arc::clone(store), holder.clone()));
        let crowd = Self {
            store: Arc::clone(store),
            holder,
            keys,
            renewing,
        };
        let (store, holder) = (&*crowd.store, &crowd.holder);
        stream::iter(crowd.keys.clone())
            .map(|key| async move { open(store, holder, key, (1, 1), state(&["lobby"])?).await })
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await?;
        Ok(crowd)
    }

    /// Renews once more in every shard and then never again; answers the latest deadline, by the
    /// shards' clocks.
    pub(crate) async fn lapse(&mut self) -> Result<u64> {
        self.renewing.abort();
        let _ = (&mut self.renewing).await;
        let all = (0..self.store.shards()).map(|shard| self.renew(shard));
        futures::future::try_join_all(all).await?;
        deadline(&*self.store, &self.holder).await
    }

    async fn renew(&self, shard: Shard) -> Result<()> {
        let answer = self.store.renew(shard, &self.holder, Lease::Usual).await?;
        ensure!(
            matches!(answer.value, Renewed::Ok { .. }),
            "{:?} has lapsed already",
            self.holder
        );
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}
