//! Where to send what: the configuration, and over it the standard `OTEL_*` variables. Those of
//! batches and limits (`OTEL_BSP_*`, `OTEL_BLRP_*`) the SDK reads by itself.

use std::{fmt, time::Duration};

use crate::{
    metrics::{Label, Signal},
    trace::{Parents, Sampling},
};

/// How OTLP travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, usually on port 4317.
    Grpc,
    /// Protobuf over HTTP, usually on port 4318.
    Http,
}

impl Protocol {
    /// As the variables and the configuration spell it.
    ///
    /// # Errors
    /// When it is none that is spoken here.
    pub fn read(text: &str) -> Result<Self, BadSetting> {
        match text {
            "grpc" => Ok(Self::Grpc),
            "http/protobuf" => Ok(Self::Http),
            other => Err(BadSetting(format!(
                "the OTLP protocol {other:?} is not spoken here: take grpc or http/protobuf"
            ))),
        }
    }
}

/// A setting that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSetting(pub(crate) String);

/// A collector, for one signal.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// With HTTP the whole URL, with gRPC the host's.
    pub url: String,
    /// How.
    pub protocol: Protocol,
    /// Sent along; they may be secret.
    pub headers: Vec<(String, String)>,
    /// What a call may take.
    pub timeout: Duration,
    /// Compressed with gzip.
    pub gzip: bool,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Target")
            .field("url", &self.url)
            .field("protocol", &self.protocol)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// What is configured, before the variables.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// The collector; empty for none.
    pub endpoint: String,
    /// How to reach it.
    pub protocol: Protocol,
    /// What to send.
    pub signals: Vec<Signal>,
    /// Between two batches of metrics.
    pub interval: Duration,
    /// Which changes get a trace.
    pub sampling: Sampling,
}

/// What is sent where.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Spans.
    pub traces: Option<Target>,
    /// Numbers.
    pub metrics: Option<Target>,
    /// Lines of the log.
    pub logs: Option<Target>,
    /// Between two batches of metrics.
    pub interval: Duration,
    /// Which changes get a trace.
    pub sampling: Sampling,
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Plan {
    /// Lays the variables over what is configured.
    ///
    /// # Errors
    /// When one of them means nothing.
    pub fn resolve(wish: &Wish, variable: Lookup<'_>) -> Result<Self, BadSetting> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let off = set("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let target = |signal| match off {
            true => Ok(None),
            false => target(signal, wish, &set),
        };
        let interval = match set("OTEL_METRIC_EXPORT_INTERVAL") {
            Some(text) => ms("OTEL_METRIC_EXPORT_INTERVAL", &text)?,
            None => wish.interval,
        };
        Ok(Self {
            traces: target(Signal::Traces)?,
            metrics: target(Signal::Metrics)?,
            logs: target(Signal::Logs)?,
            interval: interval.max(Duration::from_millis(100)),
            sampling: sampling(wish.sampling, &set)?,
        })
    }
}

fn target(signal: Signal, wish: &Wish, set: Lookup<'_>) -> Result<Option<Target>, BadSetting> {
    let word = Signal::VALUES[signal.place()];
    let upper = word.to_uppercase();
    let wanted = match set(&format!("OTEL_{upper}_EXPORTER")).as_deref() {
        Some("otlp") => true,
        Some("none") => false,
        Some(other) => {
            return Err(BadSetting(format!(
                "OTEL_{upper}_EXPORTER is {other:?}: only otlp and none are known here"
            )));
        }
        None => wish.signals.contains(&signal),
    };
    let own = |key: &str| set(&format!("OTEL_EXPORTER_OTLP_{upper}_{key}"));
    let either = |key: &str| own(key).or_else(|| set(&format!("OTEL_EXPORTER_OTLP_{key}")));
    let protocol = match either("PROTOCOL") {
        Some(text) => Protocol::read(&text)?,
        None => wish.protocol,
    };
    let base = set("OTEL_EXPORTER_OTLP_ENDPOINT")
        .or_else(|| (!wish.endpoint.is_empty()).then(|| wish.endpoint.clone()));
    let url = match (own("ENDPOINT"), base, protocol) {
        (Some(url), _, _) | (None, Some(url), Protocol::Grpc) => url,
        (None, Some(base), Protocol::Http) => {
            format!("{}/v1/{word}", base.trim_end_matches('/'))
        }
        (None, None, _) => return Ok(None),
    };
    if !wanted {
        return Ok(None);
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(BadSetting(format!(
            "the OTLP endpoint {url:?} must begin with http:// or https://"
        )));
    }
    Ok(Some(Target {
        url,
        protocol,
        headers: headers(&either("HEADERS").unwrap_or_default()),
        timeout: match either("TIMEOUT") {
            Some(text) => ms("OTEL_EXPORTER_OTLP_TIMEOUT", &text)?,
            None => Duration::from_secs(10),
        },
        gzip: match either("COMPRESSION").as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                let text = format!("the OTLP compression {other:?} is not known here: take gzip");
                return Err(BadSetting(text));
            }
        },
    }))
}

