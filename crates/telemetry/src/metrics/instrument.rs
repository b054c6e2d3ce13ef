//! What is counted and measured with: plain atomics, so that an event costs a few nanoseconds and
//! no lock. With labels there is one cell for each value, found by its place.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::snapshot::{Bucket, Buckets, Exemplar, Kind, Point, Value};
use crate::{clock, trace::TraceId};

static ON: AtomicBool = AtomicBool::new(true);

/// Whether anything is counted at all.
#[must_use]
pub fn on() -> bool {
    ON.load(Relaxed)
}

/// For measurements of what counting costs: nothing is counted from now on, or it is again.
pub fn switch(on: bool) {
    ON.store(on, Relaxed);
}

/// What is read when somebody asks how things are.
pub(crate) trait Instrument {
    /// What kind of number it is.
    const KIND: Kind;

    /// All its values, with these labels besides its own.
    fn points(&self) -> Vec<Point>;
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, n: usize) {
        if on() {
            self.0.fetch_add(n as u64, Relaxed);
        }
    }

    /// Takes over what is counted elsewhere.
    pub fn observe(&self, total: u64) {
        self.0.store(total, Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Instrument for Counter {
    const KIND: Kind = Kind::Counter;

    fn points(&self) -> Vec<Point> {
        vec![Point::of(Value::Counter(self.get()))]
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Changes it; to be taken back by the opposite.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// As it is now.
    pub fn set(&self, n: usize) {
        self.0.store(i64::try_from(n).unwrap_or(i64::MAX), Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// One more until the guard is dropped.
    #[must_use]
    pub fn hold(&'static self) -> Held {
        self.add(1);
        Held(self)
    }
}

/// One of a [`Gauge`].
#[derive(Debug)]
pub struct Held(&'static Gauge);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl Instrument for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn points(&self) -> Vec<Point> {
        #[allow(clippy::cast_precision_loss)]
        let value = self.get() as f64;
        vec![Point::gauge(value)]
    }
}

/// Bounds of a histogram, in its own unit, and how many of these make one of what is shown.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    bounds: &'static [u64],
    per_unit: u64,
}

/// Times from a tenth of a ms to half a minute, kept in µs and shown in s.
pub(crate) const TIMES: Scale = Scale {
    bounds: &[
        100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ],
    per_unit: 1_000_000,
};

/// Longer times, to two minutes: what people wait for on purpose.
pub(crate) const WAITS: Scale = Scale {
    bounds: &[
        10_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        15_000_000,
        20_000_000,
        30_000_000,
        45_000_000,
        46_000_000,
        60_000_000,
        120_000_000,
    ],
    per_unit: 1_000_000,
};

/// Numbers of things.
pub(crate) const SIZES: Scale = Scale {
    bounds: &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000],
    per_unit: 1,
};

/// How often something was how large or how slow.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// Of each bucket the last one that belongs to a trace.
    exemplars: Mutex<Vec<Option<Exemplar>>>,
}

impl Histogram {
    pub(crate) fn new(scale: Scale) -> Self {
        let buckets = scale.bounds.len() + 1;
        Self {
            scale,
            counts: (0..buckets).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            exemplars: Mutex::default(),
        }
    }

    /// One more, in the histogram's own unit: µs for times.
    pub fn record(&self, value: u64) {
        if on() {
            let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
            self.counts[bucket].fetch_add(1, Relaxed);
            self.sum.fetch_add(value, Relaxed);
        }
    }

    /// The same, and the trace it belongs to.
    pub fn record_in(&self, value: u64, trace: Option<TraceId>) {
        self.record(value);
        if let Some(trace) = trace
            && on()
        {
            let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
            let mut exemplars = lock(&self.exemplars);
            exemplars.resize(self.counts.len(), None);
            exemplars[bucket] = Some(Exemplar {
                trace,
                value: self.shown(value),
                at_us: clock::wall_us(),
            });
        }
    }

    /// A time.
    pub fn record_time(&self, time: Duration) {
        self.record(clock::us(time));
    }

    #[allow(clippy::cast_precision_loss)]
    fn shown(&self, value: u64) -> f64 {
        value as f64 / self.scale.per_unit as f64
    }

    fn value(&self) -> Value {
        let exemplars = lock(&self.exemplars).clone();
        let bounds = self.scale.bounds.iter().map(|bound| self.shown(*bound));
        let bounds = bounds.chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let buckets = bounds.zip(counts).enumerate();
        let buckets = buckets.map(|(n, (up_to, count))| Bucket {
            up_to,
            count,
            exemplar: exemplars.get(n).cloned().flatten(),
        });
        Value::Histogram(Buckets {
            buckets: buckets.collect(),
            sum: self.shown(self.sum.load(Relaxed)),
        })
    }
}

impl Instrument for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn points(&self) -> Vec<Point> {
        vec![Point::of(self.value())]
    }
}

/// A label whose values are known: each has its place.
pub trait Label: Copy {
    /// Its name.
    const NAME: &'static str;
    /// All values, in the order of their places.
    const VALUES: &'static [&'static str];

    /// The place of this one.
    fn place(self) -> usize;
}

/// One cell for each value of a label.
#[derive(Debug)]
pub struct Family<L, I> {
    cells: Box<[I]>,
    label: std::marker::PhantomData<fn() -> L>,
}

impl<L: Label, I> Family<L, I> {
    pub(crate) fn new(make: impl Fn() -> I) -> Self {
        Self {
            cells: L::VALUES.iter().map(|_| make()).collect(),
            label: std::marker::PhantomData,
        }
    }

    /// The cell of this value.
    pub fn of(&self, label: L) -> &I {
        &self.cells[label.place()]
    }
}

impl<L: Label, I: Instrument> Instrument for Family<L, I> {
    const KIND: Kind = I::KIND;

    fn points(&self) -> Vec<Point> {
        let cells = self.cells.iter().zip(L::VALUES);
        let labelled = |(cell, value): (&I, &&'static str)| {
            let (points, value) = (cell.points().into_iter(), *value);
            points.map(move |point| point.with(L::NAME, value))
        };
        cells.flat_map(labelled).collect()
    }
}

/// Numbers with labels that are known only when they are asked for, all replaced each time.
#[derive(Debug, Default)]
pub struct Table(Mutex<Vec<Point>>);

impl Table {
    /// How things are now.
    pub fn replace(&self, points: Vec<Point>) {
        *lock(&self.0) = points;
    }
}

impl Instrument for Table {
    const KIND: Kind = Kind::Gauge;

    fn points(&self) -> Vec<Point> {
        lock(&self.0).clone()
    }
}

/// The same for totals.
#[derive(Debug, Default)]
pub struct Totals(Mutex<Vec<Point>>);

impl Totals {
    /// How things are now.
    pub fn replace(&self, points: Vec<Point>) {
        *lock(&self.0) = points;
    }
}

impl Instrument for Totals {
    const KIND: Kind = Kind::Counter;

    fn points(&self) -> Vec<Point> {
        lock(&self.0).clone()
    }
}

/// A thread that panicked has left nothing half-done that others would trip over.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
