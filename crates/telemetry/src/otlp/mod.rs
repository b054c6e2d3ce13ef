//! OpenTelemetry over OTLP: traces and logs through the SDK's batches, metrics from our own
//! instruments. All queues have bounds, and a collector that is away costs nothing but what could
//! not be sent.

mod guard;
mod message;
mod push;
mod settings;
mod wire;

use std::{collections::HashMap, sync::Arc};

use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    Compression, LogExporter, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::{
    Resource,
    logs::SdkLoggerProvider,
    trace::{BatchSpanProcessor, SpanProcessor as _},
};
use tokio::runtime::Handle;

pub(crate) use push::Push;
pub use settings::{BadSetting, Plan, Protocol, Target, Wish};

use crate::metrics::Signal;
use guard::Guard;
use push::metadata;
use wire::{Http, Trusted, channel};

/// Who sends: the resource of all that is sent.
#[must_use]
pub(crate) fn resource(attributes: &[(&'static str, String)]) -> Resource {
    let given = attributes.iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(key, value)| KeyValue::new(*key, value.clone()));
    // `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` win.
    let detectors: [Box<dyn opentelemetry_sdk::resource::ResourceDetector>; 1] = [Box::new(
        opentelemetry_sdk::resource::EnvResourceDetector::new(),
    )];
    let mut builder = Resource::builder_empty()
        .with_attributes(given)
        .with_detectors(&detectors);
    if let Ok(name) = std::env::var("OTEL_SERVICE_NAME")
        && !name.is_empty()
    {
        builder = builder.with_service_name(name);
    }
    builder.build()
}

/// What all exporters share.
pub(crate) struct Exporters {
    pub(crate) trusted: Trusted,
    pub(crate) runtime: Handle,
    pub(crate) resource: Resource,
}

impl Exporters {
    pub(crate) fn new(ca: Option<Vec<u8>>, runtime: Handle, resource: Resource) -> Self {
        Self {
            trusted: ca.map(Arc::from),
            runtime,
            resource,
        }
    }

    /// An exporter over gRPC, whatever it exports.
    fn grpc<B>(&self, builder: B, target: &Target) -> Result<B, BadSetting>
    where
        B: WithTonicConfig + WithExportConfig,
    {
        let builder = builder
            .with_channel(channel(target, &self.trusted)?)
            .with_metadata(metadata(target)?)
            .with_timeout(target.timeout);
        Ok(match target.gzip {
            true => WithTonicConfig::with_compression(builder, Compression::Gzip),
            false => builder,
        })
    }

    /// The same over HTTP.
    fn http<B>(&self, builder: B, target: &Target) -> Result<B, BadSetting>
    where
        B: WithHttpConfig + WithExportConfig,
    {
        let http = Http::new(target, &self.trusted, self.runtime.clone())?;
        let builder = builder
            .with_http_client(http)
            .with_headers(headers(target))
            .with_endpoint(&target.url)
            .with_timeout(target.timeout);
        Ok(match target.gzip {
            true => WithHttpConfig::with_compression(builder, Compression::Gzip),
            false => builder,
        })
    }

    pub(crate) fn spans(&self, target: &Target) -> Result<BatchSpanProcessor, BadSetting> {
        let bad = |error: opentelemetry_otlp::ExporterBuildError| BadSetting(error.to_string());
        let exporter = match target.protocol {
            Protocol::Grpc => self
                .grpc(SpanExporter::builder().with_tonic(), target)?
                .build(),
            Protocol::Http => self
                .http(SpanExporter::builder().with_http(), target)?
                .build(),
        };
        let guard = Guard::new(exporter.map_err(bad)?, self.runtime.clone(), Signal::Traces);
        let mut processor = BatchSpanProcessor::builder(guard).build();
        processor.set_resource(&self.resource);
        Ok(processor)
    }

    pub(crate) fn logs(&self, target: &Target) -> Result<SdkLoggerProvider, BadSetting> {
        let bad = |error: opentelemetry_otlp::ExporterBuildError| BadSetting(error.to_string());
        let exporter = match target.protocol {
            Protocol::Grpc => self
                .grpc(LogExporter::builder().with_tonic(), target)?
                .build(),
            Protocol::Http => self
                .http(LogExporter::builder().with_http(), target)?
                .build(),
        };
        let guard = Guard::new(exporter.map_err(bad)?, self.runtime.clone(), Signal::Logs);
        Ok(SdkLoggerProvider::builder()
            .with_resource(self.resource.clone())
            .with_batch_exporter(guard)
            .build())
    }

    pub(crate) fn metrics(&self, target: Target) -> Result<Push, BadSetting> {
        Push::new(target, &self.trusted, &self.resource, &self.runtime)
    }
}

fn headers(target: &Target) -> HashMap<String, String> {
    target.headers.iter().cloned().collect()
}
