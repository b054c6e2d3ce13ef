//! What can be broken in a store in memory, for tests and simulations. Each does to one shard
//! what an accident does to one in Redis.

use adsum_core::store::Shard;

use super::{MemoryStore, cell::Inner};

impl MemoryStore {
    /// Keeps the last `writes` of each shard, so that they can be lost. Costs a copy of the
    /// shard for each.
    #[must_use]
    pub fn with_history(self, writes: usize) -> Self {
        for cell in &self.data.cells {
            cell.force().keep = writes;
        }
        self
    }

    fn fault(&self, shard: Shard, break_it: impl FnOnce(&mut Inner)) {
        if let Some(cell) = self.data.cells.get(usize::from(shard)) {
            break_it(&mut cell.force());
        }
    }

    /// A failover to a replica that lacks the last `writes` operations that changed anything.
    /// Goes back at most as far as [`with_history`](Self::with_history) says.
    pub fn lose_last(&self, shard: Shard, writes: usize) {
        self.fault(shard, |s| {
            s.undo(writes);
            s.replid += 1;
        });
    }

    /// As [`lose_last`](Self::lose_last), but the identity is the one it was then: A failed
    /// over to B, and back to A with its old data. Only a caller's memory can tell.
    pub fn rewind(&self, shard: Shard, writes: usize) {
        self.fault(shard, |s| {
            s.undo(writes);
            s.replid = s.shard.meta.as_ref().map_or(s.replid, |meta| meta.replid);
        });
    }

    /// A failover that lost nothing: another identity.
    pub fn fail_over(&self, shard: Shard) {
        self.fault(shard, |s| s.replid += 1);
    }

    /// A restart that lost nothing: another identity.
    pub fn restart(&self, shard: Shard) {
        self.fail_over(shard);
    }

    /// Everything is gone, `meta` too; the identity stays.
    pub fn flush(&self, shard: Shard) {
        self.fault(shard, |s| s.write(|shard| *shard = Default::default()));
    }

    /// While stalled every operation fails with `Unavailable`.
    pub fn stall(&self, shard: Shard, stalled: bool) {
        self.fault(shard, |s| s.stalled = stalled);
    }

    /// While refused renewals fail with `Unavailable`, and nothing else does: as when a server has
    /// more to do than it can, and what is asked of it now and then is answered in time.
    pub fn refuse_renewals(&self, shard: Shard, refused: bool) {
        self.fault(shard, |s| s.unrenewed = refused);
    }

    /// While dropped no change is pushed; the log has them all.
    pub fn drop_pushes(&self, shard: Shard, dropped: bool) {
        self.fault(shard, |s| s.mute = dropped);
    }
}
