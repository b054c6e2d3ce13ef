//! Values that make no sense are refused, with a message that says what to do.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::tools::tools;

/// Values, and what must be in the message.
fn cases() -> BTreeMap<&'static str, (Value, &'static [&'static str])> {
    let quickstart = |mut values: Value| {
        values["files"] = json!(["values-quickstart.yaml"]);
        values
    };
    let production = |mut values: Value| {
        values["files"] = json!(["values-production.yaml", "ci/production-values.yaml"]);
        values
    };
    BTreeMap::from([
        (
            "negative replicas",
            (
                json!({"gateway": {"replicas": -1}}),
                &["/gateway/replicas", "got -1, want 1"][..],
            ),
        ),
        (
            "an unknown key",
            (
                json!({"gatway": {"replicas": 2}}),
                &["additional properties 'gatway' not allowed"],
            ),
        ),
        (
            "an unknown key further down",
            (
                json!({"gateway": {"replica": 2}}),
                &["'/gateway'", "'replica' not allowed"],
            ),
        ),
        (
            "an unknown setting of the binary",
            (
                json!({"config": {"times": {"linger": 5}}}),
                &["'/config/times'", "'linger' not allowed"],
            ),
        ),
        (
            "a setting of the wrong type",
            (
                json!({"config": {"times": {"linger_ms": "10s"}}}),
                &["/config/times/linger_ms", "got string, want integer"],
            ),
        ),
        (
            "an unknown setting of telemetry",
            (
                json!({"config": {"telemetry": {"endpont": "http://collector:4318"}}}),
                &["'/config/telemetry'", "'endpont' not allowed"],
            ),
        ),
        (
            "a protocol that is not spoken",
            (
                json!({"config": {"telemetry": {"protocol": "http/json"}}}),
                &["/config/telemetry/protocol", "'http/protobuf', 'grpc'"],
            ),
        ),
        (
            "an unknown store",
            (json!({"store": "mysql"}), &["'memory', 'redis'"]),
        ),
        (
            "production without a Redis URL",
            (
                json!({"files": ["values-production.yaml"]}),
                &["needs a Redis Cluster", "set redis.urls"],
            ),
        ),
        (
            "Redis without etcd",
            (
                production(json!({"etcd": {"endpoints": []}})),
                &["needs etcd", "set etcd.endpoints"],
            ),
        ),
        (
            "production without keys",
            (
                production(json!({"auth": {"jwks": {"existingConfigMap": ""}}})),
                &["nobody could come in", "auth.keys or auth.jwks"],
            ),
        ),
        (
            "the memory store with two replicas",
            (
                json!({"gateway": {"replicas": 2}}),
                &["gateway.replicas must be 1", "Set store: redis"],
            ),
        ),
        (
            "the memory store with autoscaling",
            (
                json!({"gateway": {"autoscaling": {"enabled": true}}}),
                &["gateway.autoscaling off"],
            ),
        ),
        (
            "the memory store with Redis",
            (
                json!({"redis": {"urls": ["redis://a:6379"]}}),
                &["store is memory", "set store: redis"],
            ),
        ),
        (
            "a password in a URL",
            (
                production(json!({"redis": {"urls": ["redis://me:secret@a:6379"]}})),
                &["must not carry passwords", "redis.existingSecret"],
            ),
        ),
        (
            "two sorts of Redis",
            (
                quickstart(json!({"redis": {"urls": ["redis://a:6379"]}})),
                &["brings a Redis of its own"],
            ),
        ),
        (
            "a Secret without a key",
            (
                production(
                    json!({"redis": {"username": "", "existingSecret": {"passwordKey": ""}}}),
                ),
                &["needs passwordKey"],
            ),
        ),
        (
            "too little time to go",
            (
                quickstart(json!({"gateway": {"terminationGracePeriodSeconds": 10}})),
                &["(10) is less than a pod needs", "= 40"],
            ),
        ),
        (
            "a longer drain and the old grace",
            (
                quickstart(json!({
                    "config": {"times": {"stop_ms": 90000}},
                    "dispatcher": {"terminationGracePeriodSeconds": 60},
                })),
                &["dispatcher.terminationGracePeriodSeconds (60)", "= 95"],
            ),
        ),
        (
            "a rollout that can't move",
            (
                quickstart(json!({"gateway": {"rollingUpdate": {"maxSurge": 0}}})),
                &["nothing could move"],
            ),
        ),
        (
            "more at least than at most",
            (
                quickstart(
                    json!({"gateway": {"autoscaling": {"enabled": true, "minReplicas": 30}}}),
                ),
                &["minReplicas (30) is above maxReplicas (10)"],
            ),
        ),
        (
            "autoscaling by nothing",
            (
                quickstart(
                    json!({"gateway": {"autoscaling": {"enabled": true, "targetCPU": null}}}),
                ),
                &["nothing to go by"],
            ),
        ),
        (
            "cert-manager without an issuer",
            (
                quickstart(json!({"feed": {"tls": {"mode": "certManager"}}})),
                &["issuerRef"],
            ),
        ),
        (
            "an existing Secret without a name",
            (
                quickstart(json!({"feed": {"tls": {"mode": "existingSecret"}}})),
                &["needs feed.tls.existingSecret"],
            ),
        ),
        (
            "an Ingress without a host",
            (
                json!({"ingress": {"enabled": true}}),
                &["needs ingress.host"],
            ),
        ),
        (
            "a route to nowhere",
            (
                json!({"gatewayApi": {"grpc": {"enabled": true}}}),
                &["gatewayApi.grpc.enabled needs parentRefs"],
            ),
        ),
        (
            "one port for two",
            (json!({"ports": {"internal": 8080}}), &["must differ"]),
        ),
        (
            "an odd cluster",
            (
                quickstart(json!({"quickstart": {"redis": {"replicas": 7}}})),
                &["must be even"],
            ),
        ),
        (
            "too few for a cluster",
            (
                quickstart(json!({"quickstart": {"redis": {"replicas": 2}}})),
                &["/quickstart/redis/replicas", "got 2, want 6"],
            ),
        ),
    ])
}

#[tokio::test]
async fn nonsense_is_refused_and_the_message_says_why() -> Result<()> {
    let Some(tools) = tools().await? else {
        return Ok(());
    };
    let values: BTreeMap<_, _> = cases().into_iter().map(|(n, (v, _))| (n, v)).collect();
    let said = tools.refusals(&json!(values)).await?;
    for (name, (_, words)) in cases() {
        let message = said.get(name).and_then(Option::as_ref);
        let message = message.with_context(|| format!("not refused: {name}"))?;
        for word in words {
            ensure!(
                message.contains(word),
                "{name}: {word:?} is not in: {message}"
            );
        }
    }
    Ok(())
}
