//! The document describes what is served: no path is missing, and no reference leads nowhere.

use axum::{
    body::Body,
    http::{Method, Request},
};
use serde_json::Value;

use super::support::*;

async fn document(world: &World) -> Value {
    let request = Request::get("/v1/openapi.json").body(Body::empty());
    let reply = world.send(request.unwrap()).await;
    assert_eq!(reply.headers["content-type"], "application/json");
    reply.ok()
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(to) if key == "$ref" => found.push(to.clone()),
                    value => references(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

#[tokio::test]
async fn references_lead_somewhere() {
    let document = document(&World::new()).await;
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for to in found {
        let place = to.trim_start_matches('#');
        assert!(document.pointer(place).is_some(), "{to}");
    }
}

#[tokio::test]
async fn every_operation_is_served_and_says_how_it_fails() {
    let world = World::new();
    let document = document(&world).await;
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 20);
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = &operation["responses"];
            assert!(responses["405"].is_object());
            if path == "/v1/openapi.json" || path == "/v1/events" {
                continue;
            }
            for status in ["400", "401", "403", "404", "405", "429", "503"] {
                let schema = "/content/application~1json/schema/$ref";
                let schema = responses[status].pointer(schema);
                assert_eq!(
                    schema.unwrap(),
                    "#/components/schemas/Error",
                    "{path} {status}"
                );
            }
            assert_eq!(operation["security"][0]["bearer"], serde_json::json!([]));
            let with_body = operation.get("requestBody").is_some();
            assert_eq!(
                responses.get("413").is_some() && responses.get("415").is_some(),
                with_body
            );
            // Served: who has no token is told so, which an unknown path would not say.
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let path = path.replace(['{', '}'], "");
            let request = Request::builder().method(method).uri(path);
            let reply = world.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(reply.code(), (401, "unauthorized"));
        }
    }
}

#[tokio::test]
async fn limits_are_those_of_this_node() {
    let limits = crate::limits::EdgeLimits {
        contacts: 17,
        rooms_per_session: 5,
        ..Default::default()
    };
    let world = World::with(limits, crate::EdgeConfig::default());
    let document = document(&world).await;
    let most = |path: &str| document.pointer(&format!("/components/schemas/{path}/maxItems"));
    assert_eq!(most("Contacts/properties/contacts").unwrap(), 17);
    assert_eq!(most("Beat/properties/rooms").unwrap(), 5);
    assert_eq!(most("Users/properties/users").unwrap(), 1000);
    assert_eq!(most("Beats/properties/beats").unwrap(), 1000);
    let required = document.pointer("/components/schemas/Beat/required");
    assert_eq!(required.unwrap(), &serde_json::json!(["device", "conn"]));
}
