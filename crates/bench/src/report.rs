//! What is printed: a table for people, or one JSON object.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Times in ms: half of them, all but a hundredth, all.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// Times as they come.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, 600_000_000, 3)?))
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.max(1));
    }

    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn spread(&self) -> Spread {
        let ms = |us: u64| us as f64 / 1000.0;
        Spread {
            p50: ms(self.0.value_at_quantile(0.5)),
            p99: ms(self.0.value_at_quantile(0.99)),
            max: ms(self.0.max()),
        }
    }
}

/// Prints a result.
#[allow(clippy::print_stdout, reason = "this is what was asked for")]
pub(crate) fn print(json: bool, result: &impl Serialize) -> Result<()> {
    let result = serde_json::to_value(result)?;
    if json {
        println!("{result}");
        return Ok(());
    }
    let mut rows = Vec::new();
    flatten("", &result, &mut rows);
    let wide = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        println!("  {name:<wide$}  {value}");
    }
    Ok(())
}

fn flatten(name: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            let at = |key: &str| match name {
                "" => key.to_owned(),
                _ => format!("{name}.{key}"),
            };
            for (key, value) in fields {
                flatten(&at(key), value, rows);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                flatten(&format!("{name}.{n}"), item, rows);
            }
        }
        Value::Null => {}
        Value::String(text) => rows.push((name.to_owned(), text.clone())),
        Value::Number(number) => {
            let text = match number.as_f64() {
                Some(real) if number.is_f64() => format!("{real:.3}"),
                _ => number.to_string(),
            };
            rows.push((name.to_owned(), text));
        }
        other => rows.push((name.to_owned(), other.to_string())),
    }
}

/// A bar on standard error, which shows only on a terminal.
pub(crate) fn bar(length: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{msg:<12} {wide_bar} {pos}/{len} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// Prints a line for a program that reads it.
#[allow(clippy::print_stdout, reason = "the other end of a pipe waits for it")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
