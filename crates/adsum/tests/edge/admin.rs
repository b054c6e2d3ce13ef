//! The internal port: why is somebody online, how do the shards stand, and who may ask.

use adsum_client::{Client, RoomId};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::{get, json, node, options, printed, request};

#[tokio::test]
async fn why_is_somebody_online() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    let server = format!("ws://{}", node.public());
    let client = Client::builder().endpoint(server).token("dev:demo:ann");
    let client = client.room(RoomId::new("lobby")?).connect().await?;
    let beat = json!({"device": "phone", "conn": 7, "kind": "mobile", "rooms": ["den"]});
    let (status, body) = request(
        node.public(),
        "POST",
        "/v1/heartbeat",
        "dev:demo:ann",
        &beat.to_string(),
    )
    .await?;
    ensure!(status == 200, "{body}");

    let why = json(&node, &["user", "ann", "--why", "--json"]).await?;
    ensure!(why["status"] == "online", "{why}");
    let sessions = why["sessions"].as_array().context("none")?;
    ensure!(sessions.len() == 2, "{why}");
    let held = |by: &str| sessions.iter().find(|s| s["deadline"]["of"] == by);
    let (near, own) = (
        held("gateway").context("no gateway")?,
        held("session").context("no own")?,
    );
    ensure!(
        near["gateway"]
            .as_str()
            .is_some_and(|g| g.starts_with("one")),
        "{near}"
    );
    ensure!(near["rooms"][0]["room"] == "lobby", "{near}");
    ensure!(
        own["device"] == "phone" && own["kind"] == "mobile" && own["conn"] == 7,
        "{own}"
    );
    for session in sessions {
        let left = session["deadline"]["left_ms"].as_i64().context("no time")?;
        ensure!((0..=4500).contains(&left), "{session}");
    }
    ensure!(why["reaper"].as_str().is_some(), "{why}");
    let text = printed(&node, &["user", "ann", "--why"]).await?;
    ensure!(
        text.contains("held by one") && text.contains("in lobby"),
        "{text}"
    );

    let kicked = printed(&node, &["kick", "ann", "--device", "phone"]).await?;
    ensure!(kicked.contains("1 session closed"), "{kicked}");
    ensure!(
        printed(&node, &["purge", "ann"])
            .await?
            .contains("forgotten")
    );
    let why = json(&node, &["user", "ann", "--why", "--json"]).await?;
    ensure!(why["last_seen"] == Value::Null, "{why}");
    drop(client);
    Ok(())
}

#[tokio::test]
async fn every_shard_has_its_owners_and_its_position() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    let shards = json(&node, &["shards", "--count", "--json"]).await?;
    let shards = shards.as_object().context("no object")?;
    ensure!(shards.len() == 64, "{}", shards.len());
    for (number, line) in shards {
        ensure!(
            line["dispatchers"].as_array().is_some_and(|d| d.len() == 1),
            "{number}: {line}"
        );
        ensure!(line["log"]["epoch"].as_u64().is_some(), "{number}: {line}");
        ensure!(line["count"]["sessions"] == 0, "{number}: {line}");
    }
    let table = printed(&node, &["shards"]).await?;
    ensure!(table.lines().count() == 65, "{table}");
    Ok(())
}

#[tokio::test]
async fn bad_requests_and_browsers_are_refused() -> Result<()> {
    let (node, _folder) = node(&options()).await?;
    let long = format!("/admin/users/demo/{}", "a".repeat(200));
    let (status, body) = get(node.internal(), &long).await?;
    ensure!(
        status == 400 && body.contains("invalid_id"),
        "{status} {body}"
    );
    let post =
        |path: &'static str, body: &'static str| request(node.internal(), "POST", path, "x", body);
    let cases = [
        ("/admin/kick", "{", 400),
        ("/admin/kick", r#"{"tenant":"t"}"#, 422),
        ("/admin/purge", r#"{"tenant":"t","user":"u","x":1}"#, 422),
    ];
    for (path, sent, expected) in cases {
        let (status, body) = post(path, sent).await?;
        let said: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        ensure!(status == expected, "{status} {body}");
        ensure!(said["error"]["code"] == "malformed_frame", "{body}");
    }
    let (status, body) = get(node.internal(), "/admin/users/demo/%ff").await?;
    ensure!(
        status == 400 && body.contains("malformed_frame"),
        "{status} {body}"
    );
    // A page that somebody looks at must not be able to stop a node.
    let origin = "x\r\nOrigin: http://evil.example";
    let (status, body) = request(node.internal(), "POST", "/admin/drain", origin, "").await?;
    ensure!(
        status == 403 && body.contains("browsers"),
        "{status} {body}"
    );
    ensure!(node.process().is_running());
    Ok(())
}

#[tokio::test]
async fn in_development_the_public_port_answers_operators_too() -> Result<()> {
    let (dev, _folder) = node(&options()).await?;
    ensure!(get(dev.public(), "/readyz").await?.0 == 200);
    let metrics = get(dev.internal(), "/metrics").await?.1;
    for name in ["adsum_connections", "adsum_sessions", "adsum_topics"] {
        ensure!(metrics.contains(name), "{metrics}");
    }
    let signed = options().with_secret("0123456789abcdef0123456789abcdef");
    let (signed, _folder) = node(&signed).await?;
    ensure!(get(signed.public(), "/readyz").await?.0 == 404);
    ensure!(get(signed.public(), "/admin/shards").await?.0 == 404);
    Ok(())
}
