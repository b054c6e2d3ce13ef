//! The commands, as people type them.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use adsum_tests::{Node, TestDir, eventually};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{LIMIT, adsum, ask, node, options, printed};

/// A command that goes on, and the lines that it has printed.
struct Live {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

fn held(lines: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    fn start(node: &Node, args: &[&str]) -> Result<Self> {
        let mut child = adsum(args)
            .env("ADSUM_SERVER", format!("ws://{}", node.public()))
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("no stdout")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                held(&to).push(line);
            }
        });
        Ok(Self { child, lines })
    }

    async fn says(&self, text: &str) -> Result<()> {
        eventually("it says it", LIMIT, || async {
            let lines = held(&self.lines);
            ensure!(
                lines.iter().any(|l| l.contains(text)),
                "{text:?} is not in {lines:?}"
            );
            Ok(())
        })
        .await
    }

    async fn interrupt(&mut self) -> Result<std::process::ExitStatus> {
        let pid = self.child.id().to_string();
        std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()?;
        for _ in 0..200 {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("it still runs")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn two_terminals_see_each_other() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    let watch = Live::start(&node, &["watch", "lobby", "--json"])?;
    watch.says("presence_state").await?;
    let ann = Live::start(&node, &["join", "lobby", "--as", "ann"])?;
    ann.says("you are ann").await?;
    let mut bob = Live::start(&node, &["join", "lobby", "--as", "bob", "--kind", "web"])?;
    ann.says("+ bob online web").await?;
    bob.says("+ ann online terminal").await?;
    let who = printed(&node, &["who", "lobby"]).await?;
    ensure!(
        who.contains("ann  online") && who.contains("bob  online"),
        "{who}"
    );
    let user = printed(&node, &["user", "bob", "--json"]).await?;
    let user: Value = serde_json::from_str(&user)?;
    ensure!(
        user["status"] == "online" && user["devices"][0] == "web",
        "{user}"
    );
    let status = bob.interrupt().await?;
    ensure!(status.success(), "{status}");
    bob.says("goodbye").await?;
    ann.says("- bob said goodbye").await?;
    watch.says("\"reason\":\"leave\"").await?;
    for line in held(&watch.lines).iter() {
        serde_json::from_str::<Value>(line).with_context(|| line.clone())?;
    }
    Ok(())
}

fn said(args: &[&str]) -> Result<(bool, String)> {
    let output = adsum(args).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

#[test]
fn the_default_file_can_be_used() -> Result<()> {
    let folder = TestDir::new("config")?;
    let file = folder.path().join("adsum.toml");
    let (ok, text) = said(&["default-config"])?;
    ensure!(ok);
    std::fs::write(&file, text)?;
    let file = file.display().to_string();
    let (ok, text) = said(&["check-config", "-c", &file, "--dev"])?;
    ensure!(ok && text.contains("can be used"), "{text}");
    let (ok, text) = said(&["check-config", "-c", &file])?;
    ensure!(!ok && text.contains("--dev"), "{text}");
    Ok(())
}

#[test]
fn files_that_a_start_would_need_are_looked_for() -> Result<()> {
    let folder = TestDir::new("config-files")?;
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let file = folder.path().join("adsum.toml");
    let text = format!(
        "[tls]\ncert = '{}'\nkey = '{}'\n",
        cert.display(),
        key.display()
    );
    std::fs::write(&file, text)?;
    let file = file.display().to_string();
    let (ok, text) = said(&["check-config", "-c", &file, "--dev"])?;
    ensure!(!ok && text.contains("cert.pem"), "{text}");
    let (ok, text) = said(&["check-config", "-c", &file, "--dev", "--no-files"])?;
    ensure!(ok, "{text}");
    // Files that are there and of no use.
    for file in [&cert, &key] {
        std::fs::write(file, "hush")?;
    }
    let (ok, text) = said(&["check-config", "-c", &file, "--dev"])?;
    ensure!(
        !ok && text.contains("cert.pem") && !text.contains("hush"),
        "{text}"
    );
    Ok(())
}

#[test]
fn errors_are_sentences_that_say_what_to_do() -> Result<()> {
    let refused = |args: &[&str], hint: &str| {
        let (ok, text) = said(args)?;
        ensure!(!ok && text.contains(hint), "{args:?}: {text}");
        ensure!(!text.contains("panicked"), "{text}");
        anyhow::Ok(())
    };
    refused(
        &["serve"],
        "Set auth.keys or auth.jwks, or try it on this machine with --dev",
    )?;
    refused(
        &["serve", "--dev", "--listen-public", "0.0.0.0:0"],
        "only from this machine",
    )?;
    refused(
        &["serve", "-c", "/nowhere.toml"],
        "`adsum default-config` prints one",
    )?;
    refused(
        &["who", "lobby", "--server", "ws://127.0.0.1:1"],
        "`adsum serve --dev` starts one",
    )?;
    refused(&["watch", "house:x"], "room:<id>, user:<id> or tenant")?;
    refused(
        &["shards", "--internal", "http://127.0.0.1:1"],
        "listen.internal",
    )?;
    refused(&["health", "127.0.0.1:1"], "is the node running?")?;
    refused(&["token", "--user", "ann"], "ADSUM_SECRET")?;
    refused(
        &["token", "--user", "ann", "--secret", "short"],
        "needs at least 32",
    )?;
    Ok(())
}

#[tokio::test]
async fn without_a_good_token_it_says_how_to_get_one() -> Result<()> {
    let secret = "0123456789abcdef0123456789abcdef";
    let (node, _folder) = node(&options().with_secret(secret)).await?;
    for args in [
        &["who", "lobby"][..],
        &["join", "lobby"],
        &["watch", "lobby"],
        &["user", "ann"],
    ] {
        let output = ask(&node, args).await?;
        let text = String::from_utf8(output.stderr)?;
        ensure!(
            !output.status.success() && text.contains("`adsum token` mints one"),
            "{text}"
        );
    }
    let token = adsum(&[
        "token", "--user", "ann", "--rooms", "lobby", "--secret", secret,
    ])
    .output()?;
    let token = String::from_utf8(token.stdout)?;
    let who = printed(&node, &["who", "lobby", "--token", token.trim()]).await?;
    ensure!(who.contains("nobody whom you may see"), "{who}");
    Ok(())
}

#[test]
fn shells_get_completions() -> Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let (ok, text) = said(&["completions", shell])?;
        ensure!(ok && text.contains("check-config"), "{shell}");
    }
    Ok(())
}
