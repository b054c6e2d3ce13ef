//! Sends the numbers to a collector, every so often.

use std::{io::Write as _, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::{Request, header};
use opentelemetry_http::HttpClient as _;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient,
};
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{MissedTickBehavior, interval, timeout},
};
use tonic::{
    codec::CompressionEncoding,
    metadata::{MetadataKey, MetadataMap},
    transport::Channel,
};

use super::{
    guard::Complaint,
    message::Sender,
    settings::{BadSetting, Protocol, Target},
    wire::{Http, Trusted, channel},
};
use crate::{
    clock,
    metrics::{Signal, measured},
};

enum Way {
    Grpc(MetricsServiceClient<Channel>),
    Http(Http),
}

/// What sends them.
pub(crate) struct Push {
    target: Target,
    metadata: MetadataMap,
    way: Way,
    sender: Sender,
    complaint: Complaint,
}

impl Push {
    pub(super) fn new(
        target: Target,
        trusted: &Trusted,
        resource: &Resource,
        runtime: &Handle,
    ) -> Result<Self, BadSetting> {
        let way = match target.protocol {
            Protocol::Http => Way::Http(Http::new(&target, trusted, runtime.clone())?),
            Protocol::Grpc => {
                let client = MetricsServiceClient::new(channel(&target, trusted)?);
                Way::Grpc(match target.gzip {
                    true => client.send_compressed(CompressionEncoding::Gzip),
                    false => client,
                })
            }
        };
        Ok(Self {
            metadata: metadata(&target)?,
            way,
            sender: Sender::new(resource, clock::wall_us()),
            complaint: Complaint::new(Signal::Metrics),
            target,
        })
    }

    /// Until told to stop; then once more.
    pub(crate) async fn run(mut self, every: Duration, mut stop: oneshot::Receiver<()>) {
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        loop {
            let last = tokio::select! {
                _ = tick.tick() => false,
                _ = &mut stop => true,
            };
            let request = self.sender.request(measured(), clock::wall_us());
            let sent = timeout(self.target.timeout, self.send(request)).await;
            let sent = sent.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            self.complaint.note(&sent);
            if last {
                return;
            }
        }
    }

    async fn send(&mut self, message: ExportMetricsServiceRequest) -> Result<(), String> {
        match &mut self.way {
            Way::Grpc(client) => {
                let mut request = tonic::Request::new(message);
                *request.metadata_mut() = self.metadata.clone();
                let answer = client.export(request).await;
                answer.map(drop).map_err(|status| status.to_string())
            }
            Way::Http(http) => {
                let request = post(&self.target, &message).map_err(|e| e.to_string())?;
                let answer = http.send_bytes(request).await.map_err(|e| e.to_string())?;
                match answer.status() {
                    status if status.is_success() => Ok(()),
                    status => Err(format!("it answers {status}")),
                }
            }
        }
    }
}

fn post(
    target: &Target,
    message: &ExportMetricsServiceRequest,
) -> Result<Request<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let mut request = Request::post(&target.url);
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    let mut body = message.encode_to_vec();
    if target.gzip {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&body)?;
        body = gzip.finish()?;
        request = request.header(header::CONTENT_ENCODING, "gzip");
    }
    let request = request.header(header::CONTENT_TYPE, "application/x-protobuf");
    Ok(request.body(body.into())?)
}

/// The headers as gRPC takes them.
pub(super) fn metadata(target: &Target) -> Result<MetadataMap, BadSetting> {
    let mut map = MetadataMap::new();
    for (name, value) in &target.headers {
        let bad = || BadSetting(format!("the OTLP header {name:?} can't be sent"));
        let key = MetadataKey::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        map.insert(key, value.parse().map_err(|_| bad())?);
    }
    Ok(map)
}
