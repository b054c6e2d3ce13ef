//! A collector that dies: the service does not notice, memory stays bounded, and the log says it
//! once.

use std::{fs, time::Duration};

use adsum_tests::{Node, NodeOptions, TestDir, eventually};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    collector::Collector,
    ws::{Client, joins},
};

/// How long it is away.
const AWAY: Duration = Duration::from_secs(30);
/// What the queues may hold: 2,048 spans and as many lines of log, and slack.
const GROWTH: u64 = 24 << 20;

fn resident(node: &Node) -> Result<u64> {
    let pid = node.process().pid().context("it is gone")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().strip_suffix("kB"));
    Ok(kib.context("no VmRSS")?.trim().parse::<u64>()? * 1024)
}

/// Somebody comes and goes, and is seen; answers the slowest of these.
async fn come_and_go(node: &Node, bob: &mut Client, times: usize) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for n in 0..times {
        let began = Instant::now();
        let user = format!("user-{n}");
        let more = json!({"rooms": [{"room": "lobby"}]});
        let mut one = Client::hello(node.public(), &user, more).await?;
        bob.hear_one(joins(&user)).await?;
        slowest = slowest.max(began.elapsed());
        one.say(json!({"type": "leave", "ref": "bye"}))?;
        one.answer("bye").await?;
    }
    Ok(slowest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_the_collector_is_gone() -> Result<()> {
    let dir = TestDir::new("telemetry outage")?;
    let Some(collector) = Collector::start(dir.path(), "traces").await? else {
        return Ok(());
    };
    let options = NodeOptions::fast(
        env!("CARGO_BIN_EXE_adsum"),
        "one",
        "gateway,dispatcher,reaper",
    )
    .with("TELEMETRY__ENDPOINT", format!("http://{}", collector.grpc))
    .with("TELEMETRY__PROTOCOL", "grpc")
    .with("TELEMETRY__SAMPLE_RATE", 1)
    .with("TELEMETRY__INTERVAL_MS", 1000)
    .with("LOG__FILTER", "info,adsum_gateway=debug")
    .with("LOG__JSON", true);
    let node = Node::start(dir.path(), &options).await?;
    let watch = json!({"watch": [{"topic": "room:lobby"}]});
    let mut bob = Client::hello(node.public(), "bob", watch).await?;
    bob.hear("presence_state").await?;
    let calm = come_and_go(&node, &mut bob, 50).await?;
    eventually("spans arrive", Duration::from_secs(20), || async {
        let spans = collector.spans()?;
        ensure!(spans.named("fan-out").count() > 0, "none yet");
        Ok(())
    })
    .await?;

    collector.process.kill()?;
    let before = resident(&node)?;
    let (began, mut slowest, mut changes) = (Instant::now(), Duration::ZERO, 0);
    while began.elapsed() < AWAY {
        slowest = slowest.max(come_and_go(&node, &mut bob, 20).await?);
        changes += 40;
    }
    let after = resident(&node)?;
    let failures = node
        .metric("adsum_telemetry_export_failures_total{signal=\"metrics\"}")
        .await?;
    let spans = node.metric("adsum_telemetry_spans_total").await?;
    let said = node.process().log_from(0)?.0;
    let lines = said.matches("the collector can't be reached").count();
    println!(
        "the collector away for {AWAY:?}: {changes} changes, {spans} spans, {failures} batches of \
         metrics not taken, {lines} line of log; slowest change {slowest:?} (before: {calm:?}); \
         memory {} KiB more",
        after.saturating_sub(before) / 1024
    );
    ensure!(failures >= 2.0 && lines == 1, "{lines} lines:\n{said}");
    ensure!(
        said.lines()
            .all(|l| l.starts_with('{') || !l.contains("collector"))
    );
    ensure!(slowest < Duration::from_secs(2), "{slowest:?}");
    ensure!(after < before + GROWTH, "{before} bytes became {after}");

    collector.process.restart().await?;
    collector.wait().await?;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        come_and_go(&node, &mut bob, 1).await?;
        let said = node.process().log_from(0)?.0;
        let spans = collector.spans()?.named("fan-out").count();
        if said.contains("the collector is back") && spans > 0 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "it is not back: {spans} spans");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
