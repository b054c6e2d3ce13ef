//! All numbers as they are at one moment, before they are written in one format or another.

use std::borrow::Cow;

use crate::trace::TraceId;

/// What kind of number an instrument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often something was how large.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// An instrument with all its values.
#[derive(Debug, Clone)]
pub struct Measured {
    /// What it is.
    pub about: About,
    /// Its values, one for each set of labels.
    pub points: Vec<Point>,
}

/// What an instrument is called and what it means.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// By the conventions of OpenTelemetry.
    pub name: &'static str,
    /// As UCUM spells it.
    pub unit: &'static str,
    /// What it means.
    pub help: &'static str,
    /// What kind of number.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
}

impl About {
    /// Its name in Prometheus, by the rules of OpenTelemetry: `adsum.fanout.duration` in `s` is
    /// `adsum_fanout_duration_seconds`. Without the `_total` of counters.
    #[must_use]
    pub fn base(&self) -> String {
        let name = self.name.replace('.', "_");
        match self.unit {
            "s" => name + "_seconds",
            "By" => name + "_bytes",
            _ => name,
        }
    }

    /// The same as it stands in the text format.
    #[must_use]
    pub fn exposed(&self) -> String {
        match self.kind {
            Kind::Counter => self.base() + "_total",
            Kind::Gauge | Kind::Histogram => self.base(),
        }
    }
}

/// One value.
#[derive(Debug, Clone)]
pub struct Point {
    /// By OpenTelemetry's spelling; a dot becomes `_` in Prometheus.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: Value,
}

impl Point {
    /// Without labels.
    #[must_use]
    pub const fn of(value: Value) -> Self {
        Self {
            labels: Vec::new(),
            value,
        }
    }

    /// A number that goes up and down.
    #[must_use]
    pub const fn gauge(value: f64) -> Self {
        Self::of(Value::Gauge(value))
    }

    /// With one more label.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.labels.push((name, value.into()));
        self
    }
}

/// What a value is.
#[derive(Debug, Clone)]
pub enum Value {
    /// A whole number that only grows.
    Counter(u64),
    /// The same where it is not whole.
    Sum(f64),
    /// A number.
    Gauge(f64),
    /// A distribution.
    Histogram(Buckets),
}

/// A distribution.
#[derive(Debug, Clone)]
pub struct Buckets {
    /// By their upper bounds; the last one has none.
    pub buckets: Vec<Bucket>,
    /// Of all values.
    pub sum: f64,
}

impl Buckets {
    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.count).sum()
    }
}

/// Values between two bounds.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// The upper bound, which belongs to it.
    pub up_to: f64,
    /// How many values.
    pub count: u64,
    /// The last one that belongs to a trace.
    pub exemplar: Option<Exemplar>,
}

/// A value that belongs to a trace.
#[derive(Debug, Clone)]
pub struct Exemplar {
    /// Which one.
    pub trace: TraceId,
    /// The value.
    pub value: f64,
    /// When: wall clock, µs.
    pub at_us: u64,
}
