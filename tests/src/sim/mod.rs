//! A cluster in virtual time: the product's own holds, store in memory, tails, views, outlets
//! and rosters, under a scheduler that a seed drives. The same seed is the same run, on every
//! machine. What it did is a [`History`], judged by the same checker as a real cluster.

mod client;
mod dispatcher;
mod feed;
mod gateway;
mod nemesis;
mod net;
mod own;
mod plan;
mod prefer;
mod reaper;
mod rng;
mod store;
mod stream;
mod times;
mod watcher;
mod world;

use adsum_core::{
    Conn, DeviceId, IdError, NodeId, RoomId, SessionKey, TenantId, Topic, UserId, UserKey,
    store::Store,
};

use self::{client::Client, plan::Plan, times::Times, world::World};
use crate::{
    checker::{Bounds, Violation, check},
    history::{Event, Fault, History},
};

/// A run that was made and judged.
#[derive(Debug)]
pub struct Run {
    /// What happened.
    pub history: History,
    /// What it is held to.
    pub bounds: Bounds,
    /// What is wrong with it.
    pub violations: Vec<Violation>,
    /// How many faults were planned.
    pub faults: usize,
}

/// Makes and judges the run of a seed.
///
/// # Panics
/// Never: the names of the simulated cluster are good ones.
#[must_use]
pub fn run(seed: u64) -> Run {
    run_plan(Plan::new(seed))
}

/// The run of a seed with only some of its faults, by their place in the plan.
#[must_use]
pub fn run_with(seed: u64, keep: &[usize]) -> Run {
    let mut plan = Plan::new(seed);
    let faults = std::mem::take(&mut plan.faults);
    let kept = faults.into_iter().enumerate();
    let kept = kept.filter(|(n, _)| keep.contains(n));
    plan.faults = kept.map(|(_, fault)| fault).collect();
    run_plan(plan)
}

/// The run of a seed that goes wrong, with as few faults as still make it go wrong in the same
/// way.
#[must_use]
pub fn shrink(seed: u64) -> (Vec<usize>, Run) {
    let mut best = run(seed);
    let mut keep: Vec<usize> = (0..best.faults).collect();
    let Some(first) = best.violations.first().map(|v| v.invariant) else {
        return (keep, best);
    };
    let mut n = 0;
    while n < keep.len() {
        let mut fewer = keep.clone();
        fewer.remove(n);
        let run = run_with(seed, &fewer);
        if run.violations.iter().any(|v| v.invariant == first) {
            (keep, best) = (fewer, run);
        } else {
            n += 1;
        }
    }
    (keep, best)
}

fn run_plan(plan: Plan) -> Run {
    let (faults, noisy) = (plan.faults.len(), plan.noisy());
    let times = Times::DEFAULT;
    let bounds = times.bounds(noisy);
    #[allow(clippy::expect_used)]
    let mut world = build(plan).expect("the names of the cluster are good");
    world.run(times.active + times.quiet);
    world.measure();
    world.note(Event::End);
    let history = world.history;
    let violations = check(&history, &bounds);
    Run {
        history,
        bounds,
        violations,
        faults,
    }
}

/// Two users with two devices, two with one.
const DEVICES: [(&str, &str); 6] = [
    ("u0", "d0"),
    ("u0", "d1"),
    ("u1", "d2"),
    ("u1", "d3"),
    ("u2", "d4"),
    ("u3", "d5"),
];

fn build(plan: Plan) -> Result<World, IdError> {
    let tenant = TenantId::new("t")?;
    let topics = vec![
        Topic::Room(RoomId::new("r")?),
        Topic::Tenant,
        Topic::User(UserId::new("u0")?),
    ];
    let gateways = plan.gateways;
    let mut world = World::new(plan, tenant.clone(), topics);
    if world.rng.chance(900) {
        world.age();
    } else {
        // A shard settles at its birth, as it does when it forgot everything.
        for shard in 0..world.plan.shards {
            world.broke(Fault::Flush(vec![shard]), 0);
        }
    }
    for (user, device) in DEVICES {
        let owner = UserKey::new(tenant.clone(), UserId::new(user)?);
        let shard = world.store.shard_of(&owner);
        let user = user.to_owned();
        world.note(Event::Lives { user, shard });
        let key = SessionKey::new(owner, DeviceId::new(device)?);
        let bad_clock = world.rng.chance(80);
        if let Ok(conn) = Conn::new(1) {
            let client = Client::new(key, conn, bad_clock);
            let own = world.rng.chance(150);
            world
                .clients
                .push(if own { client.on_its_own() } else { client });
        }
    }
    world.add_dispatcher("dispatcher-0");
    world.add_dispatcher("dispatcher-1");
    for n in 0..gateways {
        world.add_gateway(NodeId::new(format!("gateway-{n}"))?);
    }
    world.add_reaper("reaper-0");
    world.add_reaper("reaper-1");
    for client in 0..world.clients.len() {
        let after = world.rng.range(1, 4_000);
        world.at(after, move |w| w.connect(client));
    }
    world.plan_faults();
    world.measure_now_and_then();
    Ok(world)
}

impl World {
    fn measure_now_and_then(&mut self) {
        self.measure();
        self.at(2_000, Self::measure_now_and_then);
    }

    /// Notes how large everything is that must not grow.
    fn measure(&mut self) {
        let mut sizes: Vec<(String, usize, usize)> = Vec::new();
        for (waiting, limit) in self.queues() {
            sizes.push(("states waiting for a gateway".into(), waiting, limit));
        }
        for g in 0..self.gateways.len() {
            let (members, remembered) = self.gateways[g].pictures.sizes();
            sizes.push(("members of a roster".into(), members, 4));
            sizes.push(("absences remembered".into(), remembered, 4));
            sizes.push(("sessions held".into(), self.held_by(g), DEVICES.len()));
        }
        for shard in 0..self.plan.shards {
            let page = store::now(self.store.log(shard, 0, 0));
            if let Some(position) = page.ok().and_then(|page| page.position) {
                let entries = usize::try_from(position.seq + 1 - position.first).unwrap_or(0);
                sizes.push(("entries of a log".into(), entries, 100));
            }
        }
        for (what, size, limit) in sizes {
            let (size, limit) = (size as u64, limit as u64);
            // What is far from its limit tells nothing.
            if size * 2 > limit {
                self.note(Event::Size { what, size, limit });
            }
        }
    }
}
