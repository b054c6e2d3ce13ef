//! Calls to the store and the registry: each has a time limit, whatever the backend promises,
//! since a sweeper that hangs can't even resign.

use std::future::Future;

use adsum_core::membership::MembershipError;
use adsum_core::store::StoreError;
use tokio::time::timeout;

use crate::reaper::Shared;

const LATE: &str = "no answer in time";

impl Shared {
    /// A call to the store.
    pub(crate) async fn store<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = |_| Err(StoreError::Unavailable(LATE.to_owned()));
        timeout(self.config.call_timeout, call)
            .await
            .unwrap_or_else(late)
    }

    /// A call to the registry, when there is a turn.
    pub(crate) async fn registry<T>(
        &self,
        call: impl Future<Output = Result<T, MembershipError>>,
    ) -> Result<T, MembershipError> {
        let in_turn = async {
            let _turn = self.elections.acquire().await;
            call.await
        };
        let late = |_| Err(MembershipError::Unavailable(LATE.to_owned()));
        timeout(self.config.call_timeout, in_turn)
            .await
            .unwrap_or_else(late)
    }

    /// Whether the lease will live for long enough to ask something under it.
    pub(crate) fn has_lease(&self) -> bool {
        self.membership.lease_left() > self.config.lease_margin
    }

    /// Whether another node could take a shard of ours.
    pub(crate) fn has_rivals(&self) -> bool {
        let status = self.status.borrow();
        status.candidates > 1 && !status.stale
    }
}
