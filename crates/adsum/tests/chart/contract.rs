//! What the chart sets, and what the binary takes: settings, times, ports, pages.

use std::{collections::BTreeSet, net::Ipv4Addr};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    pod::{Cluster, Pod},
    tools::{Render, chart, list, root, tools, word},
};

/// Pods that run the binary as a node.
pub(crate) fn nodes(render: &Render) -> impl Iterator<Item = (&str, &Value)> {
    render
        .of_kind("Deployment")
        .map(|d| (word(&d["metadata"]["name"]), &d["spec"]["template"]["spec"]))
}

/// Secrets and maps of the customer, which are not in the render, with something in them.
fn with_given(render: &Render) -> Render {
    let mut objects = render.objects.clone();
    let missing = |objects: &[Value], kind: &str, name: &str| {
        !objects
            .iter()
            .any(|o| o["kind"] == kind && o["metadata"]["name"] == name)
    };
    let pods: Vec<Value> = render.pods().into_iter().map(|(_, p)| p.clone()).collect();
    for pod in &pods {
        let mut wanted = Vec::new();
        for volume in list(&pod["volumes"]) {
            for (kind, source, name) in [
                ("Secret", &volume["secret"], "secretName"),
                ("ConfigMap", &volume["configMap"], "name"),
            ] {
                let keys = list(&source["items"]).map(|i| word(&i["key"]).to_owned());
                let mut keys: Vec<_> = keys.collect();
                if keys.is_empty() {
                    keys = ["ca.crt", "tls.crt", "tls.key"].map(str::to_owned).into();
                }
                if source.is_object() {
                    wanted.push((kind, word(&source[name]).to_owned(), keys));
                }
            }
        }
        for variable in list(&pod["containers"][0]["env"]) {
            let secret = &variable["valueFrom"]["secretKeyRef"];
            if secret.is_object() {
                let keys = vec![word(&secret["key"]).to_owned()];
                wanted.push(("Secret", word(&secret["name"]).to_owned(), keys));
            }
        }
        for (kind, name, keys) in wanted {
            if missing(&render.objects, kind, &name) {
                // "12345" as a password looks like a number, on purpose.
                let data = keys.into_iter().map(|k| (k, Value::from("MTIzNDU=")));
                let data: serde_json::Map<_, _> = data.collect();
                let found = objects
                    .iter_mut()
                    .find(|o| o["kind"] == kind && o["metadata"]["name"] == *name);
                match found {
                    Some(object) => {
                        let old = object["data"].as_object_mut();
                        old.into_iter().for_each(|old| old.extend(data.clone()));
                    }
                    None => objects.push(json!({
                        "kind": kind, "metadata": {"name": name}, "data": data,
                    })),
                }
            }
        }
    }
    Render {
        objects,
        notes: String::new(),
    }
}

#[tokio::test]
async fn every_setting_of_every_render_is_accepted_by_the_binary() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let mut checked = 0;
    for (set, render) in tools.renders().await? {
        let (cluster, render) = (Cluster::new("contract")?, with_given(render));
        for (name, spec) in nodes(&render) {
            let ip = Ipv4Addr::LOCALHOST;
            let plan = cluster.plan(&render, (name, spec), "adsum", ip)?;
            let mut args = plan.words("args")?;
            ensure!(args[0] == "serve", "{args:?}");
            args[0] = "check-config".to_owned();
            // What is in them was made up here.
            args.push("--no-files".to_owned());
            let output = plan.command(&plan.words("command")?, &args)?.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{set}, {name}: {said}");
            // And what is not a setting would have been refused.
            args.push("--cluster=x".to_owned());
            let mut command = plan.command(&plan.words("command")?, &args)?;
            let output = command.env("ADSUM_TIMES__NO_SUCH_KEY", "1").output()?;
            ensure!(!output.status.success(), "{set}, {name}: unknown keys pass");
            checked += 1;
        }
    }
    ensure!(checked == 8, "{checked} nodes were checked");
    Ok(())
}

/// What the schema knows of the binary's settings is what the binary has.
#[tokio::test]
async fn the_schema_knows_every_setting() -> Result<()> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_adsum"))
        .arg("default-config")
        .output()?;
    let config: toml::Table = String::from_utf8(output.stdout)?.parse()?;
    let schema = std::fs::read_to_string(chart().join("values.schema.json"))?;
    let schema: Value = serde_json::from_str(&schema)?;
    let known = &schema["properties"]["config"]["properties"];
    for section in ["times", "bounds", "limits"] {
        let has: BTreeSet<_> = keys(&known[section]["properties"]);
        let wants = config[section].as_table().context(section)?;
        let wants: BTreeSet<_> = wants.keys().cloned().collect();
        ensure!(has == wants, "{section}: {has:?} is not {wants:?}");
    }
    let has = keys(&known["telemetry"]["properties"]);
    let wants = config["telemetry"].as_table().context("telemetry")?;
    // Without a default, so it is not printed.
    let wants = wants.keys().cloned().chain(["ca".to_owned()]).collect();
    ensure!(has == wants, "telemetry: {has:?} is not {wants:?}");
    ensure!(known["telemetry"]["additionalProperties"] == false);
    Ok(())
}

