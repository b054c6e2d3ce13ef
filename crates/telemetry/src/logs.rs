//! The log: lines on stderr, for people or as JSON, and the same to a collector if one wants it.

use std::io::IsTerminal as _;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use tracing_subscriber::{
    EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::otlp::BadSetting;

/// What sending itself says must not be sent again.
const NOT_SENT: [&str; 6] = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls"];

/// What logs whole frames, and the tokens in them, to those who ask for everything.
const INDISCREET: &str = "tungstenite=info";

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    /// As `tracing` filters are written.
    pub filter: String,
    /// One JSON object per line instead of text.
    pub json: bool,
}

impl Logs {
    pub(crate) fn start(&self, provider: Option<&SdkLoggerProvider>) -> Result<(), BadSetting> {
        let filter = || -> Result<EnvFilter, BadSetting> {
            let bad = |_| BadSetting(format!("log.filter {:?} is no filter", self.filter));
            let filter = EnvFilter::try_new(&self.filter).map_err(bad)?;
            Ok(INDISCREET
                .parse()
                .into_iter()
                .fold(filter, EnvFilter::add_directive))
        };
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        let lines = match self.json {
            true => lines.json().boxed(),
            false => lines.boxed(),
        };
        let sent = match provider {
            Some(provider) => {
                let silent = NOT_SENT
                    .iter()
                    .filter_map(|of| format!("{of}=off").parse().ok());
                let filter = silent.fold(filter()?, EnvFilter::add_directive);
                Some(OpenTelemetryTracingBridge::new(provider).with_filter(filter))
            }
            None => None,
        };
        tracing_subscriber::registry()
            .with(lines.with_filter(filter()?))
            .with(sent)
            .try_init()
            .map_err(|error| BadSetting(error.to_string()))
    }
}
