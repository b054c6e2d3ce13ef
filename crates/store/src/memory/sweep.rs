//! Holders and their end: renew, claim, sweep. A sweep does bounded work and is judged by the
//! shard's own clock, so it is safe by itself; the fence makes it single.

use adsum_core::{
    Holder, Incarnation, Reason, SessionKey,
    plant::{Plant, planted},
    store::{Fence, Lease, Renewed, Result, Swept},
};

use super::{
    index::Member,
    shard::{Call, Shard},
};

/// Deadlines among which a sweep looks for the next one that matters.
const NEXT_AMONG: usize = 32;

impl Shard {
    pub(super) fn renew(
        &mut self,
        call: &Call<'_>,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Renewed> {
        self.begin_alive(call)?;
        let living = Member::Holder(holder.clone());
        let draining = Member::Draining(holder.clone());
        let known = [
            self.deadlines.remove(&living),
            self.deadlines.remove(&draining),
        ];
        if known == [None, None] {
            return Ok(Renewed::Gone);
        }
        let (member, ms) = match lease {
            Lease::Usual => (living, call.options.holder_ms),
            Lease::Drain(ms) => (draining, ms),
        };
        self.deadlines.set(member, call.now.saturating_add(ms));
        Ok(Renewed::Ok {
            held: self.held.count(holder) as u64,
        })
    }

    pub(super) fn claim(&mut self, call: &Call<'_>) -> Result<Fence> {
        let meta = self.begin(call)?;
        meta.fence += 1;
        Ok(Fence {
            epoch: meta.epoch,
            number: meta.fence,
        })
    }

    pub(super) fn sweep(&mut self, call: &Call<'_>, fence: Fence, limit: usize) -> Result<Swept> {
        let meta = self.begin_alive(call)?;
        let settle_until = meta.settle_until;
        let low = fence.epoch != meta.epoch || fence.number < meta.fence;
        if low && !planted(Plant::ReaperWithoutFence) {
            return Ok(Swept::Refused);
        }
        let limit = limit.max(1);
        self.clamp(call, limit);
        self.trim_seen(call, limit);
        let due = self.deadlines.overdue(call.now, limit);
        let members = due.len();
        for (_, member) in &due {
            if let Member::Tomb(key) = member {
                self.unbury(key);
            }
        }
        if call.now < settle_until {
            return Ok(Swept::Ok {
                closed: 0,
                next_ms: Some(settle_until - call.now),
            });
        }
        let mut closed = 0;
        for (at, member) in due {
            if closed >= limit {
                break;
            }
            closed += self.end(call, member, at, limit - closed);
        }
        let more = members >= limit || closed >= limit;
        let next_ms = if more {
            Some(0)
        } else {
            self.next_ms(call.now)
        };
        Ok(Swept::Ok {
            closed: closed as u64,
            next_ms,
        })
    }

    /// Brings back deadlines that a clock ahead of its time has set, the furthest first.
    fn clamp(&mut self, call: &Call<'_>, limit: usize) {
        let furthest = call.now.saturating_add(call.options.max_deadline_ms);
        let beyond = self
            .deadlines
            .iter()
            .rev()
            .take_while(|(at, _)| *at > furthest);
        let beyond: Vec<_> = beyond
            .take(limit)
            .map(|(_, member)| member.clone())
            .collect();
        for member in beyond {
            self.deadlines.set(member, furthest);
        }
    }

    fn trim_seen(&mut self, call: &Call<'_>, limit: usize) {
        let oldest = call.now.saturating_sub(call.options.retention_ms);
        let old = self
            .seen
            .iter()
            .take_while(|(at, _)| *at < oldest)
            .take(limit);
        for user in old.map(|(_, user)| user.clone()).collect::<Vec<_>>() {
            self.seen.remove(&user);
        }
    }

    /// Ends what is due, at most `limit` sessions; answers how many were closed.
    fn end(&mut self, call: &Call<'_>, member: Member, at: u64, limit: usize) -> usize {
        match member {
            // Gone already.
            Member::Tomb(_) => 0,
            Member::Session(key) => {
                self.deadlines.remove(&Member::Session(key.clone()));
                usize::from(self.end_held(call, &key, &Holder::Own, Reason::Timeout))
            }
            Member::Holder(holder) => {
                self.deadlines.remove(&Member::Holder(holder.clone()));
                self.deadlines.set(Member::Lost(holder.clone()), at);
                self.end(call, Member::Lost(holder), at, limit)
            }
            Member::Draining(holder) => {
                self.deadlines.remove(&Member::Draining(holder.clone()));
                self.deadlines.set(Member::Drained(holder.clone()), at);
                self.end(call, Member::Drained(holder), at, limit)
            }
            Member::Lost(ref holder) => {
                self.end_holder(call, &member, holder, Reason::NodeLost, limit)
            }
            Member::Drained(ref holder) => {
                self.end_holder(call, &member, holder, Reason::Disconnect, limit)
            }
        }
    }

    fn end_holder(
        &mut self,
        call: &Call<'_>,
        member: &Member,
        holder: &Incarnation,
        reason: Reason,
        limit: usize,
    ) -> usize {
        let by = Holder::Gateway(holder.clone());
        let mut closed = 0;
        while closed < limit
            && let Some(key) = self.held.first(holder)
        {
            self.held.remove(holder, &key);
            closed += usize::from(self.end_held(call, &key, &by, reason));
        }
        if self.held.count(holder) == 0 {
            self.deadlines.remove(member);
        }
        closed
    }

    fn end_held(&mut self, call: &Call<'_>, key: &SessionKey, by: &Holder, reason: Reason) -> bool {
        self.session(key).is_some_and(|s| s.holder == *by)
            && self.remove_session(call, key, reason, &call.origin.cloned())
    }

    fn unbury(&mut self, key: &SessionKey) {
        self.tombs.remove(key);
        self.deadlines.remove(&Member::Tomb(key.clone()));
    }

    /// How long until something can be due. Tombstones are in no hurry: of the first few they
    /// count only if nothing else is among them, and then the last one does.
    fn next_ms(&self, now: u64) -> Option<u64> {
        let mut next = None;
        for (at, member) in self.deadlines.iter().take(NEXT_AMONG) {
            let after = u64::from(matches!(member, Member::Holder(_) | Member::Draining(_)));
            next = Some((at.saturating_sub(now) + after).max(1));
            if !matches!(member, Member::Tomb(_)) {
                break;
            }
        }
        next
    }
}
