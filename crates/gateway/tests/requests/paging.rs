//! Members page by page, while people come and go.

use std::collections::BTreeSet;

use adsum_proto::client::v1;
use serde_json::Value;

use super::support::*;
use crate::{EdgeConfig, limits::EdgeLimits};

fn names(page: &Value) -> Vec<String> {
    let members = page["members"].as_array().unwrap().iter();
    members
        .map(|m| m["user"].as_str().unwrap().to_owned())
        .collect()
}

async fn page(world: &World, path: &str, size: u32, after: &str) -> (Vec<String>, Option<String>) {
    let path = format!("{path}?page_size={size}&page_token={after}");
    let page = world.get(&token("ann"), &path).await.ok();
    assert_eq!(page["complete"], true);
    let next = page.get("next_page_token");
    (names(&page), next.map(|n| n.as_str().unwrap().to_owned()))
}

#[tokio::test]
async fn pages_are_sorted_and_end() {
    let world = World::new();
    for n in 0..7 {
        world.open(&format!("u{n}"), "d", "den").await;
    }
    world.open("ü", "d", "den").await;
    world.until("room:den", |p| p.items.len() == 8).await;
    for path in ["/rooms/den", "/tenant/members"] {
        let (first, next) = page(&world, path, 3, "").await;
        assert_eq!(first, ["u0", "u1", "u2"]);
        let (second, next) = page(&world, path, 3, &next.unwrap()).await;
        assert_eq!(second, ["u3", "u4", "u5"]);
        let (third, next) = page(&world, path, 3, &next.unwrap()).await;
        assert_eq!((third, next), (vec!["u6".to_owned(), "ü".to_owned()], None));
        let (all, next) = page(&world, path, 0, "").await;
        assert_eq!((all.len(), next), (8, None));
        let (just, next) = page(&world, path, 8, "").await;
        assert_eq!((just.len(), next), (8, None));
    }
}

#[tokio::test]
async fn a_page_has_a_cap_and_leaves_out_the_hidden() {
    let config = EdgeConfig {
        page: 2,
        ..EdgeConfig::default()
    };
    let world = World::with(EdgeLimits::default(), config);
    for n in 0..6 {
        world.open(&format!("u{n}"), "d", "den").await;
    }
    for n in [1, 2, 5] {
        let hidden = adsum_core::Preference::Visibility(adsum_core::Visibility::Nobody);
        world.prefer(&format!("u{n}"), hidden).await;
    }
    world
        .until("room:den", |p| {
            p.items.iter().filter(|i| i.public()).count() == 3
        })
        .await;
    let (first, next) = page(&world, "/rooms/den", 1000, "").await;
    assert_eq!(first, ["u0", "u3"]);
    let (second, next) = page(&world, "/rooms/den", 1000, &next.unwrap()).await;
    assert_eq!((second, next), (vec!["u4".to_owned()], None));
}

#[tokio::test]
async fn whoever_stays_is_told_once_whatever_happens_between_pages() {
    let world = World::new();
    let stays: BTreeSet<_> = (0..30).map(|n| format!("stay-{n:02}")).collect();
    for name in &stays {
        world.open(name, "d", "den").await;
    }
    for n in 0..10 {
        world.open(&format!("go-{n}"), "d", "den").await;
    }
    world.until("room:den", |p| p.items.len() == 40).await;
    let (mut told, mut after, mut turn) = (Vec::new(), String::new(), 0);
    loop {
        let (names, next) = page(&world, "/rooms/den", 4, &after).await;
        // The last of each page leaves, someone before it and someone after it come.
        if let Some(last) = names.last().filter(|name| name.starts_with("go-")) {
            world.delete(&token(last), "/sessions/d").await.ok();
        }
        world.open(&format!("a-{turn}"), "d", "den").await;
        world.open(&format!("stay-{turn:02}-and"), "d", "den").await;
        let last = format!("a-{turn}");
        world
            .until("room:den", |p| {
                p.items.iter().any(|i| i.user.as_str() == last)
            })
            .await;
        told.extend(names);
        turn += 1;
        match next {
            Some(next) => after = next,
            None => break,
        }
    }
    let once: BTreeSet<_> = told.iter().cloned().collect();
    assert_eq!(once.len(), told.len(), "nobody twice");
    assert!(told.is_sorted() && stays.is_subset(&once), "{told:?}");
}

#[tokio::test]
async fn the_same_tokens_over_grpc() {
    let world = World::new();
    for n in 0..3 {
        world.open(&format!("u{n}"), "d", "den").await;
    }
    world.until("room:den", |p| p.items.len() == 3).await;
    let (_, next) = page(&world, "/rooms/den", 2, "").await;
    let ask = v1::MembersRequest {
        topic: "room:den".into(),
        page_size: 2,
        page_token: next.unwrap(),
    };
    let page = world
        .grpc()
        .members(super::grpc::request(&token("ann"), ask))
        .await;
    let page = page.unwrap().into_inner();
    assert_eq!(
        (page.members.len(), page.members[0].user.as_str()),
        (1, "u2")
    );
    assert!(page.next_page_token.is_empty() && page.complete);
}
