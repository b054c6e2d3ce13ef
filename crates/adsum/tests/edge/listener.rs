//! The public port: several protocols at once, and nobody is held up by those who dawdle.

use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use adsum_tests::{Node, TestDir, eventually};
use anyhow::{Context, Result, bail, ensure};
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::support::{LIMIT, closed, get, log, node, options};

#[tokio::test]
async fn slow_heads_are_cut_off_while_others_are_served() -> Result<()> {
    let (node, _folder) = node(&options().with("TIMES__HEADER_MS", 500)).await?;
    let mut slow = Vec::new();
    for text in [
        "",
        "GET",
        "GET /v1/openapi.json HTTP/1.1\r\nX: ",
        "PRI * HTTP/2.0\r\n",
    ] {
        for _ in 0..25 {
            let mut stream = TcpStream::connect(node.public()).await?;
            stream.write_all(text.as_bytes()).await?;
            slow.push(stream);
        }
    }
    let start = Instant::now();
    let (status, _) = get(node.public(), "/v1/openapi.json").await?;
    ensure!(status == 200, "{status}");
    // A drop now and then does not help.
    for stream in &mut slow[50..75] {
        let _ = stream.write_all(b"a").await;
    }
    for stream in &mut slow {
        closed(stream).await?;
    }
    let took = start.elapsed();
    ensure!(took < Duration::from_secs(3), "cut off after {took:?}");
    let (status, _) = get(node.public(), "/v1/openapi.json").await?;
    ensure!(status == 200, "{status}");
    Ok(())
}

#[tokio::test]
async fn of_too_many_unfinished_connections_the_oldest_go() -> Result<()> {
    let options = options()
        .with("BOUNDS__UNFINISHED_CONNECTIONS", 10)
        .with("TIMES__HEADER_MS", 60_000);
    let (node, _folder) = node(&options).await?;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(node.public()).await?);
    }
    for stream in &mut silent[..40] {
        closed(stream).await?;
    }
    let (status, _) = get(node.public(), "/v1/openapi.json").await?;
    ensure!(status == 200, "{status}");
    let mut youngest = silent.pop().context("none")?;
    let mut byte = [0];
    let read = timeout(Duration::from_millis(200), youngest.read(&mut byte)).await;
    ensure!(read.is_err(), "the youngest was closed");
    Ok(())
}

async fn websocket(node: &Node, query: &str) -> Result<WebSocketStream<TcpStream>> {
    let stream = TcpStream::connect(node.public()).await?;
    let url = format!("ws://{}/v1/ws{query}", node.public());
    Ok(tokio_tungstenite::client_async(url, stream).await?.0)
}

