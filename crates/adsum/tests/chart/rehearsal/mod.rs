//! The life of the chart without a kubelet: the rendered Deployments as processes behind a Service,
//! rolled and scaled as the chart says, with people at work and watchers; judged by the invariants.

mod deployment;
mod person;
mod service;
mod sight;
mod watcher;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use adsum_chaos::{Record, Times};
use adsum_gateway::auth::{NewClaims, Role, mint};
use adsum_tests::{checker, eventually, history::Event};
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use crate::{
    pod::{Cluster, secret_data},
    quickstart::TURN,
    stores::Stores,
    tools::{Render, Tools, tools, word},
};
use deployment::Deployment;
use service::Service;

/// Five times faster than the defaults: drains of 4 s, lingering of 2 s.
const SCALE: u32 = 5;
const PEOPLE: usize = 150;
const WATCHERS: usize = 10;
const TENANT: &str = "acme";

/// The quickstart at the speed of the test; `burst` is what the update changes.
async fn render(tools: &Tools, name: &str, burst: u64) -> Result<Arc<Render>> {
    let times = Times::faster(SCALE).settings().into_iter();
    let times: Map<String, Value> = times
        .map(|(key, ms)| {
            let key = key.trim_start_matches("TIMES__").to_lowercase();
            (key, Value::from(ms))
        })
        .collect();
    let values = json!({
        "files": ["values-quickstart.yaml"],
        "config": {"times": times, "limits": {"message_burst": burst}},
        "gateway": {"preStopDelaySeconds": 1, "minReadySeconds": 1},
        "dispatcher": {"minReadySeconds": 3},
    });
    Ok(Arc::new(tools.render_of(name, &values).await?))
}

/// What everybody in the load shares.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) record: Record,
    pub(crate) times: Times,
    pub(crate) server: String,
    pub(crate) calm: watch::Receiver<bool>,
    secret: Arc<str>,
}

impl Scene {
    /// A token of a user, signed with what the chart made.
    pub(crate) fn token(&self, user: &str) -> Result<String> {
        let claims = NewClaims {
            sub: Some(user.to_owned()),
            tenant: TENANT.to_owned(),
            role: Role::User,
            rooms: None,
            join: Some(vec!["*".to_owned()]),
            watch: Some(vec!["*".to_owned()]),
            see: None,
            aud: None,
            iss: None,
            nbf: None,
            // In the year 2100: the test is over by then.
            exp: 4_102_444_800,
        };
        Ok(mint(&claims, self.secret.as_bytes(), None)?)
    }

