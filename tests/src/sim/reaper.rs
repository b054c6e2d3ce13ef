//! Reapers: a lease in a registry that is always right, and sweeps by the real rules, sent by
//! somebody who may have slept since it looked at its lease.

use std::sync::Arc;

use adsum_core::store::{Fence, Shard, Store, Swept};

use super::{store::SimStore, world::World};

/// Sessions closed by one sweep: few, so that a sweep can be interrupted.
const LIMIT: usize = 2;

#[derive(Debug, Clone, Copy, Default)]
struct Tenure {
    fence: Option<Fence>,
    /// As far as this reaper knows.
    lease_until: u64,
}

pub(super) struct Reaper {
    pub(super) process: usize,
    pub(super) name: String,
    store: Arc<SimStore>,
    shards: Vec<Tenure>,
    /// Falls asleep for so long between the look at its lease and the next sweep.
    pub(super) nap: u64,
}

impl World {
    pub(super) fn add_reaper(&mut self, name: &str) {
        let process = self.new_process();
        let store = Arc::new(SimStore::new(&self.store, &self.net, process, name));
        self.reapers.push(Reaper {
            process,
            name: name.to_owned(),
            store,
            shards: Vec::new(),
            nap: 0,
        });
        self.start_reaper(self.reapers.len() - 1);
    }

    pub(super) fn start_reaper(&mut self, r: usize) {
        let process = self.reapers[r].process;
        self.revive(process);
        let name = self.reapers[r].name.clone();
        let store = Arc::new(SimStore::new(&self.store, &self.net, process, &name));
        self.reapers[r].store = store;
        self.reapers[r].shards = vec![Tenure::default(); usize::from(self.plan.shards)];
        for shard in 0..self.plan.shards {
            let after = self.rng.range(1, 300);
            self.later(process, after, move |w| w.keep_lease(r, shard));
            self.later(process, after + 50, move |w| w.reap(r, shard));
        }
    }

    fn tenure(&mut self, r: usize, shard: Shard) -> &mut Tenure {
        &mut self.reapers[r].shards[usize::from(shard)]
    }

    fn keep_lease(&mut self, r: usize, shard: Shard) {
        let (now, lease) = (self.now, self.times.lease);
        let process = self.reapers[r].process;
        self.later(process, lease / 4, move |w| w.keep_lease(r, shard));
        let owner = &mut self.leases[usize::from(shard)];
        match *owner {
            Some((other, until)) if other != r && until > now => {
                self.tenure(r, shard).lease_until = 0;
            }
            Some((me, until)) if me == r && until > now => {
                *owner = Some((r, now + lease));
                self.tenure(r, shard).lease_until = now + lease;
            }
            _ => {
                *owner = Some((r, now + lease));
                let tenure = self.tenure(r, shard);
                tenure.lease_until = now + lease;
                tenure.fence = None;
            }
        }
    }

    fn reap(&mut self, r: usize, shard: Shard) {
        let (now, process) = (self.now, self.reapers[r].process);
        self.later(process, self.times.sweep, move |w| w.reap(r, shard));
        let tenure = self.tenure(r, shard);
        if tenure.lease_until < now + 200 {
            tenure.fence = None;
            return;
        }
        let Some(fence) = tenure.fence else {
            self.claim(r, shard);
            return;
        };
        let nap = std::mem::take(&mut self.reapers[r].nap);
        if nap > 0 {
            let process = &mut self.processes[process];
            process.frozen_until = process.frozen_until.max(now + nap);
        }
        self.later(process, 1, move |w| w.sweep(r, shard, fence));
    }

    fn claim(&mut self, r: usize, shard: Shard) {
        let (process, store) = (self.reapers[r].process, self.reapers[r].store.clone());
        let call = async move { store.claim(shard).await };
        self.spawn(process, call, move |w, answer| {
            if let Ok(answer) = answer {
                w.tenure(r, shard).fence = Some(answer.value);
            }
        });
    }

    fn sweep(&mut self, r: usize, shard: Shard, fence: Fence) {
        let (process, store) = (self.reapers[r].process, self.reapers[r].store.clone());
        let call = async move { store.sweep(shard, fence, LIMIT).await };
        self.spawn(process, call, move |w, answer| {
            match answer.map(|answer| answer.value) {
                Ok(Swept::Refused) => {
                    // Proves its lease before it claims again.
                    let owner = w.leases[usize::from(shard)];
                    let now = w.now;
                    let tenure = w.tenure(r, shard);
                    tenure.fence = None;
                    if !owner.is_some_and(|(owner, until)| owner == r && until > now) {
                        tenure.lease_until = 0;
                    }
                }
                Ok(Swept::Ok {
                    next_ms: Some(0), ..
                }) => w.sweep(r, shard, fence),
                _ => {}
            }
        });
    }
}
