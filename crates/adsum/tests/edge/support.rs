//! Nodes and requests for these tests.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use adsum_tests::{Node, NodeOptions, TestDir};
use anyhow::{Context, Result};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn options() -> NodeOptions {
    NodeOptions::fast(
        env!("CARGO_BIN_EXE_adsum"),
        "one",
        "gateway,dispatcher,reaper",
    )
}

/// A whole service in one process.
pub(crate) async fn node(options: &NodeOptions) -> Result<(Node, TestDir)> {
    let folder = TestDir::new("edge")?;
    let node = Node::start(folder.path(), options).await?;
    Ok((node, folder))
}

/// All that a node has logged.
pub(crate) fn log(folder: &TestDir) -> String {
    std::fs::read_to_string(folder.path().join("one.log")).unwrap_or_default()
}

/// A request over HTTP/1.1: its status and its body.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> Result<(u16, String)> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(LIMIT, exchange).await.context("no answer")??;
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((
        status.with_context(|| format!("no status in {answer:?}"))?,
        body.to_owned(),
    ))
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    request(address, "GET", path, "dev:demo:ann", "").await
}

/// Waits until the other side has closed.
pub(crate) async fn closed(stream: &mut TcpStream) -> Result<()> {
    let mut rest = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut rest)).await;
    // An end and a reset are both a close.
    let _ = read.context("still open")?;
    Ok(())
}

/// The binary, to be given a command.
pub(crate) fn adsum(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adsum"));
    command.args(args).stdin(Stdio::null());
    for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("ADSUM_")) {
        command.env_remove(key);
    }
    command
}

/// The command against a node, and what it said.
pub(crate) async fn ask(node: &Node, args: &[&str]) -> Result<Output> {
    let mut command = adsum(args);
    command
        .env("ADSUM_SERVER", format!("ws://{}", node.public()))
        .env("ADSUM_INTERNAL", format!("http://{}", node.internal()));
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// What it printed, if it went well.
pub(crate) async fn printed(node: &Node, args: &[&str]) -> Result<String> {
    let output = ask(node, args).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{args:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) async fn json(node: &Node, args: &[&str]) -> Result<Value> {
    let text = printed(node, args).await?;
    serde_json::from_str(&text).with_context(|| format!("{args:?}: {text}"))
}

pub(crate) fn signal(node: &Node, signal: &str) -> Result<()> {
    let pid = node.process().pid().context("it does not run")?.to_string();
    let sent = Command::new("kill").args([signal, &pid]).status()?;
    anyhow::ensure!(sent.success(), "kill {signal}");
    Ok(())
}

pub(crate) fn openssl(folder: &Path, args: &str) -> Result<()> {
    let command = Command::new("openssl")
        .current_dir(folder)
        .args(args.split(' '))
        .output()?;
    let said = String::from_utf8_lossy(&command.stderr).into_owned();
    anyhow::ensure!(command.status.success(), "openssl {args}: {said}");
    Ok(())
}
