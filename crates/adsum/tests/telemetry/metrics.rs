//! A real Prometheus scrapes a cluster: what it reads, what dashboards and rules ask it for, and
//! what the documentation says must be one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    process::Command,
    time::Duration,
};

use adsum_tests::{Node, Ports, Process, eventually};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    http::{get, quoted, request},
    rules::{alerts, dashboard_queries, names, promtool, root, rules},
    world::World,
    ws::{Client, joins},
};

const WITHIN: Duration = Duration::from_secs(40);

struct Prometheus {
    address: SocketAddr,
    process: Process,
    _ports: Ports,
}

impl Prometheus {
    async fn start(world: &World, nodes: &[&Node]) -> Result<Self> {
        let ports = Ports::default();
        let address = SocketAddr::from(([127, 0, 0, 1], ports.take()?));
        let targets: Vec<_> = nodes.iter().map(|n| n.internal().to_string()).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules()],
            "scrape_configs": [{"job_name": "adsum", "static_configs": [{"targets": targets}]}],
        });
        let file = world.dir.path().join("prometheus.json");
        // JSON is YAML.
        fs::write(&file, config.to_string())?;
        let data = world.dir.folder("prometheus-data")?;
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        command.arg("--enable-feature=exemplar-storage");
        let process = Process::start(world.dir.path(), "prometheus", command)?;
        Ok(Self {
            address,
            process,
            _ports: ports,
        })
    }

    async fn api(&self, path: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&get(self.address, path).await?)?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    /// What a query finds.
    async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/query?query={}", quoted(query));
        let data = self.api(&path).await.with_context(|| query.to_owned())?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }
}

/// What a node exposes: names of families with their types.
fn families(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    let pairs = types.filter_map(|l| l.split_once(' '));
    pairs.map(|(n, t)| (n.to_owned(), t.to_owned())).collect()
}

/// The second column of the tables in `docs/metrics.md`.
fn documented() -> Result<BTreeMap<String, String>> {
    let page = fs::read_to_string(root().join("docs/metrics.md"))?;
    let rows = page.lines().filter(|l| l.starts_with("| `"));
    let cell = |row: &str| {
        let mut cells = row.split(" | ").skip(1);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let kind = cells.next()?.split(';').next()?;
        Some((name.to_owned(), kind.to_owned()))
    };
    Ok(rows.filter_map(cell).collect())
}

