//! Waiting for what a cluster must come to.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::membership::{Membership, Owners};
use adsum_core::store::Shard;
use adsum_reaper::ReaperStatus;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::world::{World, ms};

/// Far above what anything here needs, on a machine that has other work too.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Waits until a reaper's status is as wanted.
pub(crate) async fn until(
    status: &watch::Receiver<ReaperStatus>,
    wanted: impl Fn(&ReaperStatus) -> bool,
) -> ReaperStatus {
    let mut status = status.clone();
    if let Ok(status) = timeout(LIMIT, status.wait_for(|status| wanted(status))).await {
        return status.unwrap().clone();
    }
    panic!("waited for {LIMIT:?}: {:#?}", status.borrow());
}

/// Waits until the owners are as wanted.
pub(crate) async fn until_owners(
    membership: &impl Membership,
    wanted: impl Fn(&Owners) -> bool,
) -> Arc<Owners> {
    let mut owners = membership.watch_owners();
    let search = async {
        loop {
            let owners = owners.next().await.unwrap();
            if wanted(&owners) {
                return owners;
            }
        }
    };
    match timeout(LIMIT, search).await {
        Ok(owners) => owners,
        Err(_) => panic!("waited for {LIMIT:?}: {:?}", membership.owners()),
    }
}

/// Waits until every shard has an owner among these nodes, and the load is even.
pub(crate) async fn until_placed(by: &impl Membership, shards: Shard, nodes: Vec<NodeId>) {
    let (all, count) = (usize::from(shards), nodes.len());
    let even = all / count..=(5 * all).div_ceil(4 * count);
    let load = |owners: &Owners, node| owners.values().filter(|owner| *owner == node).count();
    until_owners(by, |owners| {
        owners.len() == all && nodes.iter().all(|node| even.contains(&load(owners, node)))
    })
    .await;
}

/// Waits until so many have left, and makes sure that each was told once.
pub(crate) async fn until_left(world: &World, count: usize, any: &watch::Receiver<ReaperStatus>) {
    let mut any = any.clone();
    let all = async {
        while world.departures().await.len() < count {
            // A sweep of this reaper, or of another one that is not watched.
            let _ = timeout(ms(50), any.changed()).await;
        }
    };
    assert!(timeout(LIMIT, all).await.is_ok(), "not all have left");
    let departures = world.departures().await;
    assert_eq!(departures.len(), count);
    assert!(departures.values().all(|told| told.len() == 1));
}
