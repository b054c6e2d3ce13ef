//! The network between a process and the store, in virtual time. A call is a request that takes
//! its time or gets lost, a step of the real store, and an answer that does the same. The future
//! of a call waits for tickets, and the scheduler of the world says when they are due.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use adsum_core::store::{Result, Shard, StoreError};

use super::rng::Rng;
use crate::history::Event;

/// A place in the virtual future.
#[derive(Debug, Default)]
pub(super) struct Ticket(AtomicBool);

impl Ticket {
    pub(super) fn call(&self) {
        self.0.store(true, Relaxed);
    }
}

struct Wait(Arc<Ticket>);

impl Future for Wait {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        // Nobody needs to be woken: the world polls whose ticket it called.
        if self.0.0.load(Relaxed) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// A late copy of a request.
pub(super) type Copy = Box<dyn FnOnce() + Send>;

/// What the world has to do for calls under way.
#[derive(Default)]
pub(super) struct Due {
    /// After how long to call which ticket, and which task waits for it.
    pub(super) tickets: Vec<(u64, Arc<Ticket>, u64)>,
    pub(super) copies: Vec<(u64, Copy)>,
    pub(super) events: Vec<Event>,
    /// Something may have been written, and pushed.
    pub(super) wrote: bool,
}

/// How unreliable the network is, per mille.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Noise {
    pub(super) lost: u64,
    pub(super) copied: u64,
    pub(super) pushes_lost: u64,
}

struct Inner {
    rng: Rng,
    noise: Noise,
    task: u64,
    due: Due,
    cut: BTreeSet<usize>,
    /// Writes since the last that waited for a replica: as many can be lost.
    unsafe_writes: Vec<u64>,
}

pub(super) struct Net {
    inner: Mutex<Inner>,
    timeout: u64,
}

impl Net {
    pub(super) fn new(seed: u64, noise: Noise, timeout: u64, shards: Shard) -> Self {
        let inner = Inner {
            rng: Rng::new(seed),
            noise,
            task: 0,
            due: Due::default(),
            cut: BTreeSet::new(),
            unsafe_writes: vec![0; usize::from(shards)],
        };
        let inner = Mutex::new(inner);
        Self { inner, timeout }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task that is polled now: it waits for all tickets from here on.
    pub(super) fn enter(&self, task: u64) {
        self.lock().task = task;
    }

    pub(super) fn due(&self) -> Due {
        std::mem::take(&mut self.lock().due)
    }

    pub(super) fn quiet(&self) {
        self.lock().noise = Noise::default();
    }

    pub(super) fn noise(&self) -> Noise {
        self.lock().noise
    }

    pub(super) fn cut(&self, process: usize, cut: bool) {
        let mut inner = self.lock();
        if cut {
            inner.cut.insert(process);
        } else {
            inner.cut.remove(&process);
        }
    }

    pub(super) fn note(&self, event: Event) {
        self.lock().due.events.push(event);
    }

    /// A write that surely changed something; or one that a replica has, with all before it.
    pub(super) fn wrote(&self, shard: Shard, safe: bool) {
        let writes = &mut self.lock().unsafe_writes[usize::from(shard)];
        *writes = if safe { 0 } else { *writes + 1 };
    }

    pub(super) fn losable(&self, shard: Shard) -> u64 {
        self.lock().unsafe_writes[usize::from(shard)]
    }

    fn wait(&self, after: u64) -> Wait {
        let ticket = Arc::new(Ticket::default());
        let mut inner = self.lock();
        let task = inner.task;
        inner.due.tickets.push((after, ticket.clone(), task));
        Wait(ticket)
    }

    /// One way: after a while, or never, which is found out at the time limit.
    async fn way(&self, process: usize) -> Result<()> {
        let (lost, after) = {
            let mut inner = self.lock();
            let per_mille = inner.noise.lost;
            let lost = inner.rng.chance(per_mille) || inner.cut.contains(&process);
            (lost, inner.rng.range(1, 6))
        };
        if lost {
            return self.late().await;
        }
        self.wait(after).await;
        // Cut while it was under way.
        if self.lock().cut.contains(&process) {
            return self.late().await;
        }
        Ok(())
    }

    async fn late<T>(&self) -> Result<T> {
        self.wait(self.timeout).await;
        Err(StoreError::Unavailable("no answer in time".into()))
    }

    /// A whole call.
    pub(super) async fn call<T>(
        &self,
        process: usize,
        copy: Option<Copy>,
        step: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Some(copy) = copy {
            let mut inner = self.lock();
            let per_mille = inner.noise.copied;
            if inner.rng.chance(per_mille) {
                let after = inner.rng.range(5, 6_000);
                inner.due.copies.push((after, copy));
            }
        }
        self.way(process).await?;
        match self.stepped(step) {
            // A shard that is stalled does not say so.
            Err(StoreError::Unavailable(_)) => self.late().await,
            answer => {
                self.way(process).await?;
                answer
            }
        }
    }

    /// A call that only reads. Most are answered at once: that saves a step, and what is read
    /// is as old when it arrives as if the request had taken longer.
    pub(super) async fn read<T>(
        &self,
        process: usize,
        step: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let slow = self.lock().rng.chance(200);
        if slow {
            return self.call(process, None, step).await;
        }
        self.way(process).await?;
        match step() {
            Err(StoreError::Unavailable(_)) => self.late().await,
            answer => answer,
        }
    }

    fn stepped<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        self.lock().due.wrote = true;
        step()
    }
}
