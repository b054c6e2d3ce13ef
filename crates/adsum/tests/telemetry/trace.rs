//! One change, one trace, over all processes that it goes through.

use std::{collections::BTreeSet, time::Duration};

use adsum_proto::client::{presence_client::PresenceClient, v1};
use adsum_tests::eventually;
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{
    collector::Collector,
    http,
    spans::{Span, paths, tree},
    world::World,
    ws::{Client, joins},
};

const WITHIN: Duration = Duration::from_secs(30);

/// A `traceparent` of a client, its trace and its span.
fn parent(n: u8) -> (String, String, String) {
    let (trace, span) = (format!("{n:032x}"), format!("{:016x}", 0xc0 + u64::from(n)));
    (format!("00-{trace}-{span}-01"), trace, span)
}

/// Waits until the trace has a span at the end of this path.
async fn trace_with(collector: &Collector, trace: &str, ends: &str) -> Result<Vec<Span>> {
    eventually(&format!("{ends} is in the trace"), WITHIN, || async {
        let spans = collector.spans()?.of(trace);
        let found = paths(&spans);
        ensure!(
            found.iter().any(|(path, _)| path.ends_with(ends)),
            "{found:?}"
        );
        Ok(spans)
    })
    .await
}

fn expect(spans: &[Span], wanted: &[(&str, &str)]) -> Result<()> {
    let found = paths(spans);
    let wanted: BTreeSet<_> = wanted
        .iter()
        .map(|(path, node)| ((*path).to_owned(), (*node).to_owned()))
        .collect();
    ensure!(found == wanted, "found {found:#?}, wanted {wanted:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_is_one_trace() -> Result<()> {
    let world = World::new("telemetry trace").await?;
    let Some(collector) = Collector::start(world.dir.path(), "traces").await? else {
        return Ok(());
    };
    let (grpc, http) = (collector.grpc, collector.http);
    // Nothing by chance but sweeps: what is traced here is what clients trace.
    let over_grpc = |rate: f64| {
        move |options: adsum_tests::NodeOptions| {
            options
                .with("TELEMETRY__ENDPOINT", format!("http://{grpc}"))
                .with("TELEMETRY__PROTOCOL", "grpc")
                .with("TELEMETRY__SIGNALS", "[\"traces\"]")
                .with("TELEMETRY__SAMPLE_RATE", rate)
        }
    };
    let dispatcher = world.node("disp", "dispatcher", over_grpc(0.0)).await?;
    let reaper = world.node("reap", "reaper", over_grpc(1.0)).await?;
    let a = world.node("gw-a", "gateway", |options| {
        options
            .with("TELEMETRY__ENDPOINT", format!("http://{http}"))
            .with("TELEMETRY__SAMPLE_RATE", 0)
    });
    let a = a.await?;
    let b = world.node("gw-b", "gateway", |options| {
        over_grpc(0.0)(options).with("TELEMETRY__SLOW_MS", 1)
    });
    let b = b.await?;
    World::settled(&dispatcher, &reaper).await?;

    // Two watchers on B: the span says so, and there is one of it.
    let watch = json!({"watch": [{"topic": "room:lobby"}]});
    let mut bob = Client::hello(b.public(), "bob", watch.clone()).await?;
    bob.hear("presence_state").await?;
    let mut eve = Client::hello(b.public(), "eve", watch).await?;
    eve.hear("presence_state").await?;
    let mut ann = Client::hello(a.public(), "ann", json!({})).await?;
    let (traceparent, trace, span) = parent(1);
    let join = json!({"type": "join", "room": "lobby", "ref": "1", "traceparent": traceparent});
    ann.say(join)?;
    ann.answer("1").await?;
    bob.hear_one(joins("ann")).await?;
    eve.hear_one(joins("ann")).await?;
    let spans = trace_with(&collector, &trace, "route/fan-out").await?;
    println!(
        "one join on gw-a, seen on gw-b, trace {trace}:\n{}",
        tree(&spans)
    );
    expect(
        &spans,
        &[
            ("join", "gw-a"),
            ("join/commit", "gw-a"),
            ("join/commit/tail", "disp"),
            ("join/commit/tail/view", "disp"),
            ("join/commit/tail/route", "disp"),
            ("join/commit/tail/route/fan-out", "gw-b"),
        ],
    )?;
    let join = spans.iter().find(|s| s.name == "join").context("join")?;
    ensure!(join.parent == span, "the client's span is the parent");
    let fan_out = spans.iter().find(|s| s.name == "fan-out");
    let fan_out = &fan_out.context("fan-out")?.attributes;
    ensure!(fan_out["adsum.clients"] == "2", "{fan_out:?}");

    // Over gRPC: a manual status.
    let (traceparent, status, _) = parent(3);
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", a.public()))?;
    let mut grpc = PresenceClient::new(endpoint.connect().await?);
    let mut request = tonic::Request::new(v1::SetStatusRequest {
        manual: Some(v1::set_status_request::Manual::Status(
            v1::Status::Busy.into(),
        )),
        ..v1::SetStatusRequest::default()
    });
    let heads = request.metadata_mut();
    heads.insert("authorization", "Bearer dev:acme:ann".parse()?);
    heads.insert("traceparent", traceparent.parse()?);
    grpc.set_status(request).await?;
    let spans = trace_with(&collector, &status, "route/fan-out").await?;
    println!("a manual status over gRPC:\n{}", tree(&spans));
    let ends = "adsum.v1.Presence/SetStatus/commit/tail/route/fan-out";
    ensure!(paths(&spans).contains(&(ends.to_owned(), "gw-b".to_owned())));

    // What was not sampled and took longer than a ms is told afterwards, by B alone.
    ann.say(json!({"type": "part", "room": "lobby"}))?;
    let rebuilt = eventually("a slow change is told", WITHIN, || async {
        let spans = collector.spans()?;
        let whole = spans.named("change").next().context("none yet")?;
        Ok(spans.of(&whole.trace))
    })
    .await?;
    println!("a slow change that was not sampled:\n{}", tree(&rebuilt));
    expect(
        &rebuilt,
        &[
            ("change", "gw-b"),
            ("change/commit", "gw-b"),
            ("change/route", "gw-b"),
            ("change/fan-out", "gw-b"),
        ],
    )?;

    // Over HTTP, and then silence: the reaper's sweep is a trace of its own, which names this one.
    let (traceparent, beat, _) = parent(2);
    let token = "Bearer dev:acme:dan";
    let body = json!({"device": "web", "conn": 1, "rooms": [{"room": "lobby"}]}).to_string();
    let heads = [
        ("authorization", token),
        ("content-type", "application/json"),
        ("traceparent", traceparent.as_str()),
    ];
    let (status, _, said) = http::request(a.public(), "POST /v1/heartbeat", &heads, &body).await?;
    ensure!(status == 200, "{status} {said}");
    let spans = trace_with(&collector, &beat, "route/fan-out").await?;
    println!("a beat over HTTP:\n{}", tree(&spans));
    expect(
        &spans,
        &[
            ("POST /v1/heartbeat", "gw-a"),
            ("POST /v1/heartbeat/commit", "gw-a"),
            ("POST /v1/heartbeat/commit/tail", "disp"),
            ("POST /v1/heartbeat/commit/tail/view", "disp"),
            ("POST /v1/heartbeat/commit/tail/route", "disp"),
            ("POST /v1/heartbeat/commit/tail/route/fan-out", "gw-b"),
        ],
    )?;

    let swept = eventually("a sweep that names the last trace", WITHIN, || async {
        let spans = collector.spans()?;
        for sweep in spans.named("sweep") {
            let trace = spans.of(&sweep.trace);
            let told = trace.iter().any(|s| s.name == "fan-out");
            let links = trace.iter().flat_map(|s| &s.links);
            if told && links.into_iter().any(|link| *link == beat) {
                return Ok(trace);
            }
        }
        let all: Vec<_> = spans.named("sweep").map(|s| spans.of(&s.trace)).collect();
        anyhow::bail!("not yet: {all:?}")
    })
    .await?;
    println!("the end of who fell silent:\n{}", tree(&swept));
    expect(
        &swept,
        &[
            ("sweep", "reap"),
            ("sweep/tail", "disp"),
            ("sweep/tail/view", "disp"),
            ("sweep/tail/route", "disp"),
            ("sweep/tail/route/fan-out", "gw-b"),
        ],
    )
}
