//! `shards`: how the shards stand, as any node knows it.

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::{
    Internal, Output,
    ask::Ask,
    paint::{Paint, printable},
};
use crate::print;

/// How the shards stand.
#[derive(Debug, Args)]
pub(crate) struct Shards {
    /// Count people and sessions, too: reads all of them.
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    internal: Internal,
    #[command(flatten)]
    output: Output,
}

impl Shards {
    /// Prints them.
    ///
    /// # Errors
    /// When nothing answers there.
    pub(super) async fn run(self) -> Result<()> {
        let path = if self.count {
            "/admin/shards?count=true"
        } else {
            "/admin/shards"
        };
        let shards = Ask::internal(&self.internal).get(path).await?;
        if self.output.json {
            print(&shards.to_string());
            return Ok(());
        }
        print(&table(&shards, Paint::stdout())?);
        Ok(())
    }
}

const HEADS: [&str; 8] = [
    "shard",
    "epoch",
    "seq",
    "lag",
    "people",
    "sessions",
    "reaper",
    "dispatchers",
];

fn table(shards: &Value, paint: Paint) -> Result<String> {
    let shards = shards.as_object().context("the node knows no shards")?;
    let mut rows: Vec<(u64, [String; 8], &Value)> = Vec::new();
    for (number, line) in shards {
        let number: u64 = number.parse().context("a shard without a number")?;
        rows.push((number, cells(number, line), line));
    }
    rows.sort_by_key(|(number, ..)| *number);
    let width = |column: usize| {
        let cells = rows
            .iter()
            .map(|(_, cells, _)| cells[column].chars().count());
        cells.max().unwrap_or(0).max(HEADS[column].len())
    };
    let widths: Vec<_> = (0..HEADS.len()).map(width).collect();
    let aligned = |cells: &[String; 8]| {
        let cells = cells.iter().zip(&widths).enumerate();
        let padded = cells.map(|(n, (cell, width))| match n {
            0..6 => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![paint.bold(&aligned(&HEADS.map(str::to_owned)))];
    for (_, cells, line) in &rows {
        let text = aligned(cells);
        lines.push(match (&line["error"], line["log"]["settling"].as_bool()) {
            (Value::String(error), _) => format!("{}  {}", paint.red(&text), printable(error)),
            (_, Some(true)) => format!("{}  {}", text, paint.yellow("settling")),
            _ if line["owner"].is_null() => paint.yellow(&text),
            _ => text,
        });
    }
    Ok(lines.join("\n"))
}

fn cells(number: u64, line: &Value) -> [String; 8] {
    let count = |value: &Value| {
        value
            .as_u64()
            .map_or_else(|| "-".to_owned(), |n| n.to_string())
    };
    let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), printable);
    let people = match &line["count"]["people"] {
        Value::Null => &line["view"]["people"],
        counted => counted,
    };
    let dispatchers = line["dispatchers"].as_array();
    let names: Vec<_> = dispatchers.into_iter().flatten().map(text).collect();
    [
        number.to_string(),
        count(&line["log"]["epoch"]),
        count(&line["log"]["seq"]),
        count(&line["lag"]),
        count(people),
        count(&line["count"]["sessions"]),
        text(&line["owner"]),
        names.join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_in_order_and_troubles_are_seen() {
        let shards = serde_json::json!({
            "10": {"dispatchers": ["d1"], "owner": "r1", "log": {"epoch": 1, "seq": 7, "settling": true}},
            "9": {"dispatchers": [], "error": "away"},
        });
        let text = table(&shards, Paint::stdout()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].trim_start().starts_with('9') && lines[1].ends_with("away"),
            "{text}"
        );
        assert!(
            lines[2].contains("r1") && lines[2].ends_with("settling"),
            "{text}"
        );
    }
}
