//! What is rendered: valid for every release of Kubernetes that is promised, safe by checkov's
//! measure, and true to what we promise ourselves.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::tools::{Render, list, root, run, text, tools, word};

/// The oldest, one between and one of the newest that the chart is for.
const RELEASES: [&str; 3] = ["1.29", "1.32", "1.35"];
const SETS: [&str; 5] = [
    "default",
    "minimal",
    "quickstart",
    "production",
    "everything",
];
/// Kinds of other projects, whose schemas are not among those of Kubernetes.
const FOREIGN: [&str; 5] = [
    "Certificate",
    "GRPCRoute",
    "HTTPRoute",
    "PrometheusRule",
    "ServiceMonitor",
];

/// What checkov finds in production and is meant so.
const MEANT: [(&str, &str); 2] = [
    (
        "CKV_K8S_11",
        "no CPU limits: a gateway that is throttled renews and beats too late, and everybody sees \
         it; requests guarantee its share",
    ),
    (
        "CKV_K8S_35",
        "passwords of Redis and etcd are variables: that is where the binary takes them from; keys \
         and certificates are files",
    ),
];

#[tokio::test]
async fn every_render_is_linted_and_valid_for_every_release() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let renders = tools.renders().await?;
    ensure!(renders.keys().map(String::as_str).eq(sorted(&SETS)));
    let files: Vec<_> = SETS.iter().map(|set| tools.yaml(set)).collect();
    for release in RELEASES {
        let mut args = vec!["validate", release];
        args.extend(files.iter().map(String::as_str));
        let said: Value = serde_json::from_str(&tools.chart_py(&args).await?)?;
        println!("Kubernetes {release}: {said}");
        ensure!(said["checked"].as_u64() > Some(60), "{said}");
        ensure!(
            list(&said["unknown"]).map(word).eq(FOREIGN),
            "kinds without a schema: {said}"
        );
    }
    Ok(())
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn checkov_finds_nothing_in_production_but_what_is_meant() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    tools.renders().await?;
    let mut checkov = tools.tool("checkov");
    checkov.args(["--framework", "kubernetes", "--output", "json"]);
    // Its texts for people come from the network; its checks don't.
    checkov.args(["--compact", "--quiet", "--skip-download", "--file"]);
    checkov.arg(tools.yaml("production"));
    let output = run(&mut checkov, Duration::from_secs(120)).await?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("checkov says {}", text(&output)))?;
    println!("checkov: {}", report["summary"]);
    ensure!(
        report["summary"]["passed"].as_u64() > Some(150),
        "{}",
        report["summary"]
    );
    ensure!(
        report["summary"]["parsing_errors"] == 0,
        "{}",
        report["summary"]
    );
    let mut found = BTreeSet::new();
    for check in list(&report["results"]["failed_checks"]) {
        let id = word(&check["check_id"]);
        ensure!(
            MEANT.iter().any(|(meant, _)| *meant == id),
            "{id} {}: {}",
            check["resource"],
            check["check_name"]
        );
        found.insert(id.to_owned());
    }
    for (id, reason) in MEANT {
        ensure!(found.contains(id), "{id} is not found any more: {reason}");
    }
    Ok(())
}

/// What the restricted profile of Kubernetes asks for, and a little more.
#[tokio::test]
async fn every_pod_is_restricted_and_has_no_token() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    for (set, render) in tools.renders().await? {
        for (name, pod) in render.pods() {
            let at = format!("{set}: {name}");
            ensure!(pod["automountServiceAccountToken"] == false, "{at}: token");
            // Services called adsum would give variables that begin like settings.
            ensure!(pod["enableServiceLinks"] == false, "{at}: service links");
            let security = &pod["securityContext"];
            ensure!(security["runAsNonRoot"] == true, "{at}: root");
            ensure!(
                security["seccompProfile"]["type"] == "RuntimeDefault",
                "{at}: seccomp"
            );
            for container in list(&pod["containers"]).chain(list(&pod["initContainers"])) {
                let security = &container["securityContext"];
                ensure!(
                    security["allowPrivilegeEscalation"] == false,
                    "{at}: privileges"
                );
                ensure!(
                    security["readOnlyRootFilesystem"] == true,
                    "{at}: root folder"
                );
                ensure!(
                    security["capabilities"]["drop"][0] == "ALL",
                    "{at}: capabilities"
                );
            }
        }
        for account in render.of_kind("ServiceAccount") {
            ensure!(account["automountServiceAccountToken"] == false, "{set}");
        }
    }
    Ok(())
}

