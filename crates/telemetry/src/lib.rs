//! Logs, traces and metrics. Off by default but for the log on stderr and the numbers behind
//! `/metrics`, and cheap: an event is a few atomic additions, and a trace that is not sampled is
//! nothing at all.
//!
//! [`metrics`] are the instruments and the page of Prometheus, [`trace`] the spans of a change,
//! [`otlp`] the way to a collector; [`measured`] puts a measure around the store and the
//! membership. What the parts of the service count with is one for the process: a process is a
//! node.

pub mod clock;
mod logs;
pub mod measured;
pub mod metrics;
pub mod otlp;
pub mod trace;

use std::time::Duration;

use opentelemetry_sdk::logs::SdkLoggerProvider;
use tokio::{runtime::Handle, sync::oneshot, task::JoinHandle};

pub use logs::Logs;
use otlp::{BadSetting, Exporters, Plan};

/// How a node is watched.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is logged, and how.
    pub logs: Logs,
    /// Count and measure.
    pub metrics: bool,
    /// What is sent to a collector.
    pub plan: Plan,
    /// Certificates (PEM) to trust there; `None` for the public ones.
    pub ca: Option<Vec<u8>>,
    /// What says who sends: service, node, zone, version.
    pub resource: Vec<(&'static str, String)>,
    /// A change that takes longer gets a trace in the end; zero for none.
    pub slow: Duration,
}

/// What runs for it; stop it last.
#[derive(Debug)]
pub struct Telemetry {
    logs: Option<SdkLoggerProvider>,
    push: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Telemetry {
    /// Begins to log, and to send what is to be sent.
    ///
    /// # Errors
    /// When a setting can't be used. A collector that is away is no error.
    pub fn start(settings: Settings, runtime: &Handle) -> Result<Self, BadSetting> {
        let _entered = runtime.enter();
        let Settings { plan, .. } = settings;
        metrics::switch(settings.metrics);
        let resource = otlp::resource(&settings.resource);
        let exporters = Exporters::new(settings.ca, runtime.clone(), resource);
        let logs = plan.logs.as_ref().map(|t| exporters.logs(t)).transpose()?;
        settings.logs.start(logs.as_ref())?;
        if let Some(target) = &plan.traces {
            trace::start(exporters.spans(target)?, plan.sampling, settings.slow);
        }
        let push = plan.metrics.filter(|_| settings.metrics);
        let push = push.map(|target| exporters.metrics(target)).transpose()?;
        let push = push.map(|push| {
            let (stop, stopped) = oneshot::channel();
            (stop, runtime.spawn(push.run(plan.interval, stopped)))
        });
        Ok(Self { logs, push })
    }

    /// Sends what waits, but does not wait long.
    pub async fn stop(self, within: Duration) {
        if let Some((stop, task)) = self.push {
            let _ = stop.send(());
            let _ = tokio::time::timeout(within, task).await;
        }
        let logs = self.logs;
        let flush = tokio::task::spawn_blocking(move || {
            trace::stop(within);
            if let Some(logs) = logs {
                let _ = logs.shutdown_with_timeout(within);
            }
        });
        let _ = tokio::time::timeout(2 * within, flush).await;
    }
}
