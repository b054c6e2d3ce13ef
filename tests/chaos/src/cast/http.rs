//! HTTP 1.0 on a connection of its own, which ends an answer by closing it: all that is needed
//! to beat, to change settings and to read events.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    time::timeout,
};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server answered with this status.
    Said(u16),
    /// Nobody was there to take it.
    Refused,
    /// It was sent and not answered: it may be done, now or later.
    Unsure,
}

impl Answer {
    pub(crate) fn is_ok(self) -> bool {
        matches!(self, Self::Said(200..300))
    }
}

/// One request, with an answer within `limit`.
pub(crate) async fn request(
    address: SocketAddr,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
    limit: Duration,
) -> Answer {
    let Ok(Ok(mut stream)) = timeout(limit, TcpStream::connect(address)).await else {
        return Answer::Refused;
    };
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = format!(
        "{method} {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    match timeout(limit, exchange).await {
        Ok(Ok(answer)) => status(&answer).map_or(Answer::Unsure, Answer::Said),
        _ => Answer::Unsure,
    }
}

fn status(answer: &[u8]) -> Option<u16> {
    let head = std::str::from_utf8(answer.get(..12)?).ok()?;
    head.split(' ').nth(1)?.parse().ok()
}

/// The events of a topic, as they come.
pub(crate) struct Events {
    lines: Lines<BufReader<TcpStream>>,
}

impl Events {
    /// Asks for the events of a topic.
    pub(crate) async fn open(address: SocketAddr, token: &str, topic: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "GET /v1/events?topic={topic}&mode=members HTTP/1.0\r\n\
             Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut lines = BufReader::new(stream).lines();
        let head = lines.next_line().await?.context("no answer")?;
        if !head.contains(" 200 ") {
            bail!("{head}");
        }
        Ok(Self { lines })
    }

    /// The next frame; `None` when the server has ended it.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>> {
        while let Some(line) = self.lines.next_line().await? {
            if let Some(data) = line.strip_prefix("data:") {
                return Ok(Some(serde_json::from_str(data.trim())?));
            }
        }
        Ok(None)
    }
}
