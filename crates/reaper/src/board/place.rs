//! Who counts as a candidate, and the placement that follows from it.

use std::collections::BTreeSet;

use adsum_core::NodeId;
use adsum_core::membership::Role;
use adsum_core::ring::Placement;
use tokio::time::Instant;

use super::{Board, Moves};

impl Board {
    /// Brings the placement up to date, and passes over who does not take what is theirs.
    pub(super) fn place(&mut self, now: Instant, moves: &mut Moves) {
        let (members, again) = (&self.members.nodes, self.config.retired_for);
        self.emptied.retain(|node| members.contains_key(node));
        let emptied = &mut self.emptied;
        self.retired.retain(|node, since| {
            let keep = members.contains_key(node) && now < *since + again;
            if !keep {
                // It gets another chance, and is judged afresh.
                emptied.remove(node);
            }
            keep
        });
        loop {
            let reapers = self.members.with(Role::Reaper).map(|member| &member.node);
            let candidates: Vec<_> = reapers
                .filter(|node| !self.retired.contains_key(*node))
                .cloned()
                .collect();
            if candidates != self.candidates {
                let names: Vec<_> = candidates.iter().map(NodeId::as_str).collect();
                self.placement = Placement::new(self.config.shards, &names);
                self.candidates = candidates;
                self.placed_at = now;
            }
            // Shards stay with whoever has them, as far as the load is even.
            let (owners, candidates) = (&self.owners, &self.candidates);
            let number = |owner: &NodeId| candidates.iter().position(|node| node == owner);
            self.placement.keep(|shard| number(owners.get(&shard)?));
            let retired = self.to_retire(now, moves);
            if retired.is_empty() {
                break;
            }
            self.retired
                .extend(retired.into_iter().map(|node| (node, now)));
        }
        self.retired
            .values()
            .for_each(|since| moves.wake_at(*since + again));
    }

    /// Others who own nothing and leave what is placed with them: because they resigned it all
    /// while they live, or for longer than the grace.
    fn to_retire(&self, now: Instant, moves: &mut Moves) -> BTreeSet<NodeId> {
        let mut retired = BTreeSet::new();
        for (shard, since) in &self.ownerless {
            let Some(node) = self
                .placed(*shard)
                .filter(|node| Some(*node) != self.me.as_ref())
            else {
                continue;
            };
            if self.owners.values().any(|owner| owner == node) {
                continue;
            }
            let late = *since + self.config.ownerless_grace;
            if self.emptied.contains(node) || late <= now {
                retired.insert(node.clone());
            } else {
                moves.wake_at(late);
            }
        }
        retired
    }
}
