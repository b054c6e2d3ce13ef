//! Questions and their answers.

use std::time::Duration;

use adsum_core::{Preference, store::Store};
use serde_json::json;

use super::support::*;
use crate::{EdgeConfig, EdgeTimes, limits::EdgeLimits};

#[tokio::test]
async fn one_person_and_many_in_order() {
    let world = World::new();
    let beat = json!({
        "device": "phone", "conn": 7, "kind": "mobile", "activity": "away",
        "meta": {"name": "Ann"}, "rooms": ["den", {"room": "hall", "meta": [1, 2]}]
    });
    world.post(&token("ann"), "/heartbeat", beat).await.ok();
    world.open("ann", "tab", "den").await;
    let bob = token("bob");
    let ann = world.get(&bob, "/users/ann").await.ok();
    assert_eq!(ann["status"], "online");
    assert_eq!(ann["devices"], json!(["mobile", "web"]));
    assert!(ann["since"].as_u64().unwrap() > 1_700_000_000_000);
    assert!(ann["v"].as_str().unwrap().contains('-'));
    assert!(ann.get("last_seen").is_none() && ann.get("gateway").is_none());

    let users = json!({"users": ["zoe", "ann", "zoe", "ann"]});
    let many = world.post(&bob, "/users:batch", users).await.ok();
    let zoe = json!({"user": "zoe", "status": "offline", "devices": []});
    assert_eq!(many, json!({"persons": [zoe, ann, zoe, ann]}));

    let seen = world.get(&all_seeing(), "/users/ann").await.ok();
    assert_eq!(seen["gateway"], json!(["gw-9"]));

    // Ids are any text.
    let odd = world.get(&bob, "/users/a%2Fb%3F%C3%BC%20c").await.ok();
    assert_eq!(odd["user"], "a/b?ü c");
    let none = world.post(&bob, "/users:batch", json!({"users": []})).await;
    assert_eq!(none.ok(), json!({"persons": []}));
}

#[tokio::test]
async fn meta_of_rooms_and_the_status_of_devices() {
    let world = World::new();
    let beat = json!({
        "device": "phone", "conn": 7, "activity": "away",
        "meta": {"name": "Ann"}, "rooms": ["den", {"room": "hall", "meta": [1, 2]}]
    });
    world.post(&token("ann"), "/heartbeat", beat).await.ok();
    world.until("room:hall", |p| p.items.len() == 1).await;
    world.until("room:den", |p| p.items.len() == 1).await;
    let bob = token("bob");
    let hall = world.get(&bob, "/rooms/hall").await.ok();
    assert_eq!(hall["complete"], true);
    let member = &hall["members"][0];
    assert_eq!(
        (&member["user"], &member["status"]),
        (&json!("ann"), &json!("away"))
    );
    assert_eq!(member["meta"], json!([1, 2]));
    assert_eq!(member["devices"], json!(["other"]));
    let den = world.get(&bob, "/rooms/den").await.ok();
    assert_eq!(den["members"][0]["meta"], json!({"name": "Ann"}));
    assert_eq!(
        world.get(&bob, "/rooms/none").await.ok()["members"],
        json!([])
    );
    let count = world.get(&bob, "/rooms/den/count").await.ok();
    assert_eq!(count, json!({"count": 1, "complete": true}));
}

#[tokio::test]
async fn last_seen_ends_with_its_retention() {
    let times = EdgeTimes {
        retention_ms: 300,
        ..EdgeTimes::default()
    };
    let world = World::build(EdgeLimits::default(), EdgeConfig::default(), times);
    world.open("ann", "d", "den").await;
    world.delete(&token("ann"), "/sessions/d").await.ok();
    let bob = token("bob");
    let fresh = world.get(&bob, "/users/ann/last_seen").await.ok();
    assert_eq!(fresh["last_seen_s"], 0);
    assert!(fresh["last_seen"].as_str().unwrap().ends_with('Z'));
    tokio::time::sleep(Duration::from_millis(400)).await;
    let old = world.get(&bob, "/users/ann/last_seen").await.ok();
    assert_eq!(old, json!({"user": "ann"}));
}

