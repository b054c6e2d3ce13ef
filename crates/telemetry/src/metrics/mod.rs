//! One set of instruments, two ways out: OTLP and `/metrics`.
//!
//! `instrument` is what is counted with, `catalogue` all there is, `snapshot` the numbers at one
//! moment; `text` writes those for Prometheus, [`crate::otlp`] for a collector.

mod catalogue;
mod instrument;
mod labels;
mod page;
mod process;
mod snapshot;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use catalogue::{Metrics, metrics};
pub use instrument::{
    Counter, Family, Gauge, Held, Histogram, Label, Scale, Table, Totals, on, switch,
};
pub use labels::{
    Call, Hop, Limit, Loss, Operation, Refusal, RegistryFault, Renewal, Signal, StoreFault,
    TopicKind, Transport,
};
pub use page::page;
pub use snapshot::{About, Bucket, Buckets, Exemplar, Kind, Measured, Point, Value};

type Look = Box<dyn Fn(&Metrics) + Send + Sync>;

static LOOKS: Mutex<Vec<Look>> = Mutex::new(Vec::new());

fn looks() -> MutexGuard<'static, Vec<Look>> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before numbers are read this brings those up to date that are kept elsewhere.
pub fn observe(look: impl Fn(&Metrics) + Send + Sync + 'static) {
    looks().push(Box::new(look));
}

/// All numbers as they are now.
#[must_use]
pub fn measured() -> Vec<Measured> {
    let all = metrics();
    process::look(all);
    looks().iter().for_each(|look| look(all));
    all.measured()
}

/// How `/metrics` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format that everybody reads.
    Text,
    /// OpenMetrics: the same, with exemplars.
    OpenMetrics,
}

impl Format {
    /// What an `Accept` header asks for.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let ranges = accept.unwrap_or_default().split(',');
        let weight = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let quality = parts.find_map(|p| p.strip_prefix("q=")?.parse().ok());
            (kind.to_ascii_lowercase(), quality.unwrap_or(1.0_f32))
        };
        let (mut open, mut text) = (0.0_f32, 0.0_f32);
        for (kind, quality) in ranges.map(weight) {
            match kind.as_str() {
                "application/openmetrics-text" => open = open.max(quality),
                "text/plain" | "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        match open > 0.0 && open >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// Its `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes numbers in it.
    ///
    /// # Errors
    /// Never: text has room.
    pub fn write(self, measured: &[Measured]) -> Result<String, std::fmt::Error> {
        text::write(self, measured)
    }
}
