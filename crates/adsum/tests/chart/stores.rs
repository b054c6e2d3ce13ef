//! The quickstart's Redis Cluster and etcd, as processes: rendered arguments, configuration and
//! bootstrap script.

use std::time::Duration;

use adsum_tests::eventually;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    pod::{Cluster, Pod, secret_data},
    tools::{Render, run, text},
};

const LIMIT: Duration = Duration::from_secs(30);

/// A StatefulSet at work.
pub(crate) struct Set {
    name: String,
    spec: Value,
    pub(crate) pods: Vec<Pod>,
}

impl Set {
    /// All pods at once, as `Parallel` says, each known by its name.
    pub(crate) fn start(cluster: &Cluster, render: &Render, name: &str) -> Result<Self> {
        let set = render.find("StatefulSet", name)?;
        ensure!(set["spec"]["podManagementPolicy"] == "Parallel");
        let count = set["spec"]["replicas"].as_u64().context("no replicas")?;
        let mut set = Self {
            name: name.to_owned(),
            spec: set["spec"]["template"]["spec"].clone(),
            pods: Vec::new(),
        };
        set.begin(cluster, render, usize::try_from(count)?)?;
        Ok(set)
    }

    fn begin(&mut self, cluster: &Cluster, render: &Render, count: usize) -> Result<()> {
        let mut pods = Vec::new();
        for n in 0..count {
            let (name, ip) = (format!("{}-{n}", self.name), cluster.addresses.take()?);
            cluster.name(&format!("{name}.{}.presence.svc", self.name), ip);
            pods.push((name, ip));
        }
        let main = self.spec["containers"][0]["name"].as_str();
        let main = main.context("no container")?.to_owned();
        for (name, ip) in pods {
            let pod = cluster.start(render, (&name, &self.spec), &main, ip, &[])?;
            self.pods.push(pod);
        }
        Ok(())
    }

    /// All pods end, and come back with their disks and with new addresses.
    pub(crate) async fn restart_elsewhere(
        &mut self,
        cluster: &Cluster,
        render: &Render,
    ) -> Result<()> {
        let stops = self.pods.iter().map(|pod| pod.process.stop());
        futures::future::try_join_all(stops).await?;
        let count = std::mem::take(&mut self.pods).len();
        self.begin(cluster, render, count)
    }

    pub(crate) async fn ready(&self) -> Result<()> {
        for pod in &self.pods {
            pod.ready().await?;
        }
        Ok(())
    }
}

/// Both, formed and ready.
pub(crate) struct Stores {
    pub(crate) redis: Set,
    _etcd: Set,
}

impl Stores {
    pub(crate) async fn start(cluster: &Cluster, render: &Render) -> Result<Self> {
        let redis = Set::start(cluster, render, "adsum-redis")?;
        let etcd = Set::start(cluster, render, "adsum-etcd")?;
        print!("{}", bootstrap(cluster, render).await?);
        redis.ready().await?;
        etcd.ready().await?;
        Ok(Self { redis, _etcd: etcd })
    }

    /// Where Redis is, with its password.
    pub(crate) fn urls(&self, render: &Render) -> Result<Vec<String>> {
        let password = &secret_data(render, "adsum-redis")?["password"];
        let url = |pod: &Pod| format!("redis://:{password}@{}:6379", pod.ip);
        Ok(self.redis.pods.iter().map(url).collect())
    }
}

/// Runs the bootstrap Job to its end, and answers what it said.
pub(crate) async fn bootstrap(cluster: &Cluster, render: &Render) -> Result<String> {
    let job = render.of_kind("Job").next().context("no Job")?;
    script(cluster, render, &job["spec"]["template"]["spec"], "create").await
}

/// Runs a container to its end.
pub(crate) async fn script(
    cluster: &Cluster,
    render: &Render,
    spec: &Value,
    container: &str,
) -> Result<String> {
    let ip = cluster.addresses.take()?;
    let plan = cluster.plan(render, ("script", spec), container, ip)?;
    let mut command = plan.command(&plan.words("command")?, &plan.words("args")?)?;
    command.env("PAUSE", "0.2");
    let output = run(&mut tokio::process::Command::from(command), 2 * LIMIT).await?;
    ensure!(output.status.success(), "{container}: {}", text(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// Keepers of all nodes of Redis: one beside each.
pub(crate) fn keepers(cluster: &Cluster, render: &Render, redis: &Set) -> Result<Vec<Pod>> {
    let keeper = |pod: &Pod| {
        let of = (pod.name.as_str(), &redis.spec);
        cluster.start(render, of, "keeper", pod.ip, &[("PAUSE", "1")])
    };
    redis.pods.iter().map(keeper).collect()
}

/// Asks one node of Redis.
pub(crate) async fn ask_redis(render: &Render, pod: &Pod, words: &[&str]) -> Result<String> {
    let password = secret_data(render, "adsum-redis")?;
    let mut cli = tokio::process::Command::new("redis-cli");
    cli.args(["-h", &pod.ip.to_string(), "-p", "6379"])
        .args(words);
    cli.env("REDISCLI_AUTH", &password["password"]);
    let output = run(&mut cli, LIMIT).await?;
    Ok(text(&output).trim().to_owned())
}

/// Masters with slots, and nodes that follow one, as a node sees them.
pub(crate) async fn roles(render: &Render, pod: &Pod) -> Result<(usize, usize)> {
    let table = ask_redis(render, pod, &["CLUSTER", "NODES"]).await?;
    let well = |line: &&str| !line.contains("fail") && line.contains("connected");
    let lines: Vec<_> = table.lines().filter(well).collect();
    let masters = lines
        .iter()
        .filter(|l| l.contains("master") && l.split(' ').count() > 8);
    let replicas = lines.iter().filter(|l| l.contains("slave"));
    Ok((masters.count(), replicas.count()))
}

/// Waits until every node sees three masters with slots and three replicas.
pub(crate) async fn redis_is_whole(render: &Render, redis: &Set) -> Result<()> {
    eventually("Redis is whole", LIMIT, || async {
        for pod in &redis.pods {
            let roles = roles(render, pod).await?;
            let table = ask_redis(render, pod, &["CLUSTER", "NODES"]).await?;
            ensure!(roles == (3, 3), "{} sees {roles:?}:\n{table}", pod.name);
            let info = ask_redis(render, pod, &["CLUSTER", "INFO"]).await?;
            ensure!(info.contains("cluster_state:ok"), "{}: {info}", pod.name);
        }
        Ok(())
    })
    .await
}
