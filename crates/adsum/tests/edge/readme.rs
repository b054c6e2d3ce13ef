//! The README's commands, word for word but for the ports.

use std::{path::Path, process::Command, time::Duration};

use adsum_tests::Node;
use anyhow::{Context, Result, ensure};

use crate::support::{adsum, node, options};

/// The lines of its shell blocks that begin like this.
fn commands(start: &str) -> Result<Vec<String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(file)?;
    let mut found = Vec::new();
    for block in text.split("```sh\n").skip(1) {
        let block = block.split("```").next().context("an open block")?;
        found.extend(
            block
                .lines()
                .filter(|l| l.starts_with(start))
                .map(str::to_owned),
        );
    }
    ensure!(!found.is_empty(), "no {start}");
    Ok(found)
}

async fn run(mut command: Command, limit: Duration) -> Result<(Option<bool>, String)> {
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()?;
    let ended = tokio::time::timeout(limit, child.wait()).await;
    if ended.is_err() {
        child.start_kill()?;
    }
    let output = child.wait_with_output().await?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((ended.ok().transpose()?.map(|status| status.success()), text))
}

fn against(node: &Node, command: &mut Command) {
    command
        .env("ADSUM_SERVER", format!("ws://{}", node.public()))
        .env("ADSUM_INTERNAL", format!("http://{}", node.internal()));
}

#[tokio::test]
async fn its_commands_do_what_it_says() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    for line in commands("bin/adsum ")? {
        let args: Vec<_> = line.split(' ').skip(1).collect();
        let mut command = adsum(&args);
        against(&node, &mut command);
        // Those that stay until Ctrl-C are still there after a while.
        let stays = matches!(args[0], "join" | "watch");
        let limit = if stays { 1 } else { 10 };
        let (ended, text) = run(command, Duration::from_secs(limit)).await?;
        let expected = if stays { None } else { Some(true) };
        ensure!(ended == expected, "{line}: {ended:?} {text}");
    }
    Ok(())
}

#[tokio::test]
async fn its_requests_are_answered() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    for line in commands("curl ")? {
        let line = line.replace("localhost:8080", &node.public().to_string());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {line} --fail-with-body")]);
        let stream = line.contains("/v1/events");
        let limit = Duration::from_secs(if stream { 1 } else { 10 });
        let (ended, text) = run(command, limit).await?;
        ensure!(
            ended == if stream { None } else { Some(true) },
            "{line}: {text}"
        );
        ensure!(!stream || text.contains("presence_state"), "{line}: {text}");
    }
    Ok(())
}