    pub(crate) fn is_calm(&self) -> bool {
        *self.calm.borrow()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_and_scaled_as_the_chart_says_and_nobody_notices() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let _turn = TURN.lock().await;
    let first = render(tools, "rehearsal-1", 400).await?;
    let update = renewed(&first, render(tools, "rehearsal-2", 401).await?)?;
    let cluster = Arc::new(Cluster::new("rehearsal")?);
    let _stores = Stores::start(&cluster, &first).await?;
    let service = Arc::new(Service::start(cluster.addresses.take()?).await?);
    let mut gateways = Deployment::new(&cluster, &first, "adsum-gateway", Some(&service))?;
    let mut dispatchers = Deployment::new(&cluster, &first, "adsum-dispatcher", None)?;
    dispatchers.scale(2).await?;
    gateways.scale(2).await?;
    settled(&dispatchers, &gateways).await?;

    let (calm, calmed) = watch::channel(false);
    let scene = Scene {
        record: Record::default(),
        times: Times::faster(SCALE),
        server: format!("ws://{}", service.address()),
        calm: calmed,
        secret: secret_data(&first, "adsum-auth")?["hs256"].as_str().into(),
    };
    let mut load = JoinSet::new();
    for n in 0..PEOPLE {
        load.spawn(person::live(scene.clone(), n));
    }
    for n in 0..WATCHERS {
        load.spawn(watcher::live(scene.clone(), n));
    }
    everybody_is_there(&gateways).await?;

    let begun = Instant::now();
    let told = |what: &str| println!("{:>5.1?} s {what}", begun.elapsed().as_secs_f32());
    gateways.roll(&update).await?;
    told("gateways are rolled");
    dispatchers.roll(&update).await?;
    told("dispatchers are rolled");
    gateways.scale(4).await?;
    told("4 gateways");
    dispatchers.scale(3).await?;
    told("3 dispatchers");
    gateways.scale(2).await?;
    told("2 gateways");
    dispatchers.scale(2).await?;
    told("2 dispatchers");
    gateways.roll(&first).await?;
    told("gateways are rolled back");

    calm.send_replace(true);
    scene.record.note(Event::Calm);
    everybody_is_there(&gateways).await?;
    sleep(scene.times.of(45_000) + Duration::from_secs(2)).await;
    scene.record.note(Event::End);
    load.shutdown().await;
    judge(&scene, &gateways, &dispatchers)
}

/// The update as an upgrade would make it: Secrets that the chart made stay, by `lookup`.
fn renewed(old: &Render, new: Arc<Render>) -> Result<Arc<Render>> {
    let sum = |render: &Render| {
        let pods = render.find("Deployment", "adsum-gateway")?;
        let notes = &pods["spec"]["template"]["metadata"]["annotations"];
        anyhow::Ok(word(&notes["checksum/config"]).to_owned())
    };
    ensure!(sum(old)? != sum(&new)?, "the update would roll nothing");
    let mut objects = new.objects.clone();
    for object in objects.iter_mut().filter(|o| o["kind"] == "Secret") {
        *object = old
            .find("Secret", word(&object["metadata"]["name"]))?
            .clone();
    }
    Ok(Arc::new(Render {
        objects,
        notes: String::new(),
    }))
}

/// Every shard has settled, and every gateway is fed.
async fn settled(dispatchers: &Deployment, gateways: &Deployment) -> Result<()> {
    eventually("all shards settle", Duration::from_secs(60), || async {
        for pod in dispatchers.pods() {
            let shards = pod.get("internal", "/admin/shards").await?;
            let settling = shards.matches("\"settling\":true").count();
            ensure!(settling == 0, "{settling} shards settle");
        }
        for pod in gateways.pods() {
            let stale = pod.metric("adsum_feed_stale_shards").await?;
            ensure!(stale == 0.0, "{stale} shards have no source");
        }
        Ok(())
    })
    .await
}

/// Nearly all people are connected, somewhere.
async fn everybody_is_there(gateways: &Deployment) -> Result<()> {
    eventually("people are there", Duration::from_secs(60), || async {
        let mut sessions = 0.0;
        for pod in gateways.pods() {
            sessions += pod.metric("adsum_sessions").await?;
        }
        let most = (PEOPLE + WATCHERS) as f64 * 0.9;
        ensure!(sessions >= most, "only {sessions} sessions");
        Ok(())
    })
    .await
}

fn judge(scene: &Scene, gateways: &Deployment, dispatchers: &Deployment) -> Result<()> {
    for deployment in [gateways, dispatchers] {
        deployment.check()?;
    }
    let (actions, observations) = scene.record.counts();
    let history = scene.record.take(0);
    let count =
        |what: fn(&Event) -> bool| history.entries.iter().filter(|e| what(&e.event)).count();
    println!(
        "{actions} actions, {observations} observations; {} connections, {} of watchers",
        count(|e| matches!(e, Event::Hello { .. })),
        count(|e| matches!(e, Event::Watching { .. })),
    );
    ensure!(
        count(|e| matches!(e, Event::Watching { .. })) > WATCHERS,
        "no watcher was ever sent elsewhere"
    );
    let violations = checker::check(&history, &scene.times.bounds());
    let stories: Vec<_> = violations.iter().map(ToString::to_string).collect();
    ensure!(stories.is_empty(), "{}", stories.join("\n"));
    Ok(())
}
