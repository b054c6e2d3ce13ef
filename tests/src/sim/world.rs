//! The world: a heap of things to do in virtual time, the futures under way, and the processes.
//! Everything random comes from the seed, and everything that the product leaves in no order is
//! sorted, so that the same seed is the same run.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use adsum_core::{
    Change, TenantId, Topic,
    ring::ShardRing,
    store::{Push, Shard, Store},
};
use adsum_store::{Hooks, MemoryStore};
use futures::{FutureExt, StreamExt, stream::BoxStream};

use super::{
    client::Client, dispatcher::Dispatcher, gateway::Gateway, net::Net, plan::Plan, reaper::Reaper,
    rng::Rng, store::now, times::Times,
};
use crate::history::{Event, Fault, History};

/// Writes of a shard that a failover can lose at most.
const LOSABLE: usize = 8;
/// The store's clock when a run begins, ms.
pub(super) const DAWN: u64 = 1_000_000;

pub(super) type Job = Box<dyn FnOnce(&mut World)>;
type Task = Pin<Box<dyn Future<Output = Job>>>;

struct Scheduled {
    at: u64,
    order: u64,
    job: Job,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What all processes have.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Counts its lives: what was meant for an earlier one is lost.
    pub(super) life: u64,
    pub(super) dead: bool,
    pub(super) frozen_until: u64,
}

pub(super) struct World {
    pub(super) now: u64,
    order: u64,
    heap: BinaryHeap<Reverse<Scheduled>>,
    tasks: BTreeMap<u64, (usize, u64, Task)>,
    next_task: u64,
    clock: Arc<AtomicU64>,
    pub(super) clock_offset: i64,
    pub(super) tenant: TenantId,
    pub(super) ring: Arc<ShardRing>,
    /// What is watched on every gateway.
    pub(super) topics: Vec<Topic>,
    pub(super) store: MemoryStore,
    pub(super) net: Arc<Net>,
    pushes: Vec<BoxStream<'static, Push>>,
    pub(super) rng: Rng,
    pub(super) times: Times,
    pub(super) plan: Plan,
    pub(super) processes: Vec<Process>,
    pub(super) gateways: Vec<Gateway>,
    pub(super) dispatchers: Vec<Dispatcher>,
    pub(super) reapers: Vec<Reaper>,
    pub(super) clients: Vec<Client>,
    /// Of each shard: the elected reaper, and until when its lease holds.
    pub(super) leases: Vec<Option<(usize, u64)>>,
    pub(super) stalled_until: Vec<u64>,
    pub(super) calm: bool,
    pub(super) history: History,
}

