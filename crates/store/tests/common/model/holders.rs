//! Holders.

use super::*;

impl ModelShard {
    pub(crate) fn renew(
        &mut self,
        call: Call<'_>,
        holder: &Incarnation,
        lease: Lease,
    ) -> Checked<Renewed> {
        self.begin(call, true)?;
        let by = holder.as_str();
        if self.deadline('h', by).is_none() && self.deadline('d', by).is_none() {
            return Ok(Renewed::Gone);
        }
        self.drop_deadline('h', by);
        self.drop_deadline('d', by);
        match lease {
            Lease::Usual => self.set_deadline('h', by, call.now + call.options.holder_ms),
            Lease::Drain(ms) => self.set_deadline('d', by, call.now + ms),
        }
        Ok(Renewed::Ok {
            held: self.held_by(by).len() as u64,
        })
    }

    pub(crate) fn claim(&mut self, call: Call<'_>) -> Checked<Fence> {
        self.begin(call, false)?;
        self.meta().fence += 1;
        Ok(Fence {
            epoch: self.meta().epoch,
            number: self.meta().fence,
        })
    }

    pub(crate) fn sweep(&mut self, call: Call<'_>, fence: Fence, limit: usize) -> Checked<Swept> {
        self.begin(call, true)?;
        let (now, limit) = (call.now, limit.max(1));
        // 1.
        if fence.epoch != self.meta().epoch || fence.number < self.meta().fence {
            return Ok(Swept::Refused);
        }
        // 2.
        let furthest = now + call.options.max_deadline_ms;
        let beyond: Vec<_> = self
            .by_deadline()
            .into_iter()
            .filter(|d| d.1 > furthest)
            .collect();
        for (member, _) in beyond.iter().rev().take(limit) {
            self.set_deadline(member.chars().next().unwrap(), &member[1..], furthest);
        }
        // 3.
        let mut old: Vec<_> = self.last_seen.clone();
        old.retain(|(_, at)| at + call.options.retention_ms < now);
        old.sort_by_key(|(user, at)| (*at, user.encode().into_bytes()));
        old.truncate(limit);
        self.last_seen.retain(|entry| !old.contains(entry));
        let mut overdue = self.by_deadline();
        overdue.retain(|(member, at)| match &member[..1] {
            "s" | "t" => *at <= now,
            "h" | "d" => *at < now,
            _ => true,
        });
        overdue.truncate(limit);
        // 4.
        for (member, _) in overdue.iter().filter(|(m, _)| m.starts_with('t')) {
            self.drop_tomb(&SessionKey::decode(&member.as_bytes()[1..]).unwrap());
        }
        // 5.
        if now < self.meta().settle_until {
            let next_ms = Some(self.meta().settle_until - now);
            return Ok(Swept::Ok { closed: 0, next_ms });
        }
        // 6.
        let mut closed = 0;
        for (member, at) in &overdue {
            if closed < limit {
                self.end(call, member, *at, limit, &mut closed);
            }
        }
        // 7.
        let next_ms = if overdue.len() == limit || closed == limit {
            Some(0)
        } else {
            let mut first = self.by_deadline();
            first.truncate(32);
            let urgent = first.iter().find(|(member, _)| !member.starts_with('t'));
            urgent.or(first.last()).map(|(member, at)| {
                let later = u64::from(member.starts_with('h') || member.starts_with('d'));
                (at + later).saturating_sub(now).max(1)
            })
        };
        Ok(Swept::Ok {
            closed: closed as u64,
            next_ms,
        })
    }

    pub(super) fn end(
        &mut self,
        call: Call<'_>,
        member: &str,
        at: u64,
        limit: usize,
        closed: &mut usize,
    ) {
        let name = &member[1..];
        let decoded = || SessionKey::decode(name.as_bytes()).unwrap();
        match &member[..1] {
            "t" => {}
            "s" => {
                self.drop_deadline('s', name);
                if self
                    .session(&decoded())
                    .is_some_and(|r| r.holder == Holder::Own)
                {
                    self.remove(call, &decoded(), Reason::Timeout, None);
                    *closed += 1;
                }
            }
            "h" => {
                self.drop_deadline('h', name);
                self.set_deadline('c', name, at);
                self.end_holder(call, 'c', name, limit, closed);
            }
            "d" => {
                self.drop_deadline('d', name);
                self.set_deadline('e', name, at);
                self.end_holder(call, 'e', name, limit, closed);
            }
            "c" => self.end_holder(call, 'c', name, limit, closed),
            _ => self.end_holder(call, 'e', name, limit, closed),
        }
    }

    pub(super) fn end_holder(
        &mut self,
        call: Call<'_>,
        letter: char,
        by: &str,
        limit: usize,
        closed: &mut usize,
    ) {
        let reason = if letter == 'c' {
            Reason::NodeLost
        } else {
            Reason::Disconnect
        };
        let holder = Holder::Gateway(Incarnation::new(by).unwrap());
        for key in self.held_by(by) {
            if *closed == limit {
                break;
            }
            self.release(&key, &holder);
            if self.session(&key).is_some_and(|r| r.holder == holder) {
                self.remove(call, &key, reason, None);
                *closed += 1;
            }
        }
        if self.held_by(by).is_empty() {
            self.drop_deadline(letter, by);
        }
    }
}
