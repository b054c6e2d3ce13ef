//! The text format of Prometheus, and OpenMetrics, which is the same with exemplars, an end, and
//! counters named without `_total` in their heads. Written here because no library writes
//! exemplars of numbers that it does not keep itself; `promtool` and Prometheus check it in tests.

use std::fmt::{self, Write};

use super::{Bucket, Format, Kind, Measured, Point, Value};

pub(super) fn write(format: Format, measured: &[Measured]) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(64 * 1024);
    for measured in measured.iter().filter(|m| !m.points.is_empty()) {
        let about = &measured.about;
        let head = match format {
            Format::Text => about.exposed(),
            Format::OpenMetrics => about.base(),
        };
        write!(out, "# HELP {head} ")?;
        escape(&mut out, about.help, format == Format::OpenMetrics)?;
        writeln!(out, "\n# TYPE {head} {}", about.kind.word())?;
        let name = about.exposed();
        for point in &measured.points {
            write_point(&mut out, format, &name, point, about.kind)?;
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    Ok(out)
}

fn write_point(
    out: &mut String,
    format: Format,
    name: &str,
    point: &Point,
    kind: Kind,
) -> fmt::Result {
    debug_assert_eq!(
        kind == Kind::Histogram,
        matches!(point.value, Value::Histogram(_))
    );
    match &point.value {
        Value::Counter(count) => {
            head(out, name, point, None)?;
            writeln!(out, "{count}")
        }
        Value::Sum(value) | Value::Gauge(value) => {
            head(out, name, point, None)?;
            number(out, *value)?;
            writeln!(out)
        }
        Value::Histogram(buckets) => {
            let mut below = 0;
            for bucket in &buckets.buckets {
                below += bucket.count;
                head(out, &format!("{name}_bucket"), point, Some(bucket.up_to))?;
                write!(out, "{below}")?;
                if format == Format::OpenMetrics {
                    exemplar(out, bucket)?;
                }
                writeln!(out)?;
            }
            head(out, &format!("{name}_sum"), point, None)?;
            number(out, buckets.sum)?;
            writeln!(out)?;
            head(out, &format!("{name}_count"), point, None)?;
            writeln!(out, "{below}")
        }
    }
}

/// The name and the labels, up to the value.
fn head(out: &mut String, name: &str, point: &Point, up_to: Option<f64>) -> fmt::Result {
    out.push_str(name);
    let mut before = '{';
    for (label, value) in &point.labels {
        write!(out, "{before}{}=\"", label.replace('.', "_"))?;
        escape(out, value, true)?;
        out.push('"');
        before = ',';
    }
    if let Some(up_to) = up_to {
        write!(out, "{before}le=\"")?;
        number(out, up_to)?;
        out.push('"');
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
    out.push(' ');
    Ok(())
}

fn exemplar(out: &mut String, bucket: &Bucket) -> fmt::Result {
    let Some(exemplar) = &bucket.exemplar else {
        return Ok(());
    };
    write!(out, " # {{trace_id=\"{}\"}} ", exemplar.trace)?;
    number(out, exemplar.value)?;
    let (s, us) = (exemplar.at_us / 1_000_000, exemplar.at_us % 1_000_000);
    write!(out, " {s}.{us:06}")
}

fn number(out: &mut String, value: f64) -> fmt::Result {
    if value == f64::INFINITY {
        out.push_str("+Inf");
        return Ok(());
    }
    // As `le` it must read like a float everywhere, or a bound would be another series.
    write!(out, "{value:?}")
}

fn escape(out: &mut String, text: &str, quotes: bool) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.write_char(c)?,
        }
    }
    Ok(())
}