impl World {
    pub(super) fn new(plan: Plan, tenant: TenantId, topics: Vec<Topic>) -> Self {
        let times = Times::DEFAULT;
        let clock = Arc::new(AtomicU64::new(DAWN));
        let hooks = Hooks {
            clock: Some(clock.clone()),
            nonce: Some(plan.seed % 1000),
        };
        let store = MemoryStore::new(times.store(plan.shards), hooks).with_history(LOSABLE);
        let subscribe = |shard| store.subscribe(shard).now_or_never()?.ok();
        let pushes = (0..plan.shards).filter_map(subscribe).collect();
        let net = Net::new(!plan.seed, plan.noise, times.call, plan.shards);
        Self {
            now: 0,
            order: 0,
            heap: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            clock,
            clock_offset: 0,
            tenant,
            ring: Arc::new(ShardRing::new(plan.shards)),
            topics,
            store,
            net: Arc::new(net),
            pushes,
            rng: Rng::new(plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            times,
            processes: Vec::new(),
            gateways: Vec::new(),
            dispatchers: Vec::new(),
            reapers: Vec::new(),
            clients: Vec::new(),
            leases: vec![None; usize::from(plan.shards)],
            stalled_until: vec![0; usize::from(plan.shards)],
            calm: false,
            history: History::new(plan.seed),
            plan,
        }
    }

    /// A store that was there before: its shards were born long ago, and have settled.
    pub(super) fn age(&mut self) {
        let step = 3_000;
        let steps = self.times.settle / step + 2;
        for shard in 0..self.plan.shards {
            self.clock.store(DAWN - steps * step, Relaxed);
            let Ok(claim) = now(self.store.claim(shard)) else {
                continue;
            };
            for n in (0..steps).rev() {
                // Often enough for the shard not to think that nobody looked after it.
                self.clock.store(DAWN - n * step, Relaxed);
                drop(now(self.store.sweep(shard, claim.value, 1)));
            }
        }
        self.follow_up();
        self.net.due();
    }

    /// Runs until the end of time.
    pub(super) fn run(&mut self, until: u64) {
        while let Some(Reverse(next)) = self.heap.pop() {
            if next.at > until {
                break;
            }
            self.now = next.at;
            self.tick_clock();
            (next.job)(self);
        }
        self.now = until;
    }

    pub(super) fn tick_clock(&self) {
        let now = (DAWN + self.now).saturating_add_signed(self.clock_offset);
        self.clock.store(now, Relaxed);
    }

    pub(super) fn note(&mut self, event: Event) {
        self.history.note(self.now, event);
    }

    pub(super) fn broke(&mut self, fault: Fault, lasts: u64) {
        self.note(Event::Broke { fault, lasts });
    }

    /// Does something later.
    pub(super) fn at(&mut self, after: u64, job: impl FnOnce(&mut Self) + 'static) {
        self.push(self.now + after, Box::new(job));
    }

    fn push(&mut self, at: u64, job: Job) {
        self.order += 1;
        let order = self.order;
        self.heap.push(Reverse(Scheduled { at, order, job }));
    }

    /// A process does something later, if it still lives this life; once it is awake.
    pub(super) fn later(
        &mut self,
        process: usize,
        after: u64,
        job: impl FnOnce(&mut Self) + 'static,
    ) {
        let life = self.processes[process].life;
        self.push(
            self.now + after,
            Box::new(move |w| w.live(process, life, Box::new(job))),
        );
    }

    fn live(&mut self, process: usize, life: u64, job: Job) {
        let Process {
            life: current,
            dead,
            frozen_until,
        } = self.processes[process];
        if life != current || dead {
            return;
        }
        if frozen_until > self.now {
            self.push(frozen_until, Box::new(move |w| w.live(process, life, job)));
            return;
        }
        job(self);
    }

    pub(super) fn awake(&self, process: usize) -> bool {
        let process = &self.processes[process];
        !process.dead && process.frozen_until <= self.now
    }

    /// A process ends; what it asked for is still under way.
    pub(super) fn kill(&mut self, process: usize) {
        let process = &mut self.processes[process];
        process.life += 1;
        process.dead = true;
    }

    pub(super) fn revive(&mut self, process: usize) {
        let process = &mut self.processes[process];
        process.life += 1;
        process.dead = false;
        process.frozen_until = 0;
    }

    pub(super) fn new_process(&mut self) -> usize {
        self.processes.push(Process::default());
        self.processes.len() - 1
    }

    /// Begins a call; the process hears of its end, if it lives.
    pub(super) fn spawn<T: 'static>(
        &mut self,
        process: usize,
        call: impl Future<Output = T> + 'static,
        done: impl FnOnce(&mut Self, T) + 'static,
    ) {
        let task = async move {
            let answer = call.await;
            Box::new(move |w: &mut Self| done(w, answer)) as Job
        };
        self.next_task += 1;
        let (id, life) = (self.next_task, self.processes[process].life);
        self.tasks.insert(id, (process, life, Box::pin(task)));
        self.poll(id);
    }

    fn poll(&mut self, id: u64) {
        let Some((process, life, mut task)) = self.tasks.remove(&id) else {
            return;
        };
        self.net.enter(id);
        match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(job) => self.live(process, life, job),
            Poll::Pending => drop(self.tasks.insert(id, (process, life, task))),
        }
        self.take_due();
    }

    fn take_due(&mut self) {
        let due = self.net.due();
        for (after, ticket, task) in due.tickets {
            self.at(after, move |w| {
                ticket.call();
                w.poll(task);
            });
        }
        for (after, copy) in due.copies {
            self.at(after, move |w| {
                copy();
                w.follow_up();
            });
        }
        for event in due.events {
            self.note(event);
        }
        if due.wrote {
            self.follow_up();
        }
    }

    /// After every write: what the store pushed goes to the dispatchers.
    pub(super) fn follow_up(&mut self) {
        for shard in 0..self.plan.shards {
            while let Some(Some(push)) = self.pushes[usize::from(shard)].next().now_or_never() {
                if let Push::Change(change) = push {
                    self.pushed(shard, *change);
                }
            }
        }
    }

    fn pushed(&mut self, shard: Shard, change: Change) {
        self.note(Event::Committed {
            shard,
            v: change.version,
            what: format!("{:?}", change.event),
        });
        let change = Arc::new(change);
        for dispatcher in 0..self.dispatchers.len() {
            self.push_to(dispatcher, shard, &change);
        }
    }
}
