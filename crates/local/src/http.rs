//! HTTP 1.0, which ends an answer by closing the connection: all that the harness needs of HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than an answer takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(2);

/// One request with a JSON body; answers the status and the body.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(u16, String)> {
    let request = format!(
        "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = timeout(LIMIT, exchange(address, &request)).await;
    let answer = answer
        .with_context(|| format!("{address} is silent"))?
        .with_context(|| format!("ask {address}"))?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer without a body")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((
        status.with_context(|| format!("no status in {head}"))?,
        body.to_owned(),
    ))
}

async fn exchange(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
