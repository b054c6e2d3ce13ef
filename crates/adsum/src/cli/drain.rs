//! `drain`: stops a node, and shows how its clients leave it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use http_body_util::BodyExt;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::{Internal, Output, ask::Ask};
use crate::print;

/// Stop a node.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    internal: Internal,
    /// Wait this long first: balancers need a moment to send newcomers elsewhere.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    after_ms: u64,
    #[command(flatten)]
    output: Output,
}

impl Drain {
    /// Returns when the node has stopped.
    ///
    /// # Errors
    /// When nothing answers there, or the node ended before it was done.
    pub(super) async fn run(self) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(self.after_ms)).await;
        let ask = Ask::internal(&self.internal);
        let mut body = ask.stream(Method::POST, "/admin/drain").await?;
        let (bar, mut most, mut buffer) = (bar(), 0, Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the node ended before it was done")?;
            buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let line: Value = serde_json::from_slice(&line).context("no progress")?;
                if self.output.json {
                    print(&line.to_string());
                }
                let left = line["connections"].as_u64().unwrap_or(0);
                most = left.max(most);
                bar.set_length(most.max(1));
                bar.set_position(most.max(1) - left);
                let stage = line["stage"].as_str().unwrap_or_default().to_owned();
                if stage == "done" {
                    bar.finish_and_clear();
                    if !self.output.json {
                        print(&match most {
                            0 => "drained: no clients were there".to_owned(),
                            1 => "drained: 1 client was sent elsewhere".to_owned(),
                            n => format!("drained: {n} clients were sent elsewhere"),
                        });
                    }
                    return Ok(());
                }
                bar.set_message(format!("{stage}, {left} left"));
            }
        }
        bail!("the node ended before it was done; its log says why")
    }
}

/// On stderr, and only if that is a terminal.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30.green} {elapsed_precise} {msg}");
    match style {
        Ok(style) => ProgressBar::new(1).with_style(style),
        Err(_) => ProgressBar::hidden(),
    }
}
