//! The same over gRPC, with health and reflection.

use adsum_core::{Manual, Visibility, store::Store};
use adsum_proto::client::v1::{self, set_status_request::Manual as Given};
use axum::{body::Body, extract::ConnectInfo, http, response::Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use prost::Message;
use tonic::{Code, Request, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1 as reflection, v1alpha};
use tower::ServiceExt;

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
    assert_eq!(beaten.ttl_ms, 45_000);
    assert_spread(beaten.heartbeat_ms);
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

/// A message as gRPC frames it, whatever it is.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    let length = u32::try_from(message.len()).unwrap();
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

async fn raw(world: &World, method: &str, token: Option<&str>, body: Body) -> Response {
    let mut request = http::Request::post(format!("/adsum.v1.Presence/{method}"))
        .header("content-type", "application/grpc");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut request = request.body(body).unwrap();
    request.extensions_mut().insert(ConnectInfo(PEER));
    let router = world.routes.clone().into_axum_router();
    router.oneshot(request).await.unwrap()
}

/// gRPC's code and ours of a message that is refused.
async fn refused(
    world: &World,
    method: &str,
    token: Option<&str>,
    message: &[u8],
) -> (Code, String) {
    let response = raw(world, method, token, framed(message).into()).await;
    let status = Status::from_header_map(response.headers()).unwrap();
    let (grpc, ours) = code(&status);
    (grpc, ours.to_owned())
}

#[tokio::test]
async fn messages_that_are_none() {
    let world = World::new();
    let ann = token("ann");
    let malformed = (Code::InvalidArgument, "malformed_frame".to_owned());
    for method in ["Get", "GetMany", "Heartbeat", "Watch", "SetContacts"] {
        for message in [&b"\xff\xff\xff"[..], b"\x0a\x05abc", b"\x0a\x02\xff\xff"] {
            let refused = refused(&world, method, Some(&ann), message).await;
            assert_eq!(refused, malformed, "{method} {message:?}");
        }
    }
    let long = vec![0; (4 << 20) + 1];
    let long = refused(&world, "Get", Some(&ann), &long).await;
    assert_eq!(long, (Code::OutOfRange, "frame_too_large".to_owned()));
}

#[tokio::test]
async fn far_too_many_are_not_decoded() {
    let world = World::new();
    let ann = token("ann");
    let empty = b"\n\0".repeat(200_000);
    for (method, word) in [
        ("Heartbeat", "too_many_users"),
        ("GetMany", "too_many_users"),
        ("LastSeen", "too_many_users"),
        ("Watch", "too_many_topics"),
    ] {
        let many = refused(&world, method, Some(&ann), &empty).await;
        assert_eq!(many, (Code::InvalidArgument, word.to_owned()), "{method}");
        // Who may not come in is not read at all.
        let bare = refused(&world, method, None, &empty).await;
        let unauthorized = (Code::Unauthenticated, "unauthorized".to_owned());
        assert_eq!(bare, unauthorized, "{method}");
    }
    let beat = v1::Beat {
        rooms: vec![v1::Join::default(); 500_000],
        ..Default::default()
    };
    let rooms = v1::HeartbeatRequest { beats: vec![beat] }.encode_to_vec();
    let rooms = refused(&world, "Heartbeat", Some(&ann), &rooms).await;
    let too_many = (Code::InvalidArgument, "too_many_users".to_owned());
    assert_eq!(rooms, too_many);
}

/// The codes of all errors that a connection is told for these frames, and how it ends.
async fn connected(world: &World, messages: &[&[u8]]) -> (Vec<String>, Status) {
    let frames: Vec<_> = messages.iter().map(|message| framed(message)).collect();
    // The client stays, so that it is not taken for gone.
    let frames = stream::iter(frames).map(Ok::<_, std::io::Error>);
    let body = Body::from_stream(frames.chain(stream::pending()));
    let whole = raw(world, "Connect", None, body).await.into_body();
    let whole = whole.collect().await.unwrap();
    let end = Status::from_header_map(whole.trailers().unwrap()).unwrap();
    let (mut bytes, mut codes) = (whole.to_bytes(), Vec::new());
    while !bytes.is_empty() {
        let head = bytes.split_to(5);
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let message = bytes.split_to(usize::try_from(length).unwrap());
        let frame = v1::ServerFrame::decode(message).unwrap();
        match frame.frame {
            Some(v1::server_frame::Frame::Error(error)) => codes.push(error.code),
            other => panic!("{other:?}"),
        }
    }
    (codes, end)
}

#[tokio::test]
async fn frames_that_are_none() {
    let world = World::new();
    let heartbeat = &b"\x22\0"[..];
    // The stream goes on behind it, until something ends it.
    let messages = [&b"\xff\xff\xff"[..], b"\x1a\x05abc", heartbeat];
    let (codes, end) = connected(&world, &messages).await;
    let expected = ["malformed_frame", "malformed_frame", "hello_expected"];
    assert_eq!(codes, expected);
    assert_eq!(end.code(), Code::InvalidArgument);
    assert_eq!(end.metadata().get("adsum-close").unwrap(), "4400");
    // Nothing else for too long.
    let (codes, end) = connected(&world, &[&b"\xff"[..]; 20]).await;
    assert_eq!(codes, ["malformed_frame"; 20]);
    assert_eq!(end.code(), Code::InvalidArgument);
    assert_eq!(end.metadata().get("adsum-close").unwrap(), "4400");
}

#[tokio::test]
async fn a_frame_is_as_long_as_it_came() {
    let world = World::new();
    // A field that nobody knows, with 70,000 bytes.
    let mut frame = b"\x22\0\x7a\xf0\xa2\x04".to_vec();
    frame.resize(frame.len() + 70_000, b'x');
    let (codes, end) = connected(&world, &[frame.as_slice()]).await;
    assert_eq!(codes, ["frame_too_large"]);
    assert_eq!(end.code(), Code::OutOfRange);
    assert_eq!(end.metadata().get("adsum-close").unwrap(), "1009");
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
