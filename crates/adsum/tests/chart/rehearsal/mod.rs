//! The life of the chart without a kubelet: the rendered Deployments as processes behind a Service,
//! rolled and scaled as the chart says, under a cast of clients and watchers; judged by the
//! invariants, without an excuse for anything.

mod deployment;
mod fleet;
mod service;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use adsum_chaos::{
    Record, Times,
    cast::{Bearer, Cast, Gate, Passes, Size, Stage},
    witness,
};
use adsum_gateway::auth::{NewClaims, Role, mint};
use adsum_tests::{checker, eventually, history::Event};
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use crate::{
    pod::{Cluster, secret_data},
    quickstart::TURN,
    stores::Stores,
    tools::{Render, Tools, tools, word},
};
use deployment::Deployment;
use fleet::Fleet;
use service::Service;

/// Five times faster than the defaults: drains of 4 s, lingering of 2 s.
const SCALE: u32 = 5;
const CLIENTS: usize = 200;
const SEED: u64 = 7;
/// As the chart has them.
const SHARDS: u16 = 64;
const LOG_LEN: u64 = 10_000;

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
        "config": {
            "times": times,
            "limits": {"message_burst": burst},
            "log": {"filter": witness::FILTER, "json": true},
        },
        "gateway": {"preStopDelaySeconds": 1, "minReadySeconds": 1},
        "dispatcher": {"minReadySeconds": 3},
    });
    Ok(Arc::new(tools.render_of(name, &values).await?))
}

/// A token of a user or a service, signed with what the chart made.
fn pass(secret: &str, bearer: Bearer<'_>) -> Result<String> {
    let everything = || Some(vec!["*".to_owned()]);
    let claims = NewClaims {
        sub: bearer.user.map(str::to_owned),
        tenant: bearer.tenant.to_owned(),
        role: match bearer.user {
            Some(_) => Role::User,
            None => Role::Service,
        },
        rooms: None,
        join: everything(),
        watch: everything(),
        see: bearer.all.then(|| "all".to_owned()),
        aud: None,
        iss: None,
        nbf: None,
        // In the year 2100: the test is over by then.
        exp: 4_102_444_800,
    };
    Ok(mint(&claims, secret.as_bytes(), None)?)
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
    let stores = Stores::start(&cluster, &first).await?;
    let service = Arc::new(Service::start(cluster.addresses.take()?).await?);
    let fleet = Arc::new(Fleet::default());
    let made = |name, service| Deployment::new(&cluster, &first, &fleet, name, service);
    let mut gateways = made("adsum-gateway", Some(&service))?;
    let mut dispatchers = made("adsum-dispatcher", None)?;
    dispatchers.scale(2).await?;
    gateways.scale(2).await?;
    settled(&dispatchers, &gateways).await?;

    let (record, times) = (Record::default(), Times::faster(SCALE));
    let store = witness::store(stores.urls(&first)?, times, SHARDS, LOG_LEN).await?;
    let mut witnesses = witness::logs(&store, SHARDS, LOG_LEN, &record);
    witnesses.spawn(fleet.clone().measure(record.clone()));
    let size = Size {
        // Who vanishes while a gateway drains is told later, which is no fault of the chart.
        vanishing: false,
        ..Size::of(CLIENTS)
    };
    let stage = stage(&first, &service, times)?;
    let cast = Cast::start(stage, &record, size, SEED)?;
    cast.come_on().await?;

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

    cast.calm_down();
    record.note(Event::Calm);
    let quiet = times.of(45_000) + Duration::from_secs(2);
    let converged = cast.converge(quiet).await;
    told(&format!("calm; all dots were right after {converged} ms"));
    record.note(Event::End);
    cast.end().await;
    witnesses.shutdown().await;
    for deployment in [&gateways, &dispatchers] {
        deployment.check()?;
    }
    fleet.check()?;
    fleet.sweeps(&record)?;
    judge(&record, times)
}

/// One door for everybody, and the keys that the chart made.
fn stage(render: &Render, service: &Service, times: Times) -> Result<Stage> {
    let secret = secret_data(render, "adsum-auth")?["hs256"].clone();
    // What can't be signed would be refused, and nobody would come on.
    let pass = move |bearer: Bearer<'_>| pass(&secret, bearer).unwrap_or_default();
    let gate = Gate {
        name: "service".to_owned(),
        address: service.address(),
    };
    Ok(Stage {
        tenant: "acme".to_owned(),
        gates: vec![gate],
        shards: SHARDS,
        times,
        passes: Passes::by(pass),
    })
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

/// Every sort of thing that the invariants are about was seen, and none of them was violated.
fn judge(record: &Record, times: Times) -> Result<()> {
    let (actions, observations) = record.counts();
    let history = record.take(SEED);
    type Is = fn(&Event) -> bool;
    let sorts: [(&str, Is); 8] = [
        ("connections", |e| matches!(e, Event::Hello { .. })),
        ("watches", |e| matches!(e, Event::Watching { .. })),
        ("settings", |e| matches!(e, Event::Set { .. })),
        ("departures", |e| matches!(e, Event::Gone { .. })),
        ("entries of logs", |e| matches!(e, Event::Committed { .. })),
        ("claims", |e| matches!(e, Event::Claimed { .. })),
        ("sweeps", |e| matches!(e, Event::Swept { .. })),
        ("sizes", |e| matches!(e, Event::Size { .. })),
    ];
    println!("{actions} actions, {observations} observations, of these:");
    for (what, is) in sorts {
        let count = history.entries.iter().filter(|e| is(&e.event)).count();
        println!("{count:>8} {what}");
        ensure!(count > 0, "a check that sees no {what} finds nothing");
    }
    let violations = checker::check(&history, &times.bounds());
    let stories: Vec<_> = violations.iter().map(ToString::to_string).collect();
    ensure!(stories.is_empty(), "{}", stories.join("\n"));
    Ok(())
}
