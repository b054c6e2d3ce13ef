//! The same over gRPC, with health and reflection.

use adsum_core::{Manual, Visibility, store::Store};
use adsum_proto::client::v1::{self, set_status_request::Manual as Given};
use axum::extract::ConnectInfo;
use tonic::{Code, Request, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1 as reflection, v1alpha};

use super::support::*;

pub(super) fn request<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
    request.extensions_mut().insert(ConnectInfo(PEER));
    request
}

fn code(status: &Status) -> (Code, &str) {
    let code = status.metadata().get("adsum-code");
    (status.code(), code.map_or("none", |c| c.to_str().unwrap()))
}

#[tokio::test]
async fn every_call() {
    let world = World::new();
    let (mut grpc, ann, bot) = (world.grpc(), token("ann"), service());
    let beats = v1::HeartbeatRequest {
        beats: vec![
            v1::Beat {
                device: "d".into(),
                conn: 9,
                kind: Some("web".into()),
                meta: Some("{\"a\": 1}".into()),
                rooms: vec![v1::Join {
                    room: "den".into(),
                    meta: None,
                }],
                ..Default::default()
            },
            v1::Beat::default(),
        ],
    };
    let beaten = grpc
        .heartbeat(request(&ann, beats))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((beaten.heartbeat_ms, beaten.ttl_ms), (15_000, 45_000));
    assert_eq!(beaten.results[0].error, None);
    assert_eq!(
        beaten.results[1].error.as_ref().unwrap().code,
        "missing_field"
    );
    world.until("room:den", |p| p.items.len() == 1).await;

    let many = v1::GetManyRequest {
        users: vec!["bob".into(), "ann".into()],
    };
    let many = grpc
        .get_many(request(&bot, many))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(many.persons[0].status(), v1::Status::Offline);
    assert_eq!(many.persons[1].meta.as_deref(), Some("{\"a\":1}"));
    let one = v1::GetRequest { user: "ann".into() };
    let one = grpc.get(request(&bot, one)).await.unwrap().into_inner();
    assert_eq!(one.person.as_ref(), many.persons.get(1));

    let topic = "room:den".to_owned();
    let count = v1::CountRequest { topic };
    let count = grpc.count(request(&bot, count)).await.unwrap().into_inner();
    assert_eq!((count.count, count.complete), (1, true));

    let status = v1::SetStatusRequest {
        user: Some("ann".into()),
        manual: Some(Given::Status(v1::Status::Busy.into())),
    };
    grpc.set_status(request(&bot, status)).await.unwrap();
    let visibility = v1::SetVisibilityRequest {
        user: None,
        visibility: v1::Visibility::Contacts.into(),
    };
    grpc.set_visibility(request(&ann, visibility))
        .await
        .unwrap();
    let contacts = v1::SetContactsRequest {
        user: None,
        contacts: vec!["bob".into()],
    };
    grpc.set_contacts(request(&ann, contacts)).await.unwrap();
    let prefs = world.store.read(&[key("ann")]).await.unwrap()[0].prefs;
    assert_eq!(prefs.status.value, Some(Manual::Busy));
    assert_eq!(prefs.visibility.value, Visibility::Contacts);
    assert!(prefs.contacts > 0);
    let clear = v1::SetStatusRequest {
        user: None,
        manual: Some(Given::ClearStatus(v1::Clear {})),
    };
    grpc.set_status(request(&ann, clear)).await.unwrap();
    let prefs = world.store.read(&[key("ann")]).await.unwrap()[0].prefs;
    assert_eq!(prefs.status.value, None);

    let all = v1::DisconnectRequest::default();
    let closed = grpc
        .disconnect(request(&ann, all))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(closed.closed, 1);
    let seen = v1::LastSeenRequest {
        users: vec!["ann".into()],
    };
    let seen = grpc
        .last_seen(request(&token("bob"), seen))
        .await
        .unwrap()
        .into_inner();
    assert!(seen.users[0].last_seen.is_some());
}

