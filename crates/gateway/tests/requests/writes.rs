//! Settings and goodbyes.

use adsum_core::{Manual, Preference, Visibility, store::Store};
use serde_json::json;

use super::support::*;
use crate::{EdgeConfig, limits::EdgeLimits};

async fn prefs(world: &World, name: &str) -> adsum_core::Prefs {
    world.store.read(&[key(name)]).await.unwrap()[0].prefs
}

#[tokio::test]
async fn a_manual_status_is_set_and_cleared() {
    let world = World::new();
    let ann = token("ann");
    world.open("ann", "d", "den").await;
    for word in ["away", "busy", "dnd", "invisible"] {
        let reply = world.put(&ann, "/me/status", json!({"status": word})).await;
        assert_eq!((reply.status.as_u16(), &reply.body), (204, &json!(null)));
        assert_eq!(world.get(&ann, "/users/ann").await.ok()["status"], word);
    }
    world
        .put(&ann, "/me/status", json!({"status": null}))
        .await
        .ok();
    assert_eq!(world.get(&ann, "/users/ann").await.ok()["status"], "online");

    let set = |body| world.put(&ann, "/me/status", body);
    assert_eq!(
        set(json!({"status": "online"})).await.code(),
        (400, "invalid_status")
    );
    assert_eq!(
        set(json!({"status": "offline"})).await.code(),
        (400, "invalid_status")
    );
    assert_eq!(set(json!({})).await.code(), (400, "missing_field"));
    assert_eq!(
        set(json!({"status": 3})).await.code(),
        (400, "malformed_frame")
    );
    assert_eq!(set(json!(["dnd"])).await.code(), (400, "malformed_frame"));
}

#[tokio::test]
async fn visibility_and_contacts() {
    let limits = EdgeLimits {
        contacts: 3,
        ..EdgeLimits::default()
    };
    let world = World::with(limits, EdgeConfig::default());
    let ann = token("ann");
    for (word, visibility) in [
        ("nobody", Visibility::Nobody),
        ("contacts", Visibility::Contacts),
        ("everyone", Visibility::Everyone),
    ] {
        let body = json!({"visibility": word});
        assert_eq!(world.put(&ann, "/me/visibility", body).await.status, 204);
        assert_eq!(prefs(&world, "ann").await.visibility.value, visibility);
        let read = world.get(&ann, "/me/visibility").await;
        assert_eq!(read.body, json!({"visibility": word}));
    }
    let set = |body| world.put(&ann, "/me/visibility", body);
    assert_eq!(
        set(json!({"visibility": "all"})).await.code(),
        (400, "invalid_visibility")
    );
    assert_eq!(
        set(json!({"visibility": null})).await.code(),
        (400, "missing_field")
    );
    assert_eq!(
        set(json!({"visibility": true})).await.code(),
        (400, "malformed_frame")
    );

    let set = |body| world.put(&ann, "/me/contacts", body);
    assert_eq!(set(json!({"contacts": ["a", "b", "c"]})).await.status, 204);
    let many = json!({"contacts": ["a", "b", "c", "d"]});
    assert_eq!(set(many).await.code(), (400, "too_many_contacts"));
    assert_eq!(
        set(json!({"contacts": [""]})).await.code(),
        (400, "invalid_id")
    );
    assert_eq!(set(json!({})).await.code(), (400, "missing_field"));
    let wrong = set(json!({"contacts": ["a", 5]})).await;
    assert_eq!(wrong.code(), (400, "malformed_frame"));
    let message = wrong.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("contacts[1]"), "{message}");
    let list = world.store.contacts(&key("ann")).await.unwrap().unwrap();
    assert_eq!(list.1.len(), 3);
}

