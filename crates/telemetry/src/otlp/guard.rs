//! Exporters that may fail without anybody noticing but the log, once a minute, and the metrics.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    logs::{LogBatch, LogExporter},
    trace::{SpanData, SpanExporter},
};
use tokio::runtime::Handle;

use crate::metrics::{Label, Signal, metrics};

/// Between two lines of the log about the same trouble.
const QUIET: Duration = Duration::from_secs(60);

/// What is told of a collector that does not take what it is sent. Of all signals together one
/// line in that time.
#[derive(Debug)]
pub(super) struct Complaint {
    signal: Signal,
    /// Since it last took something.
    failures: AtomicU64,
    said: &'static Mutex<Option<Instant>>,
}

static SAID: Mutex<Option<Instant>> = Mutex::new(None);

impl Complaint {
    pub(super) const fn new(signal: Signal) -> Self {
        Self {
            signal,
            failures: AtomicU64::new(0),
            said: &SAID,
        }
    }

    /// Notes how a batch went; `true` if that was worth a line.
    pub(super) fn note<E: fmt::Display>(&self, result: &Result<(), E>) -> bool {
        let signal = Signal::VALUES[self.signal.place()];
        let Err(error) = result else {
            let failures = self.failures.swap(0, Relaxed);
            if failures > 0 {
                tracing::info!(signal, failures, "the collector is back");
            }
            return failures > 0;
        };
        metrics().export_failures.of(self.signal).one();
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| said.elapsed() < QUIET) {
            return false;
        }
        *said = Some(Instant::now());
        tracing::warn!(signal, failures, %error, "the collector can't be reached");
        true
    }
}

/// An exporter that works in the runtime, whatever thread calls it.
pub(super) struct Guard<E> {
    exporter: E,
    runtime: Handle,
    complaint: Complaint,
}

impl<E> Guard<E> {
    pub(super) fn new(exporter: E, runtime: Handle, signal: Signal) -> Self {
        Self {
            exporter,
            runtime,
            complaint: Complaint::new(signal),
        }
    }

    async fn run(&self, export: impl Future<Output = OTelSdkResult>) -> OTelSdkResult {
        let mut export = pin!(export);
        let result = poll_fn(|cx| {
            // Timers and sockets of the exporter belong to the runtime.
            let _entered = self.runtime.enter();
            export.as_mut().poll(cx)
        });
        let result = result.await;
        self.complaint.note(&result);
        // The SDK has no more to say about it.
        Ok(())
    }
}

impl<E> fmt::Debug for Guard<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl<E: SpanExporter> SpanExporter for Guard<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.run(self.exporter.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Guard<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.run(self.exporter.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_collector_is_worth_one_line_a_minute() {
        let (complaint, other) = (Complaint::new(Signal::Traces), Complaint::new(Signal::Logs));
        let lost: Result<(), &str> = Err("connection refused");
        let before = metrics().export_failures.of(Signal::Traces).get();
        let lines = (0..100).filter(|_| complaint.note(&lost)).count();
        assert_eq!(lines, 1);
        assert!(!other.note(&lost), "it is the same collector");
        assert_eq!(
            metrics().export_failures.of(Signal::Traces).get() - before,
            100
        );
        assert!(complaint.note::<&str>(&Ok(())), "and one when it is back");
        assert!(!complaint.note::<&str>(&Ok(())));
    }
}
