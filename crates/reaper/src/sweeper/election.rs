//! How a sweeper gets the right to sweep, doubts it, and gets it back.

use std::sync::Arc;
use std::time::Duration;

use adsum_core::store::Answer;

use super::{End, Step, Sweeper};
use crate::{Idle, ShardStatus};

impl Sweeper {
    pub(super) async fn elect(&mut self) -> Result<(), End> {
        let shared = Arc::clone(&self.shared);
        let won = self
            .or_stop(shared.registry(shared.membership.campaign(self.shard)))
            .await?;
        match won {
            Ok(true) => {
                self.proved = true;
                let fresh = ShardStatus {
                    idle: Some(Idle::Unclaimed),
                    ..ShardStatus::default()
                };
                shared.status.send_modify(|status| {
                    status.shards.insert(self.shard, fresh);
                    status.elections += 1;
                });
                Ok(())
            }
            Ok(false) => Err(End::Beaten),
            Err(error) => {
                tracing::debug!(shard = self.shard, %error, "can't campaign");
                shared.status.send_modify(|status| status.errors += 1);
                Err(End::Failed)
            }
        }
    }

    /// Nobody else can have been elected: the lease lives, and it is the one we won under.
    /// Read in this order, because a lease may be lost and another taken in between.
    pub(super) fn certain(&self) -> bool {
        self.shared.has_lease() && self.shared.membership.node() == self.node && self.proved
    }

    pub(super) fn lose_faith(&mut self, idle: Idle) {
        self.proved = false;
        self.fence = None;
        self.note(|shard| {
            shard.fence = None;
            shard.idle = Some(idle);
        });
    }

    /// Proves that we are still elected; a rest if that can't be known now.
    pub(super) async fn prove(&mut self) -> Result<Option<Duration>, End> {
        let shared = Arc::clone(&self.shared);
        // Asked before the proof: if the id changes meanwhile, `certain` will see it.
        let node = shared.membership.node();
        match self
            .or_stop(shared.registry(shared.membership.prove(self.shard)))
            .await?
        {
            Ok(true) => {
                self.node = node;
                self.proved = true;
                self.note(|shard| shard.idle = Some(Idle::Unclaimed));
                Ok(None)
            }
            Ok(false) => Err(End::Lost),
            Err(error) if !error.retry() => Err(End::Lost),
            Err(error) => {
                tracing::debug!(shard = self.shard, %error, "can't prove the election");
                shared.status.send_modify(|status| status.errors += 1);
                Ok(Some(self.backoff.pause()))
            }
        }
    }

    pub(super) async fn claim(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        match self
            .or_stop(shared.store(shared.store.claim(self.shard)))
            .await?
        {
            Ok(Answer {
                at, value: fence, ..
            }) => {
                let (epoch, number) = (fence.epoch, fence.number);
                tracing::debug!(shard = self.shard, epoch, number, at, "claimed");
                self.fence = Some(fence);
                self.settling = true;
                self.note(|shard| shard.fence = Some(fence));
                Ok(None)
            }
            Err(error) => self.failed(&error),
        }
    }
}