#[tokio::test]
async fn of_too_many_that_never_say_hello_the_oldest_go() -> Result<()> {
    let options = options()
        .with("LIMITS__CONNECTIONS_PER_NODE", 10)
        .with("TIMES__HELLO_MS", 60_000);
    let (node, _folder) = node(&options).await?;
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(websocket(&node, "").await?);
    }
    for socket in &mut silent[..20] {
        let told = timeout(LIMIT, socket.next()).await?.context("no word")??;
        let told = told.to_text()?;
        ensure!(told.contains("too_many_connections"), "{told}");
        let closed = timeout(LIMIT, socket.next()).await?.context("no close")??;
        let Message::Close(Some(close)) = closed else {
            bail!("{closed:?}");
        };
        ensure!(u16::from(close.code) == 4429, "{close:?}");
    }
    // Whoever says hello comes in, and stays when others don't.
    let mut client = websocket(&node, "").await?;
    let hello = r#"{"type":"hello","token":"dev:demo:ann"}"#;
    client.send(Message::text(hello)).await?;
    let welcome = timeout(LIMIT, client.next()).await?.context("no word")??;
    ensure!(welcome.to_text()?.contains("welcome"), "{welcome:?}");
    for _ in 0..20 {
        silent.push(websocket(&node, "").await?);
    }
    client
        .send(Message::text(r#"{"type":"heartbeat","ref":"1"}"#))
        .await?;
    let answer = timeout(LIMIT, client.next()).await?.context("no word")??;
    ensure!(answer.to_text()?.contains("ack"), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_logs_everything_still_logs_no_token() -> Result<()> {
    let (node, folder) = node(&options().with("LOG__FILTER", "trace")).await?;
    for (query, hello) in [
        ("", r#"{"type":"hello","token":"hush-1"}"#),
        ("?token=hush-2", r#"{"type":"hello"}"#),
    ] {
        let mut socket = websocket(&node, query).await?;
        socket.send(Message::text(hello)).await?;
        let told = timeout(LIMIT, socket.next()).await?.context("no word")??;
        ensure!(told.to_text()?.contains("unauthorized"), "{told:?}");
    }
    let io = TokioIo::new(TcpStream::connect(node.public()).await?);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    let page = format!("http://{}/v1/users/ann", node.public());
    let request = Request::get(page).header("Authorization", "Bearer hush-3");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?);
    ensure!(answer.await?.status() == 401, "let in");
    let logged = log(&folder);
    ensure!(logged.contains("TRACE"), "{logged}");
    let told = logged.lines().find(|line| line.contains("hush"));
    ensure!(told.is_none(), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn http_1_and_http_2_on_one_port() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    let (status, body) = get(node.public(), "/v1/openapi.json").await?;
    ensure!(status == 200 && body.contains("openapi"), "{status}");

    let io = TokioIo::new(TcpStream::connect(node.public()).await?);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    let uri = format!("http://{}/v1/openapi.json", node.public());
    let request = || Request::get(&uri).body(Empty::<Bytes>::new());
    let (one, two) = (sender.send_request(request()?), sender.clone());
    let mut two = two;
    let two = two.send_request(request()?);
    let (one, two) = tokio::try_join!(one, two)?;
    ensure!(one.status() == 200 && two.status() == 200);
    let body = one.into_body().collect().await?.to_bytes();
    ensure!(body.starts_with(b"{"));
    Ok(())
}

#[tokio::test]
async fn garbage_harms_nobody() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    let long = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "a".repeat(200_000)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "a: b\r\n".repeat(500)
    );
    let garbage: Vec<u8> = (0..5000_u32).map(|n| ((n * 7919) >> 3) as u8).collect();
    let texts = [
        b"\0\0\0\r\n\r\n".to_vec(),
        garbage,
        long.into_bytes(),
        many.into_bytes(),
    ];
    for text in texts {
        let mut stream = TcpStream::connect(node.public()).await?;
        let _ = stream.write_all(&text).await;
        let _ = stream.shutdown().await;
        closed(&mut stream).await?;
    }
    let (status, _) = get(node.public(), "/v1/openapi.json").await?;
    ensure!(status == 200, "{status}");
    ensure!(node.process().is_running());
    Ok(())
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_stream_is_not() -> Result<()> {
    let (node, _folder) = node(&options().with("TIMES__IDLE_MS", 600)).await?;
    let address = node.public();
    let keep = format!("GET /v1/openapi.json HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut idle = TcpStream::connect(address).await?;
    idle.write_all(keep.as_bytes()).await?;

    let mut events = TcpStream::connect(address).await?;
    let ask = format!(
        "GET /v1/events?topic=room:a&token=dev:demo:ann HTTP/1.1\r\nHost: {address}\r\n\r\n"
    );
    events.write_all(ask.as_bytes()).await?;
    let start = Instant::now();
    closed(&mut idle).await?;
    ensure!(
        start.elapsed() >= Duration::from_millis(500),
        "closed at once"
    );
    sleep(Duration::from_millis(1500)).await;
    let mut said = vec![0; 64 * 1024];
    // What has come, and that no end did.
    while let Ok(read) = timeout(Duration::from_millis(200), events.read(&mut said)).await {
        ensure!(read? > 0, "the stream was closed");
    }
    ensure!(start.elapsed() < LIMIT);
    Ok(())
}

#[tokio::test]
async fn a_body_that_never_comes_is_not_waited_for() -> Result<()> {
    let (node, _folder) = node(&options().with("TIMES__BODY_MS", 500)).await?;
    let mut stream = TcpStream::connect(node.public()).await?;
    let head = "POST /v1/heartbeat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer dev:demo:ann\r\n\
                Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await?;
    let start = Instant::now();
    let mut answer = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut answer))
        .await
        .context("still open")??;
    let took = start.elapsed();
    ensure!(took < Duration::from_secs(3), "answered after {took:?}");
    ensure!(
        answer.starts_with(b"HTTP/1.1 4"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    Ok(())
}

/// A limit of open files makes accepts fail: one line in the log, and all is well after it.
#[tokio::test]
async fn without_file_descriptors_it_waits_and_goes_on() -> Result<()> {
    let folder = TestDir::new("few")?;
    let few = folder.path().join("few.sh");
    let script = format!(
        "#!/bin/sh\nulimit -n 80\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_adsum")
    );
    std::fs::write(&few, script)?;
    std::fs::set_permissions(&few, std::fs::Permissions::from_mode(0o755))?;
    let mut options = options().with("TIMES__HEADER_MS", 1000);
    options.binary = few;
    let (node, folder) = node(&options).await?;
    let mut crowd = Vec::new();
    for _ in 0..150 {
        crowd.push(TcpStream::connect(node.public()).await?);
    }
    eventually("it complains", LIMIT, || async {
        ensure!(log(&folder).contains("connections can't be accepted"));
        Ok(())
    })
    .await?;
    drop(crowd);
    eventually("it serves again", LIMIT, || async {
        let (status, _) = get(node.public(), "/v1/openapi.json").await?;
        ensure!(status == 200, "{status}");
        Ok(())
    })
    .await?;
    let lines = log(&folder)
        .matches("connections can't be accepted")
        .count();
    ensure!(lines == 1, "{lines} lines");
    Ok(())
}
