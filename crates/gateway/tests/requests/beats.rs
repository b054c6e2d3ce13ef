//! Sessions kept alive over HTTP.

use adsum_core::store::Store;
use serde_json::{Value, json};

use super::support::*;
use crate::{EdgeConfig, limits::EdgeLimits};

fn beat(device: &str, conn: u64) -> Value {
    json!({"device": device, "conn": conn})
}

#[tokio::test]
async fn one_beat_opens_a_session_and_the_next_ones_keep_it() {
    let world = World::new();
    let ann = token("ann");
    let answer = world.post(&ann, "/heartbeat", beat("d", 9)).await.ok();
    assert_eq!(
        (&answer["results"], &answer["ttl_ms"]),
        (&json!([{}]), &json!(45_000))
    );
    assert_spread(answer["heartbeat_ms"].as_u64().unwrap());
    let first = world
        .store
        .deadlines(world.store.shard_of(&key("ann")), 9)
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    world.post(&ann, "/heartbeat", beat("d", 9)).await.ok();
    let then = world
        .store
        .deadlines(world.store.shard_of(&key("ann")), 9)
        .await
        .unwrap();
    assert!(
        then[0].1 > first[0].1,
        "numbered by arrival, so each counts"
    );

    // With numbers of its own a late copy does nothing.
    let numbered = |rev: u64, activity: &str| json!({"device": "e", "conn": 9, "rev": rev, "activity": activity});
    world
        .post(&ann, "/heartbeat", numbered(2, "away"))
        .await
        .ok();
    world
        .post(&ann, "/heartbeat", numbered(1, "online"))
        .await
        .ok();
    let read = &world.store.read(&[key("ann")]).await.unwrap()[0];
    let sessions = &read.person.as_ref().unwrap().sessions;
    assert_eq!(sessions["e"].state.activity, adsum_core::Activity::Away);

    let old = world.post(&ann, "/heartbeat", beat("d", 8)).await;
    assert_eq!(
        (old.code(), &old.body["error"]["conn"]),
        ((409, "superseded"), &json!(9))
    );
}

#[tokio::test]
async fn of_many_each_has_its_own_result() {
    let world = World::new();
    let bot = claims(json!({"tenant": "acme", "role": "service", "join": ["den"]}));
    let beats = json!({"beats": [
        {"user": "ann", "device": "d", "conn": 9, "rooms": ["den"]},
        {"user": "bob", "device": "d", "conn": 0},
        {"user": "cat", "device": "d", "conn": 9, "rooms": [{"room": "hall"}]},
        {"device": "d", "conn": 9},
        {"user": "ann", "device": "d", "conn": 8},
        {"user": "eve", "device": "", "conn": 8},
        {"user": "eve", "device": "d", "conn": 8, "rev": 0},
        {"user": "eve", "device": "d", "conn": 8, "kind": "Web"},
        {"user": "eve", "device": "d", "conn": 8, "activity": "dnd"},
        {"user": "eve", "device": "d", "conn": 8, "rooms": [{}]},
        {"user": "eve", "conn": 8},
        {"user": "eve", "device": "d"},
        {"user": "eve", "device": "d", "conn": -1},
    ]});
    let answer = world.post(&bot, "/heartbeat", beats).await.ok();
    let codes: Vec<_> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap_or("done"))
        .collect();
    assert_eq!(
        codes,
        [
            "done",
            "invalid_conn",
            "forbidden",
            "missing_field",
            "superseded",
            "invalid_id",
            "malformed_frame",
            "invalid_kind",
            "invalid_status",
            "missing_field",
            "missing_field",
            "missing_field",
            "malformed_frame",
        ]
    );
    assert_eq!(answer["results"][4]["error"]["conn"], 9);
    let read = world.store.read(&[key("ann"), key("eve")]).await.unwrap();
    assert!(read[0].person.is_some() && read[1].person.is_none());

    let none = world
        .post(&bot, "/heartbeat", json!({"beats": []}))
        .await
        .ok();
    assert_eq!(none["results"], json!([]));
}

