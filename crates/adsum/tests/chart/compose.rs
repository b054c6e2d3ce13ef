//! `deploy/compose.yaml`, as far as it can be held to without an engine: settings that the binary
//! takes, names and files that exist, ports for this machine only.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tools::{list, root, tools, word};

#[tokio::test]
async fn the_compose_file_fits_the_binary_and_itself() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let deploy = root().join("deploy");
    let file = deploy.join("compose.yaml").display().to_string();
    let compose: Value = serde_json::from_str(&tools.chart_py(&["json", &file]).await?)?;
    let services = compose["services"].as_object().context("no services")?;
    let mut nodes = Vec::new();
    for (name, service) in services {
        let profile = word(&service["profiles"][0]);
        ensure!(
            ["single", "cluster", "observe"].contains(&profile),
            "{name}: profile {profile:?}"
        );
        for other in after(service) {
            let other = services
                .get(&other)
                .with_context(|| format!("{name} waits for {other}, which is not there"))?;
            ensure!(other["profiles"] == service["profiles"], "{name}: profiles");
        }
        for volume in list(&service["volumes"]) {
            let from = word(volume).split(':').next().unwrap_or_default();
            ensure!(deploy.join(from).exists(), "{name}: no {from}");
        }
        for port in list(&service["ports"]) {
            ensure!(word(port).starts_with("127.0.0.1:"), "{name}: {port}");
        }
        if word(&service["image"]).starts_with("adsum:") {
            accepted(name, service)?;
            collected(name, service, services)?;
            nodes.push(name.as_str());
        }
    }
    ensure!(nodes.len() == 5, "{nodes:?}");
    let tag = format!("adsum:{}", env!("CARGO_PKG_VERSION"));
    ensure!(services["single"]["image"] == tag.as_str());
    scraped(
        &tools
            .chart_py(&["json", &beside("prometheus.yaml")])
            .await?,
        services,
    )
}

fn beside(name: &str) -> String {
    let file = root().join("deploy/observe").join(name);
    file.display().to_string()
}

fn after(service: &Value) -> Vec<String> {
    match &service["depends_on"] {
        Value::Object(map) => map.keys().cloned().collect(),
        other => list(other).map(|w| word(w).to_owned()).collect(),
    }
}

fn accepted(name: &str, service: &Value) -> Result<()> {
    let mut check = Command::new(env!("CARGO_BIN_EXE_adsum"));
    check.arg("check-config");
    check.args(
        list(&service["command"])
            .map(word)
            .filter(|w| *w != "serve"),
    );
    for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("ADSUM_")) {
        check.env_remove(key);
    }
    for (key, value) in service["environment"].as_object().context("no settings")? {
        check.env(key, word(value));
    }
    let output = check.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {said}");
    Ok(())
}

/// Traces of the cluster go where somebody takes them.
fn collected(name: &str, service: &Value, services: &serde_json::Map<String, Value>) -> Result<()> {
    if service["profiles"][0] != "cluster" {
        return Ok(());
    }
    let endpoint = word(&service["environment"]["ADSUM_TELEMETRY__ENDPOINT"]);
    let place = endpoint.strip_prefix("http://");
    let place = place.and_then(|place| place.split_once(':'));
    let (host, port) = place.with_context(|| format!("{name}: {endpoint:?}"))?;
    let collector = services.get(host).with_context(|| format!("no {host}"))?;
    ensure!(collector["profiles"][0] == "observe", "{name}: {host}");
    let shown = |p: &Value| word(p).ends_with(&format!(":{port}"));
    ensure!(list(&collector["ports"]).any(shown), "{name}: {endpoint}");
    Ok(())
}

fn scraped(prometheus: &str, services: &serde_json::Map<String, Value>) -> Result<()> {
    let prometheus: Value = serde_json::from_str(prometheus)?;
    let targets = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"];
    for target in list(targets).map(word) {
        let (host, port) = target.split_once(':').context("no port")?;
        let service = services.get(host).with_context(|| format!("no {host}"))?;
        let listens = word(&service["environment"]["ADSUM_LISTEN__INTERNAL"]);
        ensure!(
            listens.ends_with(&format!(":{port}")),
            "{target}: {listens}"
        );
    }
    Ok(())
}