fn ms(name: &str, text: &str) -> Result<Duration, BadSetting> {
    let bad = |_| BadSetting(format!("{name} must be a number of ms, not {text:?}"));
    text.trim().parse().map(Duration::from_millis).map_err(bad)
}

/// `key=value,key=value`, values percent-encoded.
fn headers(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.trim().to_ascii_lowercase(), decoded(value.trim())))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let pair = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let code = pair.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn sampling(wished: Sampling, set: Lookup<'_>) -> Result<Sampling, BadSetting> {
    let Some(name) = set("OTEL_TRACES_SAMPLER") else {
        return Ok(wished);
    };
    let ratio = || match set("OTEL_TRACES_SAMPLER_ARG") {
        None => Ok(1.0),
        Some(text) => match text.trim().parse::<f64>() {
            Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
            _ => Err(BadSetting(format!(
                "OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, not {text:?}"
            ))),
        },
    };
    let (rate, believe) = match name.as_str() {
        "always_on" => (1.0, false),
        "always_off" => (0.0, false),
        "traceidratio" => (ratio()?, false),
        "parentbased_always_on" => (1.0, true),
        "parentbased_always_off" => (0.0, true),
        "parentbased_traceidratio" => (ratio()?, true),
        other => {
            return Err(BadSetting(format!(
                "OTEL_TRACES_SAMPLER is {other:?}, which is not known here"
            )));
        }
    };
    let parents = match believe {
        true => wished.parents,
        false => Parents::Ignored,
    };
    Ok(Sampling { rate, parents })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            endpoint: String::new(),
            protocol: Protocol::Http,
            signals: vec![Signal::Traces, Signal::Metrics],
            interval: Duration::from_secs(60),
            sampling: Sampling {
                rate: 0.01,
                parents: Parents::Believed(9),
            },
        }
    }

    fn plan(wish: &Wish, variables: &[(&str, &str)]) -> Result<Plan, BadSetting> {
        let found = |name: &str| {
            let pair = variables.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        };
        Plan::resolve(wish, &found)
    }

    #[test]
    fn nothing_is_sent_by_default() {
        let plan = plan(&wish(), &[]).unwrap();
        assert_eq!((plan.traces, plan.metrics, plan.logs), (None, None, None));
    }

    #[test]
    fn variables_go_over_the_configuration() {
        let configured = Wish {
            endpoint: "http://configured:4318/".into(),
            ..wish()
        };
        let found = plan(&configured, &[]).unwrap();
        let url = |target: &Option<Target>| target.as_ref().map(|t| t.url.clone());
        assert_eq!(
            url(&found.traces).as_deref(),
            Some("http://configured:4318/v1/traces")
        );
        assert_eq!(found.logs, None);
        let found = plan(
            &configured,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://m/own"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%20b, x=1"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
                ("OTEL_LOGS_EXPORTER", "otlp"),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
            ],
        );
        let found = found.unwrap();
        let traces = found.traces.clone().unwrap();
        assert_eq!(
            (traces.url.as_str(), traces.protocol),
            ("http://c:4317", Protocol::Grpc)
        );
        assert_eq!(traces.headers[0], ("api-key".into(), "a b".into()));
        assert_eq!(traces.timeout, Duration::from_millis(500));
        assert!(traces.gzip && !format!("{traces:?}").contains("a b"));
        assert_eq!(url(&found.metrics).as_deref(), Some("https://m/own"));
        assert_eq!(url(&found.logs).as_deref(), Some("http://c:4317"));
        assert_eq!(found.interval, Duration::from_secs(1));
        let believed = Sampling {
            rate: 0.5,
            parents: Parents::Believed(9),
        };
        assert_eq!(found.sampling, believed);
    }

    #[test]
    fn it_can_be_switched_off_and_says_what_it_does_not_know() {
        let there = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let off = plan(&wish(), &[there, ("OTEL_SDK_DISABLED", "true")]).unwrap();
        assert_eq!((off.traces, off.metrics), (None, None));
        let none = plan(&wish(), &[there, ("OTEL_TRACES_EXPORTER", "none")]).unwrap();
        assert!(none.traces.is_none() && none.metrics.is_some());
        for (name, value) in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ] {
            assert!(plan(&wish(), &[(name, value), there]).is_err(), "{name}");
        }
        let arg = [
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "7"),
        ];
        assert!(plan(&wish(), &arg).is_err());
    }
}
