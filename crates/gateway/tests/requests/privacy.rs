//! Who is told what of whom: the same on every path. Whoever may not be seen looks exactly like
//! whoever was never there.

use adsum_core::{Manual, Preference, Visibility};
use adsum_proto::client::v1;
use serde_json::{Value, json};

use super::support::*;

/// Everything that can be asked about somebody in the room `den`.
#[derive(Debug, PartialEq)]
struct Told {
    person: Value,
    in_batch: Value,
    last_seen: Value,
    in_last_seen_batch: Value,
    in_room: bool,
    in_tenant: bool,
    over_grpc: v1::Person,
    last_seen_over_grpc: v1::LastSeen,
    in_room_over_grpc: bool,
}

/// How long ago may tick between two looks.
fn plain(mut value: Value) -> Value {
    if let Some(ago) = value.get_mut("last_seen_s") {
        *ago = json!(0);
    }
    value
}

fn named(list: &Value, name: &str) -> bool {
    let mut list = list.as_array().unwrap().iter();
    list.any(|item| item["user"] == *name)
}

async fn told(world: &World, token: &str, name: &str) -> Told {
    let users = json!({"users": [name]});
    let (mut grpc, who) = (world.grpc(), name.to_owned());
    let ask = |what| super::grpc::request(token, what);
    let person = grpc.get(ask(v1::GetRequest { user: who.clone() })).await;
    let mut person = person.unwrap().into_inner().person.unwrap();
    person.last_seen_s = person.last_seen_s.map(|_| 0);
    let seen = super::grpc::request(token, v1::LastSeenRequest { users: vec![who] });
    let mut seen = grpc.last_seen(seen).await.unwrap().into_inner().users;
    let mut seen = seen.pop().unwrap();
    seen.last_seen_s = seen.last_seen_s.map(|_| 0);
    let room = v1::MembersRequest {
        topic: "room:den".into(),
        ..Default::default()
    };
    let room = grpc
        .members(super::grpc::request(token, room))
        .await
        .unwrap();
    let path = format!("/users/{name}");
    let batch = world.post(token, "/users:batch", users.clone()).await.ok();
    let seens = world.post(token, "/last_seen:batch", users).await.ok();
    Told {
        person: plain(world.get(token, &path).await.ok()),
        in_batch: plain(batch["persons"][0].clone()),
        last_seen: plain(world.get(token, &format!("{path}/last_seen")).await.ok()),
        in_last_seen_batch: plain(seens["users"][0].clone()),
        in_room: named(&world.get(token, "/rooms/den").await.ok()["members"], name),
        in_tenant: named(
            &world.get(token, "/tenant/members").await.ok()["members"],
            name,
        ),
        over_grpc: person,
        last_seen_over_grpc: seen,
        in_room_over_grpc: room.into_inner().members.iter().any(|m| m.user == name),
    }
}

/// What is told of somebody who was never there.
fn nobody(name: &str) -> Told {
    let person = json!({"user": name, "status": "offline", "devices": []});
    Told {
        in_batch: person.clone(),
        person,
        last_seen: json!({"user": name}),
        in_last_seen_batch: json!({"user": name}),
        in_room: false,
        in_tenant: false,
        over_grpc: v1::Person {
            user: name.into(),
            status: v1::Status::Offline.into(),
            ..Default::default()
        },
        last_seen_over_grpc: v1::LastSeen {
            user: name.into(),
            ..Default::default()
        },
        in_room_over_grpc: false,
    }
}

fn sees(told: &Told, status: &str) {
    assert_eq!(told.person["status"], status, "{told:?}");
    assert_eq!(told.in_batch, told.person);
    assert!(
        told.in_room && told.in_tenant && told.in_room_over_grpc,
        "{told:?}"
    );
    assert_eq!(told.last_seen, json!({"user": told.person["user"]}));
    assert_eq!(told.over_grpc.v, told.person["v"].as_str().unwrap());
    assert_eq!(told.over_grpc.since, told.person["since"].as_u64().unwrap());
}

/// Offline, with a last seen, on every path the same.
fn was_there(told: &Told, name: &str) -> String {
    let seen = told.person["last_seen"].as_str().unwrap().to_owned();
    let person = json!({
        "user": name, "status": "offline", "devices": [], "last_seen": seen, "last_seen_s": 0
    });
    let last = json!({"user": name, "last_seen": seen, "last_seen_s": 0});
    assert_eq!((&told.person, &told.in_batch), (&person, &person));
    assert_eq!((&told.last_seen, &told.in_last_seen_batch), (&last, &last));
    assert_eq!(told.over_grpc.last_seen.as_ref(), Some(&seen));
    assert_eq!(told.last_seen_over_grpc.last_seen.as_ref(), Some(&seen));
    assert!(!told.in_room && !told.in_tenant && !told.in_room_over_grpc);
    seen
}

async fn count(world: &World, token: &str) -> (Value, Value) {
    let room = world.get(token, "/rooms/den/count").await.ok();
    let tenant = world.get(token, "/tenant/count").await.ok();
    (room["count"].clone(), tenant["count"].clone())
}

