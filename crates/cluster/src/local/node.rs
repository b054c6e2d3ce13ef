//! A node of the cluster inside one process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::membership::{Members, Membership, MembershipError, Owners};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use super::{Identity, LocalCluster};

/// Nothing but a test ends a lease here; long, and short enough to be added to any time.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// A node of a [`LocalCluster`]. Dropped, it is gone at once.
pub struct LocalMembership {
    pub(super) cluster: LocalCluster,
    pub(super) seat: u64,
    pub(super) identity: watch::Sender<Identity>,
}

impl LocalMembership {
    fn go(&self) {
        let mut state = self.cluster.state();
        if let Some(seat) = state.seats.remove(&self.seat) {
            state.free(&seat.member.node);
            seat.lose();
            self.cluster.publish(&state);
        }
    }
}

#[async_trait]
impl Membership for LocalMembership {
    fn node(&self) -> NodeId {
        self.identity.borrow().node.clone()
    }

    fn watch_node(&self) -> BoxStream<'static, Option<NodeId>> {
        let held = |identity: Identity| identity.held.then_some(identity.node);
        WatchStream::new(self.identity.subscribe())
            .map(held)
            .boxed()
    }

    fn members(&self) -> Arc<Members> {
        self.cluster.shared.views.members()
    }

    fn watch(&self) -> BoxStream<'static, Arc<Members>> {
        self.cluster.shared.views.watch_members()
    }

    fn owners(&self) -> Arc<Owners> {
        self.cluster.shared.views.owners()
    }

    fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>> {
        self.cluster.shared.views.watch_owners()
    }

    async fn campaign(&self, shard: u16) -> Result<bool, MembershipError> {
        let mut state = self.cluster.state();
        let node = state.node(self.seat)?;
        let won = *state.owners.entry(shard).or_insert_with(|| node.clone()) == node;
        self.cluster.publish(&state);
        Ok(won)
    }

    async fn prove(&self, shard: u16) -> Result<bool, MembershipError> {
        let state = self.cluster.state();
        let node = state.node(self.seat)?;
        Ok(state.owners.get(&shard) == Some(&node))
    }

    async fn resign(&self, shard: u16) -> Result<(), MembershipError> {
        let mut state = self.cluster.state();
        let node = match state.node(self.seat) {
            // Who has left has resigned everything.
            Err(MembershipError::Refused(_)) => return Ok(()),
            node => node?,
        };
        state
            .owners
            .retain(|owned, owner| *owned != shard || *owner != node);
        self.cluster.publish(&state);
        Ok(())
    }

    fn lease_left(&self) -> Duration {
        if self.identity.borrow().held {
            LEASE
        } else {
            Duration::ZERO
        }
    }

    async fn leave(&self) -> Result<(), MembershipError> {
        self.go();
        Ok(())
    }
}

impl Drop for LocalMembership {
    fn drop(&mut self) {
        self.go();
    }
}

impl fmt::Debug for LocalMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalMembership")
            .field(&self.node())
            .finish()
    }
}
