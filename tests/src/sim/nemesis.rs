//! What breaks, and how it is mended.

use adsum_core::store::Store;

use super::{
    plan::{Kind, Planned},
    store::now,
    world::World,
};
use crate::history::{Event, Fault};

impl World {
    pub(super) fn plan_faults(&mut self) {
        for fault in self.plan.faults.clone() {
            self.at(fault.at, move |w| w.inflict(fault));
        }
        let active = self.times.active;
        self.at(active, Self::become_calm);
    }

    /// From here on nothing breaks, and nobody does anything but beat.
    fn become_calm(&mut self) {
        self.calm = true;
        self.net.quiet();
        self.note(Event::Calm);
    }

    fn inflict(&mut self, fault: Planned) {
        match fault.kind {
            Kind::KillGateway | Kind::FreezeGateway | Kind::DrainGateway | Kind::CutGateway => {
                self.break_gateway(fault);
            }
            Kind::CutFeed | Kind::SlowFeed => self.break_feed(fault),
            Kind::KillDispatcher
            | Kind::FreezeDispatcher
            | Kind::DeafDispatcher
            | Kind::MutePushes => self.break_dispatcher(fault),
            Kind::KillReaper | Kind::FreezeReaper => self.break_reaper(fault),
            Kind::Failover | Kind::FailBack | Kind::Flush | Kind::Stall => self.break_shard(fault),
            Kind::StepClock => {
                let steps = [-9_000, -2_500, 2_500, 9_000, 30_000];
                let step = steps[pick(fault.lot, steps.len())];
                self.clock_offset += step;
                self.tick_clock();
                self.broke(Fault::ClockStep(step), 0);
            }
        }
    }

    fn break_gateway(&mut self, fault: Planned) {
        let g = pick(fault.lot, self.gateways.len());
        let (process, name) = (self.gateways[g].process, self.gateways[g].name.clone());
        let stopped = !self.awake(process) && fault.kind == Kind::DrainGateway;
        if self.processes[process].dead || self.gateways[g].draining || stopped {
            return;
        }
        let lasts = fault.lasts;
        match fault.kind {
            Kind::KillGateway => {
                self.broke(Fault::GatewayKilled(name), lasts);
                self.kill_gateway(g);
                self.at(lasts, move |w| w.start_gateway(g));
            }
            Kind::DrainGateway => {
                self.broke(Fault::GatewayDrained(name), lasts);
                self.drain_gateway(g, self.times.window, lasts - 500);
                self.at(lasts, move |w| w.start_gateway(g));
            }
            Kind::FreezeGateway => {
                self.broke(Fault::GatewayFrozen(name), lasts);
                self.freeze(process, lasts);
            }
            _ => {
                self.broke(Fault::GatewayCut(name), lasts);
                self.cut(process, lasts);
            }
        }
    }

    fn freeze(&mut self, process: usize, lasts: u64) {
        let until = self.now + lasts;
        let process = &mut self.processes[process];
        process.frozen_until = process.frozen_until.max(until);
    }

    fn cut(&mut self, process: usize, lasts: u64) {
        self.net.cut(process, true);
        self.at(lasts, move |w| w.net.cut(process, false));
    }

    fn break_feed(&mut self, fault: Planned) {
        let g = pick(fault.lot, self.gateways.len());
        let (name, until) = (self.gateways[g].name.clone(), self.now + fault.lasts);
        if fault.kind == Kind::CutFeed {
            self.broke(Fault::FeedCut(name), fault.lasts);
            self.cut_feed(g, until);
            return;
        }
        self.broke(Fault::FeedSlow(name), fault.lasts);
        self.gateways[g].feed.slow_until = until;
        self.at(fault.lasts + 1, move |w| {
            (0..w.dispatchers.len()).for_each(|d| w.pump(d));
        });
    }

