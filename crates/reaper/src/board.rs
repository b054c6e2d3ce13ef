//! Which shards to take and which to hand over: plain rules over what is known of members and
//! owners. No IO, no clock, no randomness; `control` does what this says.
//!
//! The nodes of a cluster follow these rules each for itself, and need not agree: the election
//! keeps a shard from having two owners, and `handover_again` keeps it from being passed around.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use adsum_core::NodeId;
use adsum_core::membership::{Members, Owners};
use adsum_core::ring::Placement;
use adsum_core::store::Shard;
use tokio::time::Instant;

use crate::ReaperConfig;

/// What to do now, and when to ask again if nothing changes before.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Moves {
    /// To campaign for.
    pub(crate) take: Vec<Shard>,
    /// To hand over.
    pub(crate) give: Option<Shard>,
    pub(crate) wake: Option<Instant>,
}

impl Moves {
    fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// What is known of members and owners, and since when.
#[derive(Debug)]
pub(crate) struct Board {
    config: ReaperConfig,
    me: Option<NodeId>,
    members: Arc<Members>,
    owners: Arc<Owners>,
    /// Who reaps, in the order of the placement's numbers.
    candidates: Vec<NodeId>,
    placement: Placement,
    placed_at: Instant,
    ownerless: BTreeMap<Shard, Instant>,
    /// Nodes that owned something, own nothing now, and are members still.
    emptied: BTreeSet<NodeId>,
    /// Nodes that do not take what is placed with them, and since when. A node that drains is a
    /// member until its clients are gone, but its reaper has resigned: nobody may wait for it.
    retired: BTreeMap<NodeId, Instant>,
    /// When this node last handed a shard over.
    handed: BTreeMap<Shard, Instant>,
    next_handover: Instant,
}

impl Board {
    pub(crate) fn new(config: ReaperConfig, now: Instant) -> Self {
        Self {
            placement: Placement::new::<&str>(config.shards, &[]),
            config,
            me: None,
            members: Arc::default(),
            owners: Arc::default(),
            candidates: Vec::new(),
            placed_at: now,
            ownerless: BTreeMap::new(),
            emptied: BTreeSet::new(),
            retired: BTreeMap::new(),
            handed: BTreeMap::new(),
            next_handover: now,
        }
    }

    /// Who reaps, without those who are passed over.
    pub(crate) fn candidates(&self) -> usize {
        self.candidates.len()
    }

    pub(crate) fn stale(&self) -> bool {
        self.members.stale
    }

    /// How many shards are placed with this node.
    pub(crate) fn placed_here(&self) -> usize {
        let here = |shard: &Shard| self.me.is_some() && self.placed(*shard) == self.me.as_ref();
        (0..self.config.shards).filter(here).count()
    }

    /// This node under its lease, or nobody.
    pub(crate) fn see_node(&mut self, node: Option<NodeId>) {
        self.me = node;
    }

    pub(crate) fn see_members(&mut self, members: Arc<Members>, now: Instant) {
        if self.members.stale {
            // What was remembered says nothing of how long a shard has had no owner.
            self.ownerless.values_mut().for_each(|since| *since = now);
        }
        self.members = members;
    }

    /// Answers which shards were this node's and are not any more.
    pub(crate) fn see_owners(&mut self, owners: Arc<Owners>, now: Instant) -> Vec<Shard> {
        let old = std::mem::replace(&mut self.owners, owners);
        self.emptied.extend(old.values().cloned());
        for owner in self.owners.values() {
            self.emptied.remove(owner);
            self.retired.remove(owner);
        }
        let (owners, ownerless) = (&self.owners, &mut self.ownerless);
        ownerless.retain(|shard, _| !owners.contains_key(shard));
        for shard in (0..self.config.shards).filter(|shard| !owners.contains_key(shard)) {
            ownerless.entry(shard).or_insert(now);
        }
        let mine = |owner: Option<&NodeId>| owner.is_some() && owner == self.me.as_ref();
        let lost = old
            .iter()
            .filter(|(shard, owner)| mine(Some(*owner)) && !mine(self.owners.get(shard)));
        lost.map(|(shard, _)| *shard).collect()
    }

    /// What to do. `running` says for which shards there is a sweeper, `barred` until when one
    /// must not be taken, and `jitter` stretches the pause after a hand-over.
    pub(crate) fn moves(
        &mut self,
        now: Instant,
        jitter: f64,
        running: impl Fn(Shard) -> bool,
        barred: impl Fn(Shard) -> Option<Instant>,
    ) -> Moves {
        let mut moves = Moves::default();
        if self.members.stale {
            return moves;
        }
        self.place(now, &mut moves);
        let Some(me) = self.me.clone() else {
            return moves;
        };
        for shard in (0..self.config.shards).filter(|shard| !running(*shard)) {
            let Some(due) = self.due(shard, &me, now) else {
                continue;
            };
            match barred(shard).map_or(due, |until| until.max(due)) {
                at if at > now => moves.wake_at(at),
                _ => moves.take.push(shard),
            }
        }
        self.give(now, &me, jitter, running, &mut moves);
        moves
    }

    /// Since when, or from when on, this node may take a shard.
    fn due(&self, shard: Shard, me: &NodeId, now: Instant) -> Option<Instant> {
        if let Some(owner) = self.owners.get(&shard) {
            // Ours without a sweeper: a campaign that arrived although it seemed to fail, or a
            // resignation that did not.
            return (owner == me).then_some(now);
        }
        let since = *self.ownerless.get(&shard)?;
        let rank = self
            .placement
            .order(shard)
            .position(|n| self.candidates.get(n) == Some(me))?;
        Some(
            match u32::try_from(rank).unwrap_or(u32::MAX).checked_sub(1) {
                None => now,
                Some(ahead) => {
                    let ahead = ahead.min(u32::from(u8::MAX));
                    since + self.config.ownerless_grace + self.config.ownerless_step * ahead
                }
            },
        )
    }

    /// Chooses at most one shard to hand over.
    fn give(
        &mut self,
        now: Instant,
        me: &NodeId,
        jitter: f64,
        running: impl Fn(Shard) -> bool,
        moves: &mut Moves,
    ) {
        let stands = self.placed_at + self.config.handover_after;
        let mine = self.owners.iter().filter(|(_, owner)| *owner == me);
        for shard in mine
            .map(|(shard, _)| *shard)
            .filter(|shard| running(*shard))
        {
            let Some(heir) = self.placed(shard).filter(|heir| *heir != me) else {
                continue;
            };
            // One at a time: who has not taken the last one yet may not take any.
            if self.ownerless.keys().any(|s| self.placed(*s) == Some(heir)) {
                continue;
            }
            let again = self
                .handed
                .get(&shard)
                .map(|at| *at + self.config.handover_again);
            let at = again.unwrap_or(stands).max(stands).max(self.next_handover);
            if at > now {
                moves.wake_at(at);
                continue;
            }
            self.handed.insert(shard, now);
            self.next_handover = now + self.config.handover_interval.mul_f64(jitter);
            moves.give = Some(shard);
            moves.wake_at(self.next_handover);
            return;
        }
    }

    fn placed(&self, shard: Shard) -> Option<&NodeId> {
        self.candidates.get(self.placement.owner(shard)?)
    }
}

#[cfg(test)]
mod tests;