#[tokio::test]
async fn failures_have_both_codes() {
    let world = World::new();
    let mut grpc = world.grpc();
    let get = |user: &str| v1::GetRequest { user: user.into() };
    let bare = grpc.get(Request::new(get("ann"))).await.unwrap_err();
    assert_eq!(code(&bare), (Code::Unauthenticated, "unauthorized"));
    let old = claims(serde_json::json!({"tenant": "acme", "sub": "a", "exp": 1}));
    let old = grpc.get(request(&old, get("ann"))).await.unwrap_err();
    assert_eq!(code(&old), (Code::Unauthenticated, "token_expired"));
    let ann = token("ann");
    let missing = grpc.get(request(&ann, get(""))).await.unwrap_err();
    assert_eq!(code(&missing), (Code::InvalidArgument, "missing_field"));
    let wrong = grpc.get(request(&ann, get("a\n"))).await.unwrap_err();
    assert_eq!(code(&wrong), (Code::InvalidArgument, "invalid_id"));
    let narrow = claims(serde_json::json!({"tenant": "acme", "sub": "a", "watch": []}));
    let other = grpc.get(request(&narrow, get("ann"))).await.unwrap_err();
    assert_eq!(code(&other), (Code::PermissionDenied, "forbidden"));
    for (topic, word) in [
        ("user:ann", "invalid_topic"),
        ("den", "invalid_topic"),
        ("", "missing_field"),
    ] {
        let count = v1::CountRequest {
            topic: topic.into(),
        };
        let refused = grpc.count(request(&ann, count)).await.unwrap_err();
        assert_eq!(code(&refused), (Code::InvalidArgument, word), "{topic}");
    }
    let page = v1::MembersRequest {
        topic: "tenant".into(),
        page_token: "x".into(),
        ..Default::default()
    };
    let page = grpc.members(request(&ann, page)).await.unwrap_err();
    assert_eq!(code(&page), (Code::InvalidArgument, "invalid_page"));
    let status = grpc
        .set_status(request(&ann, v1::SetStatusRequest::default()))
        .await;
    assert_eq!(
        code(&status.unwrap_err()),
        (Code::InvalidArgument, "missing_field")
    );
    let online = v1::SetStatusRequest {
        user: None,
        manual: Some(Given::Status(v1::Status::Online.into())),
    };
    let online = grpc.set_status(request(&ann, online)).await.unwrap_err();
    assert_eq!(code(&online), (Code::InvalidArgument, "invalid_status"));
    let seen = grpc
        .set_visibility(request(&ann, v1::SetVisibilityRequest::default()))
        .await;
    assert_eq!(
        code(&seen.unwrap_err()),
        (Code::InvalidArgument, "missing_field")
    );
    let kick = v1::DisconnectRequest {
        user: Some("bob".into()),
        device: None,
    };
    let kick = grpc.disconnect(request(&ann, kick)).await.unwrap_err();
    assert_eq!(code(&kick), (Code::PermissionDenied, "forbidden"));
    world.store.stall(world.store.shard_of(&key("ann")), true);
    let away = grpc.get(request(&ann, get("ann"))).await.unwrap_err();
    assert_eq!(code(&away), (Code::Unavailable, "unavailable"));
    assert_eq!(away.metadata().get("retry-after-ms").unwrap(), "1000");
}

#[tokio::test]
async fn health_follows_the_drain() {
    let world = World::new();
    let mut health = HealthClient::new(world.routes.clone());
    tokio::task::yield_now().await;
    for service in ["", "adsum.v1.Presence"] {
        let ask = HealthCheckRequest {
            service: service.into(),
        };
        let healthy = health.check(ask).await.unwrap().into_inner();
        assert_eq!(healthy.status().as_str_name(), "SERVING", "{service}");
    }
    world.edge.draining().cancel();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let ask = HealthCheckRequest {
        service: "adsum.v1.Presence".into(),
    };
    let healthy = health.check(ask).await.unwrap().into_inner();
    assert_eq!(healthy.status().as_str_name(), "NOT_SERVING");
}

#[tokio::test]
async fn reflection_in_both_versions() {
    let world = World::new();
    let ask = reflection::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            reflection::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
    };
    let mut client =
        reflection::server_reflection_client::ServerReflectionClient::new(world.routes.clone());
    let answers = client
        .server_reflection_info(tokio_stream::iter([ask]))
        .await;
    let answer = answers
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap();
    assert!(format!("{answer:?}").contains("adsum.v1.Presence"));

    let ask = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                "adsum.v1.Presence".into(),
            ),
        ),
    };
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(world.routes.clone());
    let answers = client
        .server_reflection_info(tokio_stream::iter([ask]))
        .await;
    let answer = answers
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap();
    assert!(format!("{answer:?}").contains("FileDescriptorResponse"));
}
