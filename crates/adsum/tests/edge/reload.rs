//! SIGHUP: limits, tenants and keys are taken over, what does not fit is refused, and what needs a
//! restart is named. Files of keys are read again by themselves.

use std::path::Path;

use adsum_tests::{NodeAuth, TestDir, eventually};
use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::{LIMIT, adsum, log, node, options, request, signal};

const FIRST: &str = "first-secret-first-secret-first-secret";
const SECOND: &str = "second-secret-second-secret-second-secret";

fn config(file: &Path, secret: &str, more: &str) -> Result<()> {
    let text = format!("{more}\n[[auth.keys]]\nalg = \"HS256\"\nsecret = \"{secret}\"\n");
    Ok(std::fs::write(file, text)?)
}

fn token(secret: &str) -> Result<String> {
    let output = adsum(&["token", "--user", "ann", "--rooms", "lobby"])
        .env("ADSUM_SECRET", secret)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success());
    Ok(text.trim().to_owned())
}

async fn beat(address: std::net::SocketAddr, token: &str) -> Result<(u16, String)> {
    let body = json!({"device": "d", "conn": 1, "meta": {"text": "0123456789"}});
    request(address, "POST", "/v1/heartbeat", token, &body.to_string()).await
}

async fn logged(folder: &TestDir, text: &str) -> Result<()> {
    eventually("the log says it", LIMIT, || async {
        ensure!(log(folder).contains(text), "not yet: {text}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limits_tenants_and_keys_are_taken_over() -> Result<()> {
    let files = TestDir::new("config")?;
    let file = files.path().join("adsum.toml");
    config(&file, FIRST, "")?;
    let mut options = options();
    options.auth = NodeAuth::Configured;
    let (node, folder) = node(&options.with("CONFIG", file.display())).await?;
    let (first, second) = (token(FIRST)?, token(SECOND)?);
    let (status, body) = beat(node.public(), &first).await?;
    ensure!(status == 200, "{status} {body}");
    ensure!(beat(node.public(), &second).await?.0 == 401);

    // What does not fit changes nothing.
    config(&file, SECOND, "[tenants.demo]\nsession_ttl_ms = 10\n")?;
    signal(&node, "-HUP")?;
    logged(&folder, "new configuration refused, the old one stays").await?;
    logged(&folder, "one lost beat must not end a session").await?;
    ensure!(beat(node.public(), &first).await?.0 == 200);

    // What fits is taken over as a whole.
    config(
        &file,
        SECOND,
        "[tenants.demo]\nmeta_bytes = 5\n[cluster]\nname = \"other\"\n",
    )?;
    signal(&node, "-HUP")?;
    logged(&folder, "these keys differ and need a restart").await?;
    ensure!(log(&folder).contains("cluster.name"), "{}", log(&folder));
    ensure!(beat(node.public(), &first).await?.0 == 401);
    let (status, body) = beat(node.public(), &second).await?;
    ensure!(
        status == 400 || status == 413 || status == 422,
        "{status} {body}"
    );
    ensure!(body.contains("meta_too_large"), "{body}");
    ensure!(!log(&folder).contains(SECOND), "a secret is in the log");
    Ok(())
}

#[tokio::test]
async fn a_key_file_is_read_again_by_itself() -> Result<()> {
    let files = TestDir::new("keys")?;
    let key = files.path().join("key");
    std::fs::write(&key, FIRST)?;
    let mut options = options();
    options.auth = NodeAuth::Configured;
    let keys = format!("[{{alg=\"HS256\",file=\"{}\"}}]", key.display());
    let (node, _folder) = node(&options.with("AUTH__KEYS", keys)).await?;
    let (first, second) = (token(FIRST)?, token(SECOND)?);
    ensure!(beat(node.public(), &first).await?.0 == 200);
    std::fs::write(&key, SECOND)?;
    eventually("the new key is in force", LIMIT, || async {
        let (status, body) = beat(node.public(), &second).await?;
        ensure!(status == 200, "{status} {body}");
        Ok(())
    })
    .await?;
    ensure!(beat(node.public(), &first).await?.0 == 401);
    Ok(())
}