#[tokio::test]
async fn permissions_are_asked_first() {
    let world = World::new();
    let narrow = claims(json!({
        "tenant": "acme", "sub": "ann", "rooms": ["den"], "watch": ["user:b*"]
    }));
    let forbidden = (403, "forbidden");
    assert_eq!(world.get(&narrow, "/users/zoe").await.code(), forbidden);
    assert_eq!(
        world.get(&narrow, "/users/zoe/last_seen").await.code(),
        forbidden
    );
    let users = json!({"users": ["bob", "zoe"]});
    for path in ["/users:batch", "/last_seen:batch"] {
        let reply = world.post(&narrow, path, users.clone()).await;
        assert_eq!(reply.code(), forbidden);
    }
    for path in [
        "/rooms/hall",
        "/rooms/hall/count",
        "/tenant/members",
        "/tenant/count",
    ] {
        assert_eq!(world.get(&narrow, path).await.code(), forbidden, "{path}");
    }
    for path in ["/users/ann", "/users/bob", "/rooms/den", "/rooms/den/count"] {
        world.get(&narrow, path).await.ok();
    }
}

#[tokio::test]
async fn a_shard_that_settles_is_asked_of_the_feed() {
    let world = World::new();
    world.open("ann", "d", "den").await;
    world.until("user:ann", |p| p.items.len() == 1).await;
    // All is lost, and nobody has come back yet.
    let shard = world.store.shard_of(&key("ann"));
    world.store.flush(shard);
    let read = world.store.read(&[key("ann")]).await.unwrap();
    assert!(read[0].person.is_none() && read[0].settling);
    let ann = world.get(&token("bob"), "/users/ann").await.ok();
    assert_eq!(ann["status"], "online");
    let zoe = world.get(&token("bob"), "/users/zoe").await.ok();
    assert_eq!(zoe["status"], "offline");
}

#[tokio::test]
async fn a_store_that_pauses_is_waited_for_and_one_that_stays_away_is_told() {
    let world = World::new();
    world.open("ann", "d", "den").await;
    let shard = world.store.shard_of(&key("ann"));
    world.store.stall(shard, true);
    let store = world.store.clone();
    let mend = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        store.stall(shard, false);
    };
    let bob = token("bob");
    let (ann, ()) = tokio::join!(world.get(&bob, "/users/ann"), mend);
    assert_eq!(ann.ok()["status"], "online");

    world.store.stall(shard, true);
    let reply = world.get(&bob, "/users/ann").await;
    assert_eq!(reply.code(), (503, "unavailable"));
    assert!(reply.headers.contains_key("retry-after"));
    assert_eq!(reply.body["error"]["retry_after_ms"], 1000);
}

#[tokio::test]
async fn ones_own_settings() {
    let world = World::new();
    let ann = token("ann");
    let none = world.get(&ann, "/me/status").await.ok();
    assert_eq!(none, json!({"status": null}));
    assert_eq!(
        world.get(&ann, "/me/contacts").await.ok(),
        json!({"contacts": []})
    );
    world
        .prefer("ann", Preference::Status(Some(adsum_core::Manual::Dnd)))
        .await;
    world
        .prefer("ann", Preference::Contacts(vec![user("bob"), user("ali")]))
        .await;
    assert_eq!(
        world.get(&ann, "/me/status").await.ok(),
        json!({"status": "dnd"})
    );
    let contacts = world.get(&ann, "/me/contacts").await.ok();
    assert_eq!(contacts, json!({"contacts": ["bob", "ali"]}));
    assert_eq!(
        world.get(&service(), "/me/status").await.code(),
        (400, "missing_field")
    );
    assert_eq!(
        world.get(&service(), "/me/contacts").await.code(),
        (400, "missing_field")
    );
}