#[tokio::test]
async fn only_services_name_others() {
    let world = World::new();
    let (ann, bot) = (token("ann"), service());
    let bodies = [
        ("status", json!({"status": "busy"})),
        ("visibility", json!({"visibility": "nobody"})),
        ("contacts", json!({"contacts": ["bob"]})),
    ];
    for (what, body) in bodies {
        let (own, other) = (format!("/users/ann/{what}"), format!("/users/bob/{what}"));
        assert_eq!(
            world.put(&ann, &other, body.clone()).await.code(),
            (403, "forbidden")
        );
        assert_eq!(world.put(&ann, &own, body.clone()).await.status, 204);
        assert_eq!(world.put(&bot, &other, body.clone()).await.status, 204);
        let me = world.put(&bot, &format!("/me/{what}"), body).await;
        assert_eq!(me.code(), (400, "missing_field"));
    }
    for name in ["ann", "bob"] {
        let prefs = prefs(&world, name).await;
        assert_eq!(prefs.status.value, Some(Manual::Busy));
        assert_eq!(prefs.visibility.value, Visibility::Nobody);
        assert!(prefs.contacts > 0);
    }
    assert_eq!(
        world.delete(&ann, "/users/bob/sessions").await.code(),
        (403, "forbidden")
    );
    assert_eq!(
        world.delete(&bot, "/sessions/d").await.code(),
        (400, "missing_field")
    );
}

#[tokio::test]
async fn a_version_from_the_future_is_gone_above() {
    let world = World::new();
    let far = 8_000_000_000_000_000;
    let store = &world.store;
    store
        .prefer(&key("ann"), Preference::Status(None), far)
        .await
        .unwrap();
    world
        .put(&token("ann"), "/me/status", json!({"status": "dnd"}))
        .await
        .ok();
    let status = prefs(&world, "ann").await.status;
    assert_eq!((status.value, status.version), (Some(Manual::Dnd), far + 1));
}

#[tokio::test]
async fn writers_at_once_leave_one_of_their_values() {
    let world = World::new();
    let ann = token("ann");
    let set = |word: &'static str| world.put(&ann, "/me/status", json!({"status": word}));
    let (a, b, c) = tokio::join!(set("away"), set("busy"), set("dnd"));
    for reply in [a, b, c] {
        assert!([204, 503].contains(&reply.status.as_u16()), "{reply:?}");
    }
    assert!(prefs(&world, "ann").await.status.value.is_some());
}

#[tokio::test]
async fn goodbyes_and_kicks() {
    let world = World::new();
    let (ann, bot) = (token("ann"), service());
    for device in ["a", "b", "c"] {
        world.open("ann", device, "den").await;
    }
    world.open("bob", "a", "den").await;
    let closed = |n| json!({"closed": n});
    assert_eq!(world.delete(&ann, "/sessions/a").await.ok(), closed(1));
    assert_eq!(world.delete(&ann, "/sessions/a").await.ok(), closed(0));
    assert_eq!(
        world.delete(&ann, "/users/ann/sessions/b").await.ok(),
        closed(1)
    );
    assert_eq!(
        world.delete(&bot, "/users/ann/sessions/zzz").await.ok(),
        closed(0)
    );
    assert_eq!(
        world.delete(&bot, "/users/ann/sessions/c").await.ok(),
        closed(1)
    );
    assert_eq!(
        world.delete(&bot, "/users/bob/sessions").await.ok(),
        closed(1)
    );
    let reasons = reasons(&world).await;
    assert_eq!(reasons, ["kicked", "kicked", "leave", "leave"]);
    // What was said goodbye for does not come back with its old number.
    let beat = json!({"device": "a", "conn": 5});
    let late = world.post(&ann, "/heartbeat", beat).await;
    assert_eq!(late.code(), (409, "superseded"));
    assert_eq!(late.body["error"]["conn"], 5);
}

/// Of all that were closed, sorted.
async fn reasons(world: &World) -> Vec<String> {
    let mut reasons = Vec::new();
    for shard in 0..world.store.shards() {
        let page = world.store.log(shard, 0, 1000).await.unwrap();
        reasons.extend(page.entries.iter().filter_map(|entry| match &entry.event {
            adsum_core::Event::Session { reason, .. } => reason.map(|r| r.as_str().to_owned()),
            _ => None,
        }));
    }
    reasons.sort();
    reasons
}
