//! Logs and metrics at the collector, over either protocol, with who sent them.

use std::time::Duration;

use adsum_tests::{Node, NodeOptions, TestDir, eventually};
use anyhow::{Result, ensure};

use crate::collector::Collector;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_metrics_arrive() -> Result<()> {
    for (signal, protocol, wanted) in [
        ("logs", "grpc", "Body: Str(joined)"),
        ("logs", "http/protobuf", "Body: Str(joined)"),
        ("metrics", "grpc", "Name: adsum.fanout.duration"),
        (
            "metrics",
            "http/protobuf",
            "Name: db.client.operation.duration",
        ),
    ] {
        let dir = TestDir::new("telemetry signals")?;
        let Some(collector) = Collector::start(dir.path(), signal).await? else {
            return Ok(());
        };
        let address = match protocol {
            "grpc" => collector.grpc,
            _ => collector.http,
        };
        let options = NodeOptions::fast(
            env!("CARGO_BIN_EXE_adsum"),
            "one",
            "gateway,dispatcher,reaper",
        )
        .with("TELEMETRY__ENDPOINT", format!("http://{address}"))
        .with("TELEMETRY__PROTOCOL", protocol)
        .with("TELEMETRY__INTERVAL_MS", 300)
        .with("NODE__ZONE", "east");
        let _node = Node::start(dir.path(), &options).await?;
        let who = [
            "service.name: Str(adsum)",
            "service.instance.id: Str(one)",
            "service.version: Str(",
            "adsum.roles: Str(gateway,dispatcher,reaper)",
            "cloud.availability_zone: Str(east)",
        ];
        eventually("it arrives", Duration::from_secs(20), || async {
            let said = collector.said()?;
            for text in who.iter().chain([&wanted]) {
                ensure!(said.contains(text), "{signal} over {protocol}: no {text}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}
