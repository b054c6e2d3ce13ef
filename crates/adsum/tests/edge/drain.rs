//! How a node stops: readiness goes first, clients are sent away over the window, the process ends.

use std::time::{Duration, Instant};

use adsum_client::{Client, Event, Events, Mode, RoomId, Topic};
use adsum_tests::{Node, eventually};
use anyhow::{Context, Result, ensure};

use crate::support::{LIMIT, adsum, ask, get, log, node, options, signal};

async fn join(node: &Node, user: &str) -> Result<(Client, Events)> {
    let lobby = RoomId::new("lobby")?;
    let client = Client::builder()
        .endpoint(format!("ws://{}", node.public()))
        .token(format!("dev:demo:{user}"))
        .room(lobby.clone())
        .watch(Topic::Room(lobby), Mode::Members)
        .connect();
    Ok(tokio::time::timeout(LIMIT, client).await??)
}

async fn ended(node: &Node) -> Result<()> {
    tokio::time::timeout(LIMIT, node.process().ended())
        .await
        .context("it still runs")
}

#[tokio::test]
async fn the_admin_call_drains_and_tells_how_far_it_is() -> Result<()> {
    let (node, folder) = node(&options()).await?;
    let (_ann, mut events) = join(&node, "ann").await?;
    let start = Instant::now();
    let (drained, unready) = tokio::join!(
        ask(&node, &["drain", "--json"]),
        eventually("it is not ready", LIMIT, || async {
            let (status, body) = get(node.internal(), "/readyz").await?;
            ensure!(
                status == 503 && body.contains("\"stopping\":\"draining\""),
                "{body}"
            );
            Ok(())
        })
    );
    unready?;
    let drained = drained?;
    let lines = String::from_utf8(drained.stdout)?;
    ensure!(drained.status.success(), "{lines}");
    let last = lines.lines().last().context("nothing was said")?;
    ensure!(last.contains("\"stage\":\"done\""), "{lines}");
    ensure!(lines.contains("\"connections\":1"), "{lines}");
    ended(&node).await?;
    ensure!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    // The client was told to go, not that anybody left.
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(50), events.next()).await
    {
        ensure!(!matches!(event, Event::Left { .. }), "{event:?}");
    }
    ensure!(!log(&folder).contains("did not stop"), "{}", log(&folder));
    Ok(())
}

#[tokio::test]
async fn a_signal_drains_and_a_second_one_does_not_wait() -> Result<()> {
    let slow = options().with("TIMES__DRAIN_WINDOW_MS", 20_000);
    let (node, folder) = node(&slow).await?;
    // One that does not care for being sent away.
    let stubborn = tokio::net::TcpStream::connect(node.public()).await?;
    let ask = format!(
        "GET /v1/events?topic=room:a&token=dev:demo:ann HTTP/1.1\r\nHost: {}\r\n\r\n",
        node.public()
    );
    stubborn.writable().await?;
    stubborn.try_write(ask.as_bytes())?;
    let (_ann, _events) = join(&node, "ann").await?;
    signal(&node, "-TERM")?;
    eventually("it drains", LIMIT, || async {
        let (status, _) = get(node.internal(), "/readyz").await?;
        ensure!(status == 503);
        Ok(())
    })
    .await?;
    ensure!(node.process().is_running());
    signal(&node, "-INT")?;
    ended(&node).await?;
    ensure!(
        log(&folder).contains("told to stop twice"),
        "{}",
        log(&folder)
    );
    Ok(())
}

#[tokio::test]
async fn without_clients_it_stops_at_once() -> Result<()> {
    let (node, folder) = node(&options()).await?;
    let start = Instant::now();
    signal(&node, "-TERM")?;
    ended(&node).await?;
    ensure!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    ensure!(!log(&folder).contains("ERROR"), "{}", log(&folder));
    let said = tokio::task::spawn_blocking(move || {
        adsum(&["drain", "--internal", "http://127.0.0.1:1"]).output()
    });
    let said = String::from_utf8(said.await??.stderr)?;
    ensure!(said.contains("is the node running?"), "{said}");
    Ok(())
}