async fn traffic(a: &Node, b: &Node) -> Result<()> {
    let watch = json!({"watch": [{"topic": "room:lobby"}, {"topic": "user:ann"}]});
    let mut bob = Client::hello(b.public(), "bob", watch).await?;
    // Each topic has its own: who joins before the room's is in it, and in no diff.
    let mut awaited = BTreeSet::from(["room:lobby", "user:ann"]);
    while !awaited.is_empty() {
        let frame = bob.hear("presence_state").await?;
        awaited.retain(|topic| frame["topic"] != *topic);
    }
    let trace = "00-0000000000000000000000000000000a-000000000000000b-01";
    for n in 0..20 {
        let user = format!("user-{n}");
        let more = json!({"rooms": [{"room": "lobby"}], "traceparent": trace});
        let mut one = Client::hello(a.public(), &user, more).await?;
        bob.hear_one(joins(&user)).await?;
        one.say(json!({"type": "leave", "ref": "bye"}))?;
        one.answer("bye").await?;
    }
    // A token that is none, and one who is gone without a word.
    let heads = [("authorization", "Bearer nonsense")];
    let (status, _, _) = request(a.public(), "GET /v1/users/ann", &heads, "").await?;
    ensure!(status == 401, "{status}");
    drop(Client::hello(a.public(), "gone", json!({})).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_finds_all_that_is_promised() -> Result<()> {
    let world = World::new("telemetry metrics").await?;
    // Traced, so that there are exemplars; to a collector that is not there, which harms nobody.
    let traced = |options: adsum_tests::NodeOptions| {
        options
            .with("TELEMETRY__ENDPOINT", "http://127.0.0.1:9")
            .with("TELEMETRY__TENANTS", "[\"acme\"]")
    };
    let dispatcher = world.node("disp", "dispatcher", traced).await?;
    let reaper = world.node("reap", "reaper", traced).await?;
    let a = world.node("gw-a", "gateway", traced).await?;
    let b = world.node("gw-b", "gateway", traced).await?;
    let nodes = [&a, &b, &dispatcher, &reaper];
    World::settled(&dispatcher, &reaper).await?;
    let prometheus = Prometheus::start(&world, &nodes).await?;
    let up = eventually("it scrapes all nodes", WITHIN, || async {
        let up = prometheus.query("up == 1").await?;
        ensure!(up.len() == nodes.len(), "{up:?}");
        Ok(())
    });
    prometheus.process.while_running(up).await?;
    traffic(&a, &b).await?;

    // What nodes say is right by promtool, and is what the documentation says.
    let mut exposed = BTreeMap::new();
    for node in nodes {
        let text = get(node.internal(), "/metrics").await?;
        let file = world.dir.path().join("metrics.txt");
        fs::write(&file, &text)?;
        let output = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(fs::File::open(&file)?)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.trim().is_empty(),
            "{}: {said}",
            node.name()
        );
        exposed.extend(families(&text));
    }
    let documented = documented()?;
    ensure!(exposed == documented, "{exposed:#?}\n{documented:#?}");
    println!(
        "{} families, checked by promtool and as documented",
        exposed.len()
    );

    // Open metrics for who asks for them: with exemplars.
    let heads = [("accept", "application/openmetrics-text;version=1.0.0")];
    let (_, head, text) = request(b.internal(), "GET /metrics", &heads, "").await?;
    ensure!(head.contains("application/openmetrics-text"), "{head}");
    ensure!(text.ends_with("# EOF\n") && text.contains(" # {trace_id=\""));

    // Every query of the dashboards and the rules can be asked, and names what exists.
    let queries = dashboard_queries()?;
    let rules = alerts()?;
    let asked = queries.iter().chain(rules.iter().map(|(_, expr, _)| expr));
    let asked: Vec<_> = asked.cloned().collect();
    for query in &asked {
        prometheus.query(query).await?;
    }
    let named: BTreeSet<_> = asked.iter().flat_map(|query| names(query)).collect();
    for name in &named {
        let query = format!("count({{__name__=\"{name}\"}})");
        ensure!(
            !prometheus.query(&query).await?.is_empty(),
            "nobody has {name}"
        );
    }
    println!(
        "{} queries and {} alert expressions asked; {} series, all there",
        queries.len(),
        rules.len(),
        named.len()
    );
    let groups = prometheus.api("/api/v1/rules").await?;
    let of = groups["groups"][0]["rules"]
        .as_array()
        .context("no rules")?;
    ensure!(of.len() == rules.len());
    for rule in of {
        ensure!(
            rule["health"] == "ok" || rule["health"] == "unknown",
            "{rule}"
        );
    }

    // Numbers that say something, and exemplars in them.
    eventually("the numbers are there", WITHIN, || async {
        for (query, least) in [
            (
                "sum(adsum_fanout_duration_seconds_count{hop=\"commit\"})",
                20.0,
            ),
            (
                "sum(adsum_fanout_duration_seconds_count{hop=\"route\"})",
                20.0,
            ),
            (
                "sum(adsum_fanout_duration_seconds_count{hop=\"deliver\"})",
                20.0,
            ),
            (
                "sum(adsum_fanout_duration_seconds_count{hop=\"total\"})",
                20.0,
            ),
            (
                "sum(adsum_detection_duration_seconds_count{reason=\"leave\"})",
                20.0,
            ),
            (
                "sum(adsum_detection_duration_seconds_count{reason=\"disconnect\"})",
                1.0,
            ),
            ("sum(adsum_deliveries_total)", 20.0),
            ("sum(adsum_subscriptions)", 0.0),
            ("sum(adsum_auth_failures_total{reason=\"malformed\"})", 1.0),
            ("sum(adsum_reaper_shards)", 64.0),
            ("count(adsum_reaper_owner)", 64.0),
            ("sum(adsum_holder_renewals_total{outcome=\"ok\"})", 64.0),
            (
                "sum(adsum_registry_call_duration_seconds_count{operation=\"keep_alive\"})",
                4.0,
            ),
        ] {
            let found = prometheus.query(query).await?;
            let value = found.first().and_then(|v| v["value"][1].as_str());
            let value: f64 = value.context(query)?.parse()?;
            ensure!(value >= least, "{query} is {value}");
        }
        let lost = prometheus.query("adsum_sessions_lost_total > 0").await?;
        ensure!(lost.is_empty(), "{lost:?}");
        let query = quoted("adsum_fanout_duration_seconds_bucket{hop=\"total\"}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let (from, to) = (now.as_secs() - 600, now.as_secs() + 1);
        let path = format!("/api/v1/query_exemplars?query={query}&start={from}&end={to}");
        let exemplars = prometheus.api(&path).await?;
        // One change in a hundred is traced besides, and may have been faster.
        let mut found = (exemplars.as_array().into_iter().flatten())
            .flat_map(|series| series["exemplars"].as_array().into_iter().flatten());
        let is_ours = |e: &Value| e["labels"]["trace_id"] == "0000000000000000000000000000000a";
        ensure!(found.any(is_ours), "{exemplars}");
        Ok(())
    })
    .await?;

    // With the registry gone: `/readyz` says so and since when, and the alert's expression is true.
    let before = a.readyz().await?;
    let since = |ready: &Value| ready["dependencies"]["membership"]["since"].as_u64();
    ensure!(
        before["dependencies"]["membership"]["ok"] == true,
        "{before}"
    );
    world.etcd.stop_all().await?;
    eventually("etcd is missed", WITHIN, || async {
        let ready = a.readyz().await?;
        let line = &ready["dependencies"]["membership"];
        ensure!(line["ok"] == false && line["error"].is_string(), "{ready}");
        ensure!(
            since(&ready) > since(&before) && ready["ready"] == true,
            "{ready}"
        );
        let stale = prometheus.query("adsum_membership_stale == 1").await?;
        ensure!(stale.len() == nodes.len(), "{stale:?}");
        let alerts = prometheus.api("/api/v1/alerts").await?;
        let pending = alerts["alerts"].as_array().into_iter().flatten();
        let names: BTreeSet<_> = pending
            .filter_map(|a| a["labels"]["alertname"].as_str())
            .collect();
        for name in ["AdsumEtcdUnreachable", "AdsumReaperIdle"] {
            ensure!(names.contains(name), "{names:?}");
        }
        Ok(())
    })
    .await?;
    let text = promtool(&["--version"], &root())?;
    println!("{}", text.lines().next().unwrap_or_default());
    Ok(())
}