/// Every selector finds pods of the render, and only those that are meant.
#[tokio::test]
async fn selectors_find_their_pods() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    for (set, render) in tools.renders().await? {
        let labels: Vec<&Value> = render
            .objects
            .iter()
            .filter_map(|o| match word(&o["kind"]) {
                "Pod" => Some(&o["metadata"]["labels"]),
                "Deployment" | "StatefulSet" | "Job" => {
                    Some(&o["spec"]["template"]["metadata"]["labels"])
                }
                _ => None,
            })
            .collect();
        let mut selectors = Vec::new();
        for object in &render.objects {
            let name = format!("{set}: {} {}", object["kind"], object["metadata"]["name"]);
            match word(&object["kind"]) {
                "Service" => selectors.push((name, &object["spec"]["selector"])),
                "Deployment" | "StatefulSet" | "PodDisruptionBudget" => {
                    selectors.push((name, &object["spec"]["selector"]["matchLabels"]));
                }
                "NetworkPolicy" => {
                    let own = &object["spec"]["podSelector"]["matchLabels"];
                    selectors.push((name.clone(), own));
                    let rules = list(&object["spec"]["ingress"])
                        .flat_map(|r| list(&r["from"]))
                        .chain(list(&object["spec"]["egress"]).flat_map(|r| list(&r["to"])));
                    for peer in rules.filter(|p| p["podSelector"].is_object()) {
                        selectors.push((name.clone(), &peer["podSelector"]["matchLabels"]));
                    }
                }
                _ => {}
            }
        }
        for (name, selector) in selectors {
            let wanted = selector
                .as_object()
                .with_context(|| format!("{name}: no selector"))?;
            let fits = |have: &&&Value| wanted.iter().all(|(k, v)| have.get(k) == Some(v));
            let found = labels.iter().filter(fits).count();
            // All roles have metrics; everything else is one role's.
            let enough = if name.contains("-metrics") {
                1..=2
            } else {
                1..=1
            };
            // Named by policies, and only there when it can make a token.
            let test = wanted.get("app.kubernetes.io/component") == Some(&Value::from("test"));
            ensure!(
                enough.contains(&found) || (test && found == 0),
                "{name} finds {found}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn objects_of_other_projects_are_as_they_want_them() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let render = tools.render("everything").await?;
    let service = render.find("Service", "adsum-presence")?;
    let ports: Vec<_> = list(&service["spec"]["ports"])
        .map(|p| &p["port"])
        .collect();
    for (kind, port) in [("HTTPRoute", 0), ("GRPCRoute", 1)] {
        let route = render.of_kind(kind).next().context(kind)?;
        ensure!(route["apiVersion"] == "gateway.networking.k8s.io/v1");
        ensure!(route["spec"]["parentRefs"][0]["name"] == "edge");
        let backend = &route["spec"]["rules"][0]["backendRefs"][0];
        ensure!(backend["name"] == service["metadata"]["name"], "{backend}");
        ensure!(&backend["port"] == ports[port], "{backend}");
    }
    let monitor = render
        .of_kind("ServiceMonitor")
        .next()
        .context("ServiceMonitor")?;
    let metrics = render.find("Service", "adsum-presence-metrics")?;
    for (key, value) in monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .context("no selector")?
    {
        ensure!(&metrics["metadata"]["labels"][key] == value, "{key}");
    }
    let endpoint = &monitor["spec"]["endpoints"][0];
    ensure!(endpoint["port"] == metrics["spec"]["ports"][0]["name"]);
    ensure!(endpoint["path"] == "/metrics");
    // What rules and dashboards go by, though nothing in this render is called adsum-metrics.
    let job = &endpoint["relabelings"][0];
    ensure!(job["targetLabel"] == "job" && job["replacement"] == "adsum");
    let certificate = render
        .of_kind("Certificate")
        .next()
        .context("Certificate")?;
    let feed = render.config()?;
    let domain = feed["feed"]["domain"].as_str();
    ensure!(certificate["spec"]["dnsNames"][0].as_str() == domain);
    let mounted = |v: &&Value| v["secret"]["secretName"] == certificate["spec"]["secretName"];
    for name in ["gateway", "dispatcher"] {
        let pods = render.find("Deployment", &format!("adsum-presence-{name}"))?;
        let volumes = &pods["spec"]["template"]["spec"]["volumes"];
        ensure!(list(volumes).any(|v| mounted(&v)), "{name}: {volumes}");
    }
    rules(render)
}

/// Alert rules: each names what it watches, how bad it is and what to do.
fn rules(render: &Render) -> Result<()> {
    let rule = render
        .of_kind("PrometheusRule")
        .next()
        .context("PrometheusRule")?;
    let groups: Vec<_> = list(&rule["spec"]["groups"]).collect();
    ensure!(!groups.is_empty());
    for alert in groups.iter().flat_map(|g| list(&g["rules"])) {
        if alert["record"].is_string() {
            continue;
        }
        ensure!(
            alert["alert"].is_string() && alert["expr"].is_string(),
            "{alert}"
        );
        ensure!(alert["labels"]["severity"].is_string(), "{alert}");
        ensure!(alert["annotations"]["summary"].is_string(), "{alert}");
        let page = word(&alert["annotations"]["runbook_url"]);
        let name = page.strip_prefix("https://docs.example.com/runbooks/");
        let name = name.with_context(|| format!("{page} is not below runbookBase"))?;
        ensure!(root().join("docs/runbooks").join(name).exists(), "{page}");
    }
    let boards = render.find("ConfigMap", "adsum-presence-dashboards")?;
    let boards = boards["data"].as_object().context("no dashboards")?;
    ensure!(!boards.is_empty());
    for (name, board) in boards {
        let board: Value = serde_json::from_str(word(board)).with_context(|| name.clone())?;
        ensure!(
            board["uid"].is_string() && board["title"].is_string(),
            "{name}"
        );
    }
    Ok(())
}

/// A collector can be reached at the port where the binary looks for it, and only if there is one.
#[tokio::test]
async fn policies_let_telemetry_out() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    for (endpoint, port) in [
        ("", None),
        ("http://collector:4318", Some(4318)),
        ("https://collector.monitoring.svc:4317/", Some(4317)),
        ("http://[fd00::1]:4319/otlp", Some(4319)),
        ("http://[fd00::1]", Some(80)),
        ("http://collector", Some(80)),
        ("https://collector/otlp:1", Some(443)),
    ] {
        let values = json!({
            "files": ["values-quickstart.yaml"],
            "config": {"telemetry": {"endpoint": endpoint}},
        });
        let render = tools.render_of("collector", &values).await?;
        for name in ["adsum-gateway", "adsum-dispatcher"] {
            let policy = render.find("NetworkPolicy", name)?;
            // To anywhere, as DNS, which is first.
            let open = list(&policy["spec"]["egress"]).skip(1);
            let open = open.filter(|rule| rule["to"].is_null());
            let ports: Vec<_> = open.flat_map(|rule| list(&rule["ports"])).collect();
            let found: Vec<_> = ports.iter().filter_map(|p| p["port"].as_u64()).collect();
            let wanted: Vec<u64> = port.into_iter().collect();
            ensure!(found == wanted, "{name}, {endpoint:?}: {found:?}");
        }
    }
    Ok(())
}

/// Nothing that the notes tell people to do names what is not there.
#[tokio::test]
async fn notes_name_what_is_there() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    for (set, render) in tools.renders().await? {
        for found in render.notes.split_whitespace() {
            let Some((kind, name)) = found.split_once('/') else {
                continue;
            };
            let kind = match kind {
                "deploy" => "Deployment",
                "svc" => "Service",
                _ => continue,
            };
            render
                .find(kind, name)
                .with_context(|| format!("the notes of {set}"))?;
        }
        ensure!(render.notes.contains("port-forward"), "{set}");
        // A pod to run, and a line that says so, or neither.
        let test = render.of_kind("Pod").next().is_some();
        ensure!(render.notes.contains(" test adsum") == test, "{set}");
    }
    // A certificate is for a name, and hardly for this one.
    let everything = &tools.render("everything").await?.notes;
    let join = "--server wss://presence.example.com:8080 --ca";
    ensure!(everything.contains(join), "{everything}");
    let production = &tools.render("production").await?.notes;
    ensure!(!production.contains("chart's own"), "{production}");
    Ok(())
}