    fn break_dispatcher(&mut self, fault: Planned) {
        let d = pick(fault.lot, self.dispatchers.len());
        let (process, name) = (
            self.dispatchers[d].process,
            self.dispatchers[d].name.clone(),
        );
        if self.processes[process].dead {
            return;
        }
        let lasts = fault.lasts;
        match fault.kind {
            Kind::KillDispatcher => {
                self.broke(Fault::DispatcherKilled(name), lasts);
                self.kill_dispatcher(d);
                self.at(lasts, move |w| w.start_dispatcher(d));
            }
            Kind::FreezeDispatcher => {
                self.broke(Fault::DispatcherFrozen(name), lasts);
                self.freeze(process, lasts);
            }
            Kind::DeafDispatcher => {
                self.broke(Fault::DispatcherDeaf(name), lasts);
                self.dispatchers[d].mute_until = self.now + lasts;
                self.cut(process, lasts);
            }
            _ => {
                self.broke(Fault::PushesLost(name), lasts);
                self.dispatchers[d].mute_until = self.now + lasts;
            }
        }
    }

    fn break_reaper(&mut self, fault: Planned) {
        let owner = self.leases[0].map(|(owner, _)| owner);
        let r = owner.unwrap_or_else(|| pick(fault.lot, self.reapers.len()));
        let (process, name) = (self.reapers[r].process, self.reapers[r].name.clone());
        if self.processes[process].dead {
            return;
        }
        if fault.kind == Kind::KillReaper {
            self.broke(Fault::ReaperKilled(name), fault.lasts);
            self.kill(process);
            self.at(fault.lasts, move |w| w.start_reaper(r));
        } else {
            self.broke(Fault::ReaperFrozen(name), fault.lasts);
            self.reapers[r].nap = fault.lasts;
        }
    }

    fn break_shard(&mut self, fault: Planned) {
        let shard = u16::try_from(fault.lot % u64::from(self.plan.shards)).unwrap_or(0);
        let lasts = fault.lasts;
        match fault.kind {
            Kind::Failover => {
                let lost = [0, 1, 3, 6][pick(fault.lot >> 8, 4)];
                let lost = self.net.losable(shard).min(lost);
                self.broke(
                    Fault::Failover {
                        shards: vec![shard],
                        lost,
                    },
                    lasts,
                );
                self.store
                    .lose_last(shard, usize::try_from(lost).unwrap_or(0));
                self.stall(shard, lasts);
            }
            Kind::FailBack => {
                // The name that it goes back to is the one that its data knows: there is none
                // to go back to while that is another's.
                let page = now(self.store.log(shard, 0, 0));
                let position = page.ok().and_then(|page| page.position);
                if position.is_none_or(|position| position.settling) {
                    return;
                }
                self.broke(
                    Fault::Failover {
                        shards: vec![shard],
                        lost: 0,
                    },
                    0,
                );
                self.fail_back(shard);
            }
            Kind::Flush => {
                self.broke(Fault::Flush(vec![shard]), 0);
                self.store.flush(shard);
            }
            _ => {
                self.broke(Fault::Stall(vec![shard]), lasts);
                self.stall(shard, lasts);
            }
        }
        if fault.kind != Kind::Stall {
            // What was written before is another server's.
            self.net.wrote(shard, true);
        }
    }

    /// Another server takes over, begins an epoch that some hear of, and is gone again: the
    /// first one goes on as it was, under its old name.
    fn fail_back(&mut self, shard: u16) {
        self.store.fail_over(shard);
        if now(self.store.handle().claim(shard)).is_ok() {
            self.follow_up();
            self.store.rewind(shard, 1);
        }
    }

    fn stall(&mut self, shard: u16, lasts: u64) {
        let until = self.now + lasts;
        let slot = &mut self.stalled_until[usize::from(shard)];
        *slot = until.max(*slot);
        self.store.stall(shard, true);
        self.at(lasts, move |w| {
            if w.stalled_until[usize::from(shard)] <= w.now {
                w.store.stall(shard, false);
            }
        });
    }
}

fn pick(lot: u64, of: usize) -> usize {
    usize::try_from(lot % (of as u64)).unwrap_or(0)
}