fn keys(object: &Value) -> BTreeSet<String> {
    object
        .as_object()
        .into_iter()
        .flat_map(|o| o.keys().cloned())
        .collect()
}

#[tokio::test]
async fn the_drain_fits_the_grace_of_every_render() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    // The times that the binary has when a render says nothing.
    let defaults = std::process::Command::new(env!("CARGO_BIN_EXE_adsum"))
        .arg("default-config")
        .output()?;
    let defaults: toml::Table = String::from_utf8(defaults.stdout)?.parse()?;
    for (set, render) in tools.renders().await? {
        let config = render.config()?;
        let time = |key: &str| {
            let own = config.get("times").and_then(|t| t.get(key));
            let ms = own.or_else(|| defaults["times"].get(key));
            ms.and_then(toml::Value::as_integer).context("no time")
        };
        for (name, spec) in nodes(render) {
            let hook = &spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
            let delay = list(hook).find_map(|w| word(w).strip_prefix("--after-ms="));
            let delay: i64 = delay.unwrap_or("0").parse()?;
            let needs = delay + time("stop_ms")?;
            ensure!(time("stop_ms")? > time("drain_window_ms")?);
            let grace = spec["terminationGracePeriodSeconds"].as_i64();
            let grace = grace.context("no grace")? * 1000;
            ensure!(
                grace >= needs + 5_000,
                "{set}, {name}: {grace} ms of grace, {needs} needed"
            );
        }
    }
    Ok(())
}

/// Ports that others may reach by the policies of a role.
pub(crate) fn allowed(render: &Render, component: &str) -> BTreeSet<u16> {
    let of = |o: &&Value| {
        o["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
    };
    render
        .of_kind("NetworkPolicy")
        .filter(of)
        .flat_map(|o| list(&o["spec"]["ingress"]))
        .flat_map(|rule| list(&rule["ports"]))
        .filter_map(|p| p["port"].as_u64()?.try_into().ok())
        .collect()
}

/// Probes answer, and the node listens just where the pod and the policies say.
pub(crate) async fn serves_as_rendered(render: &Render, pod: &Pod, component: &str) -> Result<()> {
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        pod.probe(probe).await.context(probe)?;
    }
    let declared: BTreeSet<u16> = list(&pod.plan.container["ports"])
        .filter_map(|p| p["containerPort"].as_u64()?.try_into().ok())
        .collect();
    let listens: BTreeSet<u16> = pod.listens()?.into_iter().collect();
    ensure!(
        listens == declared,
        "{}: listens on {listens:?}, declares {declared:?}",
        pod.name
    );
    let allowed = allowed(render, component);
    ensure!(
        listens == allowed,
        "{}: listens on {listens:?}, policies allow {allowed:?}",
        pod.name
    );
    Ok(())
}

/// Metrics that rules and dashboards name.
pub(crate) fn named_metrics() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in ["files/alerts", "files/dashboards"] {
        for entry in std::fs::read_dir(chart().join(folder))? {
            let text = std::fs::read_to_string(entry?.path())?;
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let words = text.split(word).filter(|w| w.starts_with("adsum_"));
            names.extend(words.map(str::to_owned));
        }
    }
    Ok(names)
}

/// The one pod of the memory store: as rendered, it starts, is ready, listens where it says, passes
/// the chart's own test, and goes in time.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_pod_lives_as_rendered() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let from = json!([{"namespaceSelector": {}}]);
    let values = json!({"networkPolicy": {"internalFrom": from}});
    let render = tools.render_of("default-pod", &values).await?;
    let cluster = Cluster::new("default-pod")?;
    let ip = cluster.addresses.take()?;
    cluster.name("adsum.presence.svc", ip);
    let (_, spec) = nodes(&render).next().context("no node")?;
    let pod = cluster.start(&render, ("adsum-gateway-0", spec), "adsum", ip, &[])?;
    pod.ready().await?;
    serves_as_rendered(&render, &pod, "gateway").await?;
    println!("{}", helm_test(&cluster, &render).await?.trim());
    let took = pod.terminate().await?;
    println!("gone after {took:.1?}");
    Ok(())
}

/// Runs the pod of `helm test`, and answers what it said.
pub(crate) async fn helm_test(cluster: &Cluster, render: &Render) -> Result<String> {
    let test = render.find("Pod", "adsum-test")?;
    ensure!(test["metadata"]["annotations"]["helm.sh/hook"] == "test");
    let ip = cluster.addresses.take()?;
    let plan = cluster.plan(render, ("adsum-test", &test["spec"]), "smoke", ip)?;
    let command = plan.command(&plan.words("command")?, &plan.words("args")?)?;
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "helm test: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The version of the chart's app is the binary's.
#[test]
fn the_chart_is_of_this_version() -> Result<()> {
    let meta = std::fs::read_to_string(chart().join("Chart.yaml"))?;
    let version = format!("appVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    ensure!(meta.contains(&version), "no {version} in Chart.yaml");
    ensure!(root().join("deploy/Dockerfile").exists());
    Ok(())
}