#[tokio::test]
async fn one_that_is_refused_fails_as_a_whole() {
    let world = World::new();
    let ann = claims(json!({"tenant": "acme", "sub": "ann", "rooms": ["den"]}));
    let long = "x".repeat(3000);
    let rooms: Vec<_> = (0..101).map(|n| n.to_string()).collect();
    for (body, code) in [
        (
            json!({"device": "d", "conn": 1, "user": "bob"}),
            (403, "forbidden"),
        ),
        (
            json!({"device": "d", "conn": 1, "rooms": ["hall"]}),
            (403, "forbidden"),
        ),
        (
            json!({"device": "d", "conn": 1, "meta": long}),
            (400, "meta_too_large"),
        ),
        (
            json!({"device": "d", "conn": 1, "rooms": rooms}),
            (400, "too_many_rooms"),
        ),
        (json!({"device": "a\u{7}", "conn": 1}), (400, "invalid_id")),
        (
            json!({"device": "d", "conn": 1_u64 << 53}),
            (400, "invalid_conn"),
        ),
        (json!({"device": "d", "conn": -1}), (400, "malformed_frame")),
        (
            json!({"device": "d", "conn": 1, "rooms": [["den"]]}),
            (400, "malformed_frame"),
        ),
        (json!({"beats": [["d", 1]]}), (400, "malformed_frame")),
        (json!({"beats": [{}, null]}), (400, "malformed_frame")),
        (json!({"beats": {}}), (400, "malformed_frame")),
        (json!({}), (400, "missing_field")),
    ] {
        let reply = world.post(&ann, "/heartbeat", body.clone()).await;
        assert_eq!(reply.code(), code, "{body}");
    }
    let body = json!({"device": "d", "conn": 1.0, "rev": 2e0});
    world.post(&ann, "/heartbeat", body).await.ok();
    for conn in ["1.5", "-1.0", "1e30", "\"1\"", "[1]"] {
        let conn: Value = serde_json::from_str(conn).unwrap();
        let body = json!({"device": "d", "conn": conn});
        let reply = world.post(&ann, "/heartbeat", body).await;
        assert_eq!(reply.code(), (400, "malformed_frame"), "{conn}");
    }
    let body = json!({"device": "d", "conn": 1, "user": null, "rev": null, "rooms": null});
    world.post(&ann, "/heartbeat", body).await.ok();
}

#[tokio::test]
async fn a_shard_that_is_away_harms_its_own_users_only() {
    let world = World::new();
    let away = world.store.shard_of(&key("ann"));
    let name = |n: u32| format!("u{n}");
    let other = (0..)
        .map(name)
        .find(|n| world.store.shard_of(&key(n)) != away)
        .unwrap();
    world.store.stall(away, true);
    let beats = json!({"beats": [
        {"user": "ann", "device": "d", "conn": 9}, {"user": other, "device": "d", "conn": 9},
    ]});
    let answer = world.post(&service(), "/heartbeat", beats).await.ok();
    assert_eq!(answer["results"][0]["error"]["code"], "unavailable");
    assert_eq!(answer["results"][1], json!({}));
    let one = world.post(&token("ann"), "/heartbeat", beat("d", 9)).await;
    assert_eq!(one.code(), (503, "unavailable"));
}

#[tokio::test]
async fn too_many_in_one_request() {
    let config = EdgeConfig {
        users_per_request: 2,
        ..EdgeConfig::default()
    };
    let world = World::with(EdgeLimits::default(), config);
    let ann = token("ann");
    let beats = json!({"beats": [beat("a", 1), beat("b", 1), beat("c", 1)]});
    let many = (400, "too_many_users");
    assert_eq!(world.post(&ann, "/heartbeat", beats).await.code(), many);
    let users = json!({"users": ["a", "a", "a"]});
    for path in ["/users:batch", "/last_seen:batch"] {
        assert_eq!(world.post(&ann, path, users.clone()).await.code(), many);
    }
}

#[tokio::test]
async fn one_user_has_only_so_many_sessions() {
    let limits = EdgeLimits {
        sessions_per_user: 2,
        ..EdgeLimits::default()
    };
    let world = World::with(limits, EdgeConfig::default());
    let beats = json!({"beats": [beat("a", 1), beat("b", 1), beat("c", 1)]});
    let answer = world.post(&token("ann"), "/heartbeat", beats).await.ok();
    let error = &answer["results"][2]["error"];
    assert_eq!(error["code"], "too_many_connections");
    assert_eq!(answer["results"][1], json!({}));
    let one = world.post(&token("ann"), "/heartbeat", beat("d", 1)).await;
    assert_eq!(one.code(), (429, "too_many_connections"));
    world
        .post(&token("ann"), "/heartbeat", beat("b", 1))
        .await
        .ok();
    world
        .post(&token("bob"), "/heartbeat", beat("d", 1))
        .await
        .ok();
}
