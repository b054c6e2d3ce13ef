//! Server-Sent Events: the frames of `/v1/events`, one after the other.

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// More than any frame has.
const LINE_MAX: usize = 64 << 20;

/// A stream of events.
pub(in crate::cli) struct Events {
    body: Incoming,
    lines: Lines,
}

impl Events {
    pub(in crate::cli) fn new(body: Incoming) -> Self {
        Self {
            body,
            lines: Lines::default(),
        }
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is no event.
    pub(in crate::cli) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(data) = self.lines.event() {
                return serde_json::from_str(&data).map(Some).context("no frame");
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.context("the connection broke")?;
            if let Some(data) = frame.data_ref() {
                self.lines.feed(data)?;
            }
        }
    }
}

/// What has come and is no whole event yet.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    /// What was looked through for the end of a line.
    searched: usize,
    data: String,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        ensure!(
            self.buffer.len() + bytes.len() <= LINE_MAX,
            "an event without an end"
        );
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The data of the next whole event. Its name is in the data, too; comments only keep the
    /// connection alive.
    fn event(&mut self) -> Option<String> {
        while let Some(end) = self.buffer[self.searched..]
            .iter()
            .position(|b| *b == b'\n')
        {
            let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
            self.searched = 0;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                let data = std::mem::take(&mut self.data);
                if !data.is_empty() {
                    return Some(data);
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        self.searched = self.buffer.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_any_pieces() {
        let text = ":\n\nevent: a\ndata: {\"x\":\ndata: 1}\n\nevent: b\r\ndata:2\r\n\r\n";
        for size in 1..text.len() {
            let (mut lines, mut events) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.feed(piece).unwrap();
                while let Some(event) = lines.event() {
                    events.push(event);
                }
            }
            assert_eq!(events, ["{\"x\":\n1}", "2"], "pieces of {size}");
        }
    }
}