#[tokio::test]
async fn everyone_contacts_and_nobody() {
    let world = World::new();
    for name in ["open", "listed", "closed"] {
        world.open(name, "d", "den").await;
    }
    let friends = Preference::Contacts(vec![user("friend")]);
    world.prefer("listed", friends).await;
    let visibility = |v| Preference::Visibility(v);
    world
        .prefer("listed", visibility(Visibility::Contacts))
        .await;
    world.prefer("closed", visibility(Visibility::Nobody)).await;
    world
        .until("tenant", |p| {
            p.items.len() == 3 && p.items.iter().filter(|i| i.public()).count() == 1
        })
        .await;
    world.until("room:den", |p| p.items.len() == 3).await;

    let (friend, stranger) = (token("friend"), token("stranger"));
    for token in [&friend, &stranger, &service(), &all_seeing()] {
        sees(&told(&world, token, "open").await, "online");
        assert_eq!(count(&world, token).await, (json!(1), json!(1)));
    }
    sees(&told(&world, &friend, "listed").await, "online");
    sees(&told(&world, &token("listed"), "listed").await, "online");
    sees(&told(&world, &token("closed"), "closed").await, "online");
    sees(&told(&world, &all_seeing(), "listed").await, "online");
    sees(&told(&world, &all_seeing(), "closed").await, "online");
    for token in [&stranger, &service()] {
        assert_eq!(told(&world, token, "listed").await, nobody("listed"));
        assert_eq!(told(&world, token, "closed").await, nobody("closed"));
        assert_eq!(told(&world, token, "never").await, nobody("never"));
    }
    assert_eq!(told(&world, &friend, "closed").await, nobody("closed"));
    // A service with a user of its own is a stranger all the same.
    let own = claims(json!({
        "tenant": "acme", "role": "service", "sub": "friend", "join": ["*"], "watch": ["*"]
    }));
    assert_eq!(told(&world, &own, "listed").await, nobody("listed"));

    // Gone: those who might see them may know when, the others nothing.
    for name in ["open", "listed", "closed"] {
        let gone = world.delete(&token(name), "/sessions/d").await.ok();
        assert_eq!(gone, json!({"closed": 1}));
    }
    world.until("tenant", |p| p.items.is_empty()).await;
    world.until("room:den", |p| p.items.is_empty()).await;
    was_there(&told(&world, &stranger, "open").await, "open");
    was_there(&told(&world, &friend, "listed").await, "listed");
    was_there(&told(&world, &token("listed"), "listed").await, "listed");
    was_there(&told(&world, &all_seeing(), "closed").await, "closed");
    assert_eq!(told(&world, &stranger, "listed").await, nobody("listed"));
    assert_eq!(told(&world, &service(), "closed").await, nobody("closed"));
    assert_eq!(told(&world, &friend, "closed").await, nobody("closed"));
}

#[tokio::test]
async fn invisible_is_offline_to_all_but_oneself() {
    let world = World::new();
    world.open("ghost", "d", "den").await;
    world.open("other", "d", "den").await;
    let manual = |m| Preference::Status(m);
    world.prefer("ghost", manual(Some(Manual::Invisible))).await;
    world
        .until("tenant", |p| {
            p.items.iter().filter(|i| i.public()).count() == 1
        })
        .await;
    world
        .until("room:den", |p| {
            p.items.iter().filter(|i| i.public()).count() == 1
        })
        .await;

    let stranger = token("stranger");
    sees(&told(&world, &token("ghost"), "ghost").await, "invisible");
    sees(&told(&world, &all_seeing(), "ghost").await, "invisible");
    let frozen = was_there(&told(&world, &stranger, "ghost").await, "ghost");
    assert_eq!(
        was_there(&told(&world, &service(), "ghost").await, "ghost"),
        frozen
    );
    assert_eq!(count(&world, &stranger).await, (json!(1), json!(1)));
    assert_eq!(count(&world, &all_seeing()).await, (json!(1), json!(1)));

    // However long they stay, and when they go, the public last seen does not move.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    world.delete(&token("ghost"), "/sessions/d").await.ok();
    world.until("room:den", |p| p.items.len() == 1).await;
    world.until("tenant", |p| p.items.len() == 1).await;
    assert_eq!(
        was_there(&told(&world, &stranger, "ghost").await, "ghost"),
        frozen
    );

    // Invisible and hidden: not even that.
    let hidden = Preference::Visibility(Visibility::Nobody);
    world.prefer("ghost", hidden).await;
    assert_eq!(told(&world, &stranger, "ghost").await, nobody("ghost"));
    world.open("ghost", "e", "den").await;
    world.until("room:den", |p| p.items.len() == 2).await;
    world.until("tenant", |p| p.items.len() == 2).await;
    assert_eq!(told(&world, &stranger, "ghost").await, nobody("ghost"));
    sees(&told(&world, &token("ghost"), "ghost").await, "invisible");
}

#[tokio::test]
async fn invisible_from_the_start_was_never_there() {
    let world = World::new();
    world
        .prefer("ghost", Preference::Status(Some(Manual::Invisible)))
        .await;
    world.open("ghost", "d", "den").await;
    world.until("room:den", |p| p.items.len() == 1).await;
    let stranger = token("stranger");
    assert_eq!(told(&world, &stranger, "ghost").await, nobody("ghost"));
    world.delete(&token("ghost"), "/sessions/d").await.ok();
    assert_eq!(told(&world, &stranger, "ghost").await, nobody("ghost"));
}

#[tokio::test]
async fn a_contact_list_without_the_preference_and_the_preference_without_a_list() {
    let world = World::new();
    world.open("ann", "d", "den").await;
    world.prefer("ann", Preference::Contacts(vec![])).await;
    world.until("room:den", |p| p.items.len() == 1).await;
    sees(&told(&world, &token("stranger"), "ann").await, "online");
    world.open("bob", "d", "den").await;
    world
        .prefer("bob", Preference::Visibility(Visibility::Contacts))
        .await;
    world
        .until("room:den", |p| {
            p.items.len() == 2 && p.items.iter().filter(|i| i.public()).count() == 1
        })
        .await;
    world
        .until("tenant", |p| {
            p.items.len() == 2 && p.items.iter().filter(|i| i.public()).count() == 1
        })
        .await;
    assert_eq!(told(&world, &token("stranger"), "bob").await, nobody("bob"));
    sees(&told(&world, &token("bob"), "bob").await, "online");
}
