//! The configuration as telemetry takes it, with the standard variables laid over it.

use std::time::Duration;

use adsum_telemetry::{
    Logs, Settings,
    metrics::{Label, Signal},
    otlp::{Plan, Protocol, Wish},
    trace::{Parents, Sampling},
};
use anyhow::{Context, Result, bail, ensure};

use super::{Config, ms};

/// The only place that reads variables other than our own.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Config {
    /// How this node is watched.
    ///
    /// # Errors
    /// When something does not fit, or the certificates can't be read.
    pub(crate) fn telemetry(&self) -> Result<Settings> {
        let t = &self.telemetry;
        let file = variable("OTEL_EXPORTER_OTLP_CERTIFICATE").map(Into::into);
        let ca = file.or_else(|| t.ca.clone()).map(|file| {
            let text = || format!("telemetry.ca: {} can't be read", file.display());
            std::fs::read(&file).with_context(text)
        });
        Ok(Settings {
            logs: Logs {
                filter: self.log.filter.clone(),
                json: self.log.json,
            },
            metrics: t.metrics,
            plan: self.telemetry_plan()?,
            ca: ca.transpose()?,
            resource: self.resource(),
            slow: ms(t.slow_ms),
        })
    }

    /// What is sent where.
    ///
    /// # Errors
    /// When something does not fit.
    pub(super) fn telemetry_plan(&self) -> Result<Plan> {
        Ok(Plan::resolve(&self.wish()?, &variable)?)
    }

    fn wish(&self) -> Result<Wish> {
        let t = &self.telemetry;
        let rate = t.sample_rate.0;
        ensure!(
            (0.0..=1.0).contains(&rate),
            "telemetry.sample_rate must be between 0 (no change gets a trace) and 1 (all of them)"
        );
        ensure!(
            t.interval_ms > 0,
            "telemetry.interval_ms must be at least 1: metrics would be sent without a pause"
        );
        Ok(Wish {
            endpoint: t.endpoint.clone(),
            protocol: Protocol::read(&t.protocol).context("telemetry.protocol")?,
            signals: t.signals.iter().map(|s| signal(s)).collect::<Result<_>>()?,
            interval: Duration::from_millis(t.interval_ms),
            sampling: Sampling {
                rate,
                parents: Parents::Believed(t.client_traces),
            },
        })
    }

    /// What says who sends.
    fn resource(&self) -> Vec<(&'static str, String)> {
        let roles: Vec<_> = self.node.roles.iter().map(|role| role.as_str()).collect();
        vec![
            ("service.name", "adsum".to_owned()),
            ("service.namespace", self.cluster.name.clone()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", self.node_name()),
            ("adsum.roles", roles.join(",")),
            ("cloud.availability_zone", self.node.zone.clone()),
        ]
    }

    /// Its name in the cluster, and in everything that it sends.
    #[must_use]
    pub(crate) fn node_name(&self) -> String {
        if !self.node.name.is_empty() {
            return self.node.name.clone();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match host.trim() {
            "" => "node".to_owned(),
            host => host.to_owned(),
        }
    }
}

fn signal(word: &str) -> Result<Signal> {
    let all = [Signal::Traces, Signal::Metrics, Signal::Logs];
    match all.into_iter().find(|s| Signal::VALUES[s.place()] == word) {
        Some(signal) => Ok(signal),
        None => bail!("telemetry.signals: {word:?} is none of traces, metrics and logs"),
    }
}
