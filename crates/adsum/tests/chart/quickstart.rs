//! The quickstart for real: one render, brought to life as processes. Its bootstrap, twice; nodes
//! that come back elsewhere; the chart's own test against all of it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use adsum_tests::eventually;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    contract::{helm_test, named_metrics, nodes, serves_as_rendered},
    pod::{Cluster, Pod, is_metric},
    stores::{Set, Stores, ask_redis, bootstrap, keepers, redis_is_whole, script},
    tools::{Render, Tools, list, tools},
};

/// A whole cluster at a time on a small machine.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

/// The quickstart with times that tests can wait for.
async fn quickstart(tools: &Tools) -> Result<Render> {
    let values = json!({
        "files": ["values-quickstart.yaml"],
        "config": {"times": {
            "heartbeat_ms": 1500, "session_ttl_ms": 4500, "linger_ms": 1000, "ack_timeout_ms": 500,
            "renew_ms": 500, "stuck_ms": 1000, "holder_ttl_ms": 3000, "alive_gap_ms": 1000,
            "drain_window_ms": 2000, "stop_ms": 6000, "lease_ttl_ms": 2000,
        }},
        "gateway": {"preStopDelaySeconds": 1},
        "networkPolicy": {"internalFrom": [{"namespaceSelector": {}}]},
    });
    tools.render_of("quickstart-pods", &values).await
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_made_a_cluster_once_and_finds_itself_again() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let _turn = TURN.lock().await;
    let render = quickstart(tools).await?;
    let cluster = Cluster::new("quickstart-redis")?;
    let mut redis = Set::start(&cluster, &render, "adsum-redis")?;
    let begun = Instant::now();
    let said = bootstrap(&cluster, &render).await?;
    ensure!(said.contains("takes slots 0 to 5460"), "{said}");
    println!("the bootstrap took {:.1?}", begun.elapsed());
    redis_is_whole(&render, &redis).await?;
    let before = table(&render, &redis).await?;
    let masters: BTreeSet<_> = before
        .iter()
        .filter_map(|row| row.split_once(" replica ")?.1.split(' ').next())
        .collect();
    ensure!(masters.len() == 3, "a master has no replica: {before:?}");

    let said = bootstrap(&cluster, &render).await?;
    ensure!(said.contains("shared out already"), "{said}");
    ensure!(
        !said.contains("takes") && !said.contains("follows"),
        "{said}"
    );
    ensure!(
        table(&render, &redis).await? == before,
        "it changed something"
    );

    ask_redis(&render, &redis.pods[0], &["-c", "SET", "kept", "yes"]).await?;
    ask_redis(&render, &redis.pods[0], &["-c", "WAIT", "1", "2000"]).await?;
    redis.restart_elsewhere(&cluster, &render).await?;
    let begun = Instant::now();
    let _keepers = keepers(&cluster, &render, &redis)?;
    redis_is_whole(&render, &redis).await?;
    println!("at new addresses it is whole after {:.1?}", begun.elapsed());
    let kept = ask_redis(&render, &redis.pods[0], &["-c", "GET", "kept"]).await?;
    ensure!(kept == "yes", "{kept}");

    // A node that lost its disk comes back as a replica, by its keeper alone.
    let lost = &redis.pods[5];
    ask_redis(&render, lost, &["CLUSTER", "RESET", "HARD"]).await?;
    eventually("the lost one follows", Duration::from_secs(30), || async {
        let own = ask_redis(&render, lost, &["CLUSTER", "NODES"]).await?;
        let own = own.lines().find(|l| l.contains("myself")).unwrap_or("");
        ensure!(own.contains("slave"), "{own}");
        Ok(())
    })
    .await
}

/// Who is who: ids, roles and slots.
async fn table(render: &Render, redis: &Set) -> Result<Vec<String>> {
    let text = ask_redis(render, &redis.pods[0], &["CLUSTER", "NODES"]).await?;
    let mut rows: Vec<String> = text
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let role = if words[2].contains("master") {
                "master"
            } else {
                "replica"
            };
            format!("{} {role} {} {}", words[0], words[3], words[8..].join(" "))
        })
        .collect();
    rows.sort_unstable();
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_the_same_after_a_second_start() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let render = tools.render("quickstart").await?;
    let cluster = Cluster::new("quickstart-etcd")?;
    let etcd = Set::start(&cluster, render, "adsum-etcd")?;
    etcd.ready().await?;
    let first = members(&etcd.pods[0]).await?;
    ensure!(first.len() == 3, "{first:?}");
    // "kept" and "yes", in base64.
    let entry = json!({"key": "a2VwdA==", "value": "eWVz"});
    etcd.pods[0].post("client", "/v3/kv/put", &entry).await?;
    for pod in &etcd.pods {
        pod.process.stop().await?;
    }
    // The same arguments again, and the same disks: the bootstrap runs a second time.
    for pod in &etcd.pods {
        pod.process.restart().await?;
    }
    etcd.ready().await?;
    let key = json!({"key": "a2VwdA=="});
    let kept = etcd.pods[2].post("client", "/v3/kv/range", &key).await?;
    ensure!(kept["kvs"][0]["value"] == "eWVz", "{kept}");
    ensure!(members(&etcd.pods[1]).await? == first);
    Ok(())
}

/// Ids and names of all members, as one knows them.
async fn members(pod: &Pod) -> Result<BTreeSet<(String, String)>> {
    let listed = pod
        .post("client", "/v3/cluster/member/list", &json!({}))
        .await?;
    let member = |m: &Value| (m["ID"].to_string(), m["name"].to_string());
    Ok(list(&listed["members"]).map(member).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_install_gives_a_cluster_that_passes_its_own_test() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let _turn = TURN.lock().await;
    let render = quickstart(tools).await?;
    let cluster = Cluster::new("quickstart")?;
    let stores = Stores::start(&cluster, &render).await?;
    let mut pods = Vec::new();
    for (name, spec) in nodes(&render) {
        // What waits for Redis ends at once, since it is there.
        script(&cluster, &render, spec, "wait-for-redis").await?;
        let (pod, ip) = (format!("{name}-0"), cluster.addresses.take()?);
        pods.push(cluster.start(&render, (&pod, spec), "adsum", ip, &[])?);
    }
    let find = |what: &str| {
        let found = pods.iter().find(|p| p.name.contains(what));
        found.with_context(|| format!("no {what}"))
    };
    let (gateway, dispatcher) = (find("gateway")?, find("dispatcher")?);
    for pod in &pods {
        pod.ready().await?;
    }
    cluster.name("adsum.presence.svc", gateway.ip);
    serves_as_rendered(&render, gateway, "gateway").await?;
    serves_as_rendered(&render, dispatcher, "dispatcher").await?;
    // The certificates that the chart made carry the feed.
    eventually("the gateway is fed", Duration::from_secs(30), || async {
        let fed = gateway.metric("adsum_feed_dispatchers").await?;
        let stale = gateway.metric("adsum_feed_stale_shards").await?;
        ensure!(fed == 1.0 && stale == 0.0, "fed by {fed}, {stale} stale");
        Ok(())
    })
    .await?;
    println!("{}", helm_test(&cluster, &render).await?.trim());

    let mut known = gateway.get("internal", "/metrics").await?;
    known += &dispatcher.get("internal", "/metrics").await?;
    for name in named_metrics()? {
        let has = |line: &str| is_metric(line, &name);
        ensure!(known.lines().any(has), "nobody has a metric {name}");
    }
    for pod in [gateway, dispatcher] {
        println!("{} is gone after {:.1?}", pod.name, pod.terminate().await?);
    }
    redis_is_whole(&render, &stores.redis).await
}
