//! Numbers as OTLP says them, exemplars included.

use std::borrow::Cow;

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
        NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric::Data,
        number_data_point,
    },
    resource::v1::Resource,
};
use opentelemetry_sdk::Resource as SdkResource;

use crate::metrics::{Buckets, Kind, Measured, Point, Value};

/// What is the same in every message.
pub(super) struct Sender {
    resource: Resource,
    started_ns: u64,
}

impl Sender {
    pub(super) fn new(resource: &SdkResource, started_us: u64) -> Self {
        let attributes = resource.iter();
        let attributes = attributes.map(|(key, value)| pair(key.as_str(), value.to_string()));
        Self {
            resource: Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            },
            started_ns: started_us.saturating_mul(1000),
        }
    }

    pub(super) fn request(
        &self,
        measured: Vec<Measured>,
        now_us: u64,
    ) -> ExportMetricsServiceRequest {
        let now_ns = now_us.saturating_mul(1000);
        let shown = measured.into_iter().filter(|m| !m.points.is_empty());
        let scope = ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: "adsum".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            }),
            metrics: shown.map(|m| self.metric(&m, now_ns)).collect(),
            ..ScopeMetrics::default()
        };
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![scope],
                ..ResourceMetrics::default()
            }],
        }
    }

    fn metric(&self, measured: &Measured, now_ns: u64) -> Metric {
        let about = &measured.about;
        let numbers = || {
            let points = measured.points.iter();
            points.map(|p| self.number(p, now_ns)).collect()
        };
        let temporality = AggregationTemporality::Cumulative.into();
        let data = match about.kind {
            Kind::Counter => Data::Sum(Sum {
                data_points: numbers(),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            Kind::Gauge => Data::Gauge(Gauge {
                data_points: numbers(),
            }),
            Kind::Histogram => {
                let points = measured.points.iter();
                let points = points.filter_map(|p| self.distribution(p, now_ns));
                Data::Histogram(Histogram {
                    data_points: points.collect(),
                    aggregation_temporality: temporality,
                })
            }
        };
        Metric {
            name: about.name.to_owned(),
            description: about.help.to_owned(),
            unit: about.unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn number(&self, point: &Point, now_ns: u64) -> NumberDataPoint {
        let value = match &point.value {
            Value::Counter(n) => {
                number_data_point::Value::AsInt(i64::try_from(*n).unwrap_or(i64::MAX))
            }
            Value::Sum(n) | Value::Gauge(n) => number_data_point::Value::AsDouble(*n),
            Value::Histogram(buckets) => number_data_point::Value::AsDouble(buckets.sum),
        };
        NumberDataPoint {
            attributes: labels(&point.labels),
            start_time_unix_nano: self.started_ns,
            time_unix_nano: now_ns,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    fn distribution(&self, point: &Point, now_ns: u64) -> Option<HistogramDataPoint> {
        let Value::Histogram(buckets) = &point.value else {
            return None;
        };
        let bounds = buckets.buckets.iter().map(|b| b.up_to);
        Some(HistogramDataPoint {
            attributes: labels(&point.labels),
            start_time_unix_nano: self.started_ns,
            time_unix_nano: now_ns,
            count: buckets.count(),
            sum: Some(buckets.sum),
            bucket_counts: buckets.buckets.iter().map(|b| b.count).collect(),
            explicit_bounds: bounds.filter(|b| b.is_finite()).collect(),
            exemplars: exemplars(buckets),
            ..HistogramDataPoint::default()
        })
    }
}

fn exemplars(buckets: &Buckets) -> Vec<Exemplar> {
    let found = buckets.buckets.iter().filter_map(|b| b.exemplar.as_ref());
    let found = found.map(|e| Exemplar {
        time_unix_nano: e.at_us.saturating_mul(1000),
        trace_id: e.trace.to_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(e.value)),
        ..Exemplar::default()
    });
    found.collect()
}

fn labels(labels: &[(&'static str, Cow<'static, str>)]) -> Vec<KeyValue> {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| pair(name, value.to_string()))
        .collect()
}

fn pair(key: &str, value: String) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        }),
        ..KeyValue::default()
    }
}
