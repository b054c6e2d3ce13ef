//! Plain requests.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(30);

/// A request with some heads: its status, its heads and its body.
pub(crate) async fn request(
    address: SocketAddr,
    what: &str,
    heads: &[(&str, &str)],
    body: &str,
) -> Result<(u16, String, String)> {
    // Version 1.0: an answer is never in chunks.
    let mut head = format!("{what} HTTP/1.0\r\nHost: {address}\r\n");
    for (name, value) in heads {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(LIMIT, exchange).await.context("no answer")??;
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = status.with_context(|| format!("no status in {answer:?}"))?;
    Ok((status, head.to_owned(), body.to_owned()))
}

/// The body of what is there.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let (status, _, body) = request(address, &format!("GET {path}"), &[], "").await?;
    anyhow::ensure!(status == 200, "{path}: {status} {body}");
    Ok(body)
}

/// As it stands in a query.
pub(crate) fn quoted(text: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let spell = |b: u8| match safe(b) {
        true => char::from(b).to_string(),
        false => format!("%{b:02X}"),
    };
    text.bytes().map(spell).collect()
}
