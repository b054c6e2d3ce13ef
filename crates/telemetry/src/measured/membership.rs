//! The membership, measured.

use std::{future::Future, sync::Arc, time::Duration};

use adsum_core::{
    NodeId,
    membership::{Members, Membership, MembershipError, Owners},
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::time::Instant;

use crate::metrics::{Call, metrics};

/// A membership whose calls are measured.
pub struct MeasuredMembership(Arc<dyn Membership>);

impl MeasuredMembership {
    /// Puts a measure around it.
    #[must_use]
    pub fn around(membership: Arc<dyn Membership>) -> Arc<dyn Membership> {
        Arc::new(Self(membership))
    }
}

/// Measures one call of the registry.
///
/// # Errors
/// Those of the call.
pub async fn registry_call<T>(
    call: Call,
    work: impl Future<Output = Result<T, MembershipError>>,
) -> Result<T, MembershipError> {
    let began = Instant::now();
    let result = work.await;
    metrics()
        .registry_calls
        .of(call)
        .record_time(began.elapsed());
    if let Err(error) = &result {
        metrics().registry_errors.of(error.into()).one();
    }
    result
}

#[async_trait]
impl Membership for MeasuredMembership {
    fn node(&self) -> NodeId {
        self.0.node()
    }

    fn watch_node(&self) -> BoxStream<'static, Option<NodeId>> {
        self.0.watch_node()
    }

    fn members(&self) -> Arc<Members> {
        self.0.members()
    }

    fn watch(&self) -> BoxStream<'static, Arc<Members>> {
        self.0.watch()
    }

    fn owners(&self) -> Arc<Owners> {
        self.0.owners()
    }

    fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>> {
        self.0.watch_owners()
    }

    async fn campaign(&self, shard: u16) -> Result<bool, MembershipError> {
        registry_call(Call::Campaign, self.0.campaign(shard)).await
    }

    async fn prove(&self, shard: u16) -> Result<bool, MembershipError> {
        registry_call(Call::Prove, self.0.prove(shard)).await
    }

    async fn resign(&self, shard: u16) -> Result<(), MembershipError> {
        registry_call(Call::Resign, self.0.resign(shard)).await
    }

    fn lease_left(&self) -> Duration {
        self.0.lease_left()
    }

    async fn leave(&self) -> Result<(), MembershipError> {
        registry_call(Call::Leave, self.0.leave()).await
    }
}
