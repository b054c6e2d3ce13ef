//! Clients that are not ours, in Python: gRPC with nothing but reflection, a WebSocket library, an
//! event source, and a tool that tries the OpenAPI document. See `scripts/third_party`.

use std::{
    path::{Path, PathBuf},
    process::Output,
    sync::Arc,
    time::{Duration, Instant},
};

use adsum_gateway::auth::{NewClaims, Role};
use anyhow::{Context, Result, ensure};
use tokio::{process::Command, time::timeout};

use crate::{
    stage::{Stage, Wire},
    world::{Side, World, signed},
};

/// Test cases of each operation and phase: half a minute on two idle cores.
const EXAMPLES: u32 = 100;
/// What `install.sh` says when there is no way to install.
const CANNOT: i32 = 3;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/third_party")
}

async fn run(command: &mut Command, limit: Duration) -> Result<Output> {
    let output = command.kill_on_drop(true).output();
    let output = timeout(limit, output).await;
    let program = command.as_std().get_program().display().to_string();
    Ok(output.with_context(|| format!("not within {limit:?}: {program}"))??)
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_not_ours_work() -> Result<()> {
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("third_party");
    let mut install = Command::new(scripts().join("install.sh"));
    let installed = run(install.arg(&environment), Duration::from_secs(300)).await?;
    if installed.status.code() == Some(CANNOT) {
        println!("SKIPPED, third-party clients: {}", text(&installed).trim());
        return Ok(());
    }
    ensure!(installed.status.success(), "{}", text(&installed));
    let world = Arc::new(World::embedded("third parties").await?);
    let stage = Stage::new(world.clone(), "third", Wire::Json);
    let address = stage.address(Side::A).to_string();
    for what in ["grpc", "websocket", "sse"] {
        let mut client = Command::new(environment.join("bin/python3"));
        client
            .arg(scripts().join("clients.py"))
            .args([what, &address]);
        client
            .env("ANN", stage.token("ann")?)
            .env("BOB", stage.token("bob")?);
        let output = run(&mut client, Duration::from_secs(60)).await?;
        ensure!(output.status.success(), "{what}: {}", text(&output));
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
    let began = Instant::now();
    let mut tool = Command::new(scripts().join("schemathesis.sh"));
    tool.arg(&environment)
        .args([&address, &EXAMPLES.to_string()]);
    // With a user of its own, for what is asked of oneself.
    let service = NewClaims {
        role: Role::Service,
        ..stage.claims("ann")
    };
    tool.env("SERVICE", signed(&service)?);
    tool.current_dir(env!("CARGO_TARGET_TMPDIR"));
    let output = run(&mut tool, Duration::from_secs(300)).await?;
    let said = text(&output);
    ensure!(output.status.success(), "{said}");
    let summary = said.lines().rev().take(12).collect::<Vec<_>>();
    let summary: Vec<_> = summary.into_iter().rev().collect();
    println!(
        "{}\nschemathesis took {:?}",
        summary.join("\n"),
        began.elapsed()
    );
    world.check()
}
