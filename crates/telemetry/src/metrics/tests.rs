//! Tests of the instruments, the formats and the page.

use super::*;
use crate::trace::TraceId;

fn sample() -> Vec<Measured> {
    let times = Histogram::new(instrument::TIMES);
    times.record(900);
    times.record(1000);
    times.record_in(40_000_000, Some(TraceId::from(0xab_u128)));
    let about = |name, unit, kind| About {
        name,
        unit,
        help: "Help \"quoted\".",
        kind,
        labels: &[],
    };
    use instrument::Instrument as _;
    vec![
        Measured {
            about: about("adsum.took", "s", Kind::Histogram),
            points: times.points(),
        },
        Measured {
            about: about("adsum.done", "{x}", Kind::Counter),
            points: vec![Point::of(Value::Counter(3)).with("error.type", "a\"b\\\n")],
        },
        Measured {
            about: about("adsum.here", "By", Kind::Gauge),
            points: vec![Point::gauge(0.5)],
        },
        Measured {
            about: about("adsum.empty", "", Kind::Gauge),
            points: Vec::new(),
        },
    ]
}

#[test]
fn the_text_format_is_as_prometheus_reads_it() {
    let text = Format::Text.write(&sample()).unwrap();
    for line in [
        "# HELP adsum_took_seconds Help \"quoted\".",
        "# TYPE adsum_took_seconds histogram",
        "adsum_took_seconds_bucket{le=\"0.001\"} 2",
        "adsum_took_seconds_bucket{le=\"+Inf\"} 3",
        "adsum_took_seconds_sum 40.0019",
        "adsum_took_seconds_count 3",
        "# TYPE adsum_done_total counter",
        "adsum_done_total{error_type=\"a\\\"b\\\\\\n\"} 3",
        "adsum_here_bytes 0.5",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("EOF") && !text.contains("trace_id") && !text.contains("empty"));
}

#[test]
fn open_metrics_has_exemplars_and_an_end() {
    let text = Format::OpenMetrics.write(&sample()).unwrap();
    assert!(text.contains("# TYPE adsum_done counter\nadsum_done_total{"));
    assert!(text.ends_with("# EOF\n"));
    let inf = text.lines().find(|l| l.contains("+Inf")).unwrap();
    let trace = "3 # {trace_id=\"000000000000000000000000000000ab\"} 40.0 ";
    assert!(inf.contains(trace), "{inf}");
    assert_eq!(text.matches("trace_id").count(), 1);
}

#[test]
fn who_asks_for_open_metrics_gets_it() {
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
    for accept in [
        None,
        Some("*/*"),
        Some("text/plain"),
        Some("application/json"),
    ] {
        assert_eq!(Format::accepted(accept), Format::Text);
    }
    let less = "text/plain, application/openmetrics-text;q=0.1";
    assert_eq!(Format::accepted(Some(less)), Format::Text);
}

#[test]
fn a_bound_belongs_to_its_bucket() {
    let sizes = Histogram::new(instrument::SIZES);
    [0, 1, 2, 3, 20_000]
        .into_iter()
        .for_each(|n| sizes.record(n));
    use instrument::Instrument as _;
    let Value::Histogram(buckets) = &sizes.points()[0].value else {
        panic!("a histogram");
    };
    let counts: Vec<_> = buckets.buckets.iter().map(|b| b.count).collect();
    assert_eq!(counts[..4], [2, 1, 1, 0]);
    assert_eq!((counts.last(), buckets.count()), (Some(&1), 5));
}

#[test]
fn names_are_unique_and_every_label_is_named() {
    let all = measured();
    let mut names: Vec<_> = all.iter().map(|m| m.about.exposed()).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for m in &all {
        for point in &m.points {
            let labels: Vec<_> = point.labels.iter().map(|(name, _)| *name).collect();
            assert_eq!(labels, m.about.labels, "{}", m.about.name);
        }
    }
}

#[test]
fn the_page_is_up_to_date() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("ADSUM_BLESS").is_some() {
        std::fs::write(&file, page()).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(
        written == page(),
        "docs/metrics.md is behind: ADSUM_BLESS=1 cargo test -p adsum-telemetry page"
    );
}
