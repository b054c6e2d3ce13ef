//! Every failure has one shape, whoever found it.

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use serde_json::json;

use super::support::*;

fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::AUTHORIZATION, format!("Bearer {}", token("ann")))
}

fn json_request(path: &str, body: impl Into<Body>) -> Request<Body> {
    request(Method::POST, path)
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(body.into())
        .unwrap()
}

#[tokio::test]
async fn who_may_not_come_in_is_told_how() {
    let world = World::new();
    let bare = Request::get("/v1/users/ann").body(Body::empty()).unwrap();
    let reply = world.send(bare).await;
    assert_eq!(reply.code(), (401, "unauthorized"));
    assert_eq!(reply.headers["www-authenticate"], "Bearer realm=\"adsum\"");
    for (header, code) in [
        ("Basic YTpi", "unauthorized"),
        ("Bearer", "unauthorized"),
        ("Bearer a.b.c", "unauthorized"),
        (
            "Bearer {\"tenant\":\"acme\",\"sub\":\"a\",\"exp\":1}",
            "token_expired",
        ),
    ] {
        let request = Request::get("/v1/users/ann").header("authorization", header);
        let reply = world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.code(), (401, code), "{header}");
    }
    let garbled = Request::get("/v1/users/ann").header("authorization", &b"Bearer \xff"[..]);
    let reply = world.send(garbled.body(Body::empty()).unwrap()).await;
    assert_eq!(reply.code(), (401, "unauthorized"));
    // Unsigned identities are for this machine alone.
    let mut far = request(Method::GET, "/v1/users/ann")
        .body(Body::empty())
        .unwrap();
    let peer = axum::extract::ConnectInfo(std::net::SocketAddr::from(([10, 0, 0, 1], 1)));
    far.extensions_mut().insert(peer);
    let response = tower::ServiceExt::oneshot(world.router.clone(), far)
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
}

#[tokio::test]
async fn unknown_paths_and_methods() {
    let world = World::new();
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v1/users/",
        "/v1/users/a/b",
        "/v2/users/a",
    ] {
        let reply = world
            .send(request(Method::GET, path).body(Body::empty()).unwrap())
            .await;
        assert_eq!(reply.code(), (404, "unknown_frame"), "{path}");
    }
    for (method, path, allow) in [
        (Method::POST, "/v1/users/ann", "GET,HEAD"),
        (Method::GET, "/v1/heartbeat", "POST"),
        (Method::TRACE, "/v1/me/status", "GET,HEAD,PUT"),
        (Method::PATCH, "/v1/users/ann/sessions", "DELETE"),
    ] {
        let reply = world
            .send(request(method, path).body(Body::empty()).unwrap())
            .await;
        assert_eq!(reply.code(), (405, "unknown_frame"), "{path}");
        assert_eq!(reply.headers["allow"], allow);
    }
}

#[tokio::test]
async fn bodies_that_are_none() {
    let world = World::new();
    let path = "/v1/users:batch";
    for body in [
        "",
        "{",
        "[]",
        "\"users\"",
        "null",
        "{\"users\":[]} x",
        "{\"users\":[],\"users\":[]}",
    ] {
        let reply = world.send(json_request(path, body)).await;
        assert_eq!(reply.code(), (400, "malformed_frame"), "{body}");
    }
    let broken = &b"{\"users\":[\"\xff\"]}"[..];
    assert_eq!(
        world.send(json_request(path, broken)).await.code(),
        (400, "malformed_frame")
    );
    let deep = format!("{{\"users\":{}{}}}", "[".repeat(9000), "]".repeat(9000));
    assert_eq!(
        world.send(json_request(path, deep)).await.code(),
        (400, "malformed_frame")
    );
    for kind in [None, Some("text/plain"), Some("application/xml")] {
        let mut request = request(Method::POST, path);
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let reply = world
            .send(request.body(Body::from("{\"users\":[]}")).unwrap())
            .await;
        assert_eq!(reply.code(), (415, "malformed_frame"), "{kind:?}");
    }
    // What is not known is ignored.
    let more = json!({"users": [], "hints": 3}).to_string();
    world.send(json_request(path, more)).await.ok();
}

#[tokio::test]
async fn bodies_that_are_too_long() {
    let world = World::new();
    let too_large = (413, "frame_too_large");
    let long = format!("{{\"status\":\"dnd\",\"x\":\"{}\"}}", "x".repeat(65 * 1024));
    let put = |body: Body| {
        request(Method::PUT, "/v1/me/status")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .unwrap()
    };
    assert_eq!(world.send(put(long.clone().into())).await.code(), too_large);
    // Whether it says so beforehand or not.
    let pieces: Vec<Result<_, std::io::Error>> = vec![Ok(long.clone()), Ok(long.clone())];
    let stream = Body::from_stream(futures::stream::iter(pieces));
    assert_eq!(world.send(put(stream)).await.code(), too_large);
    let broken: Vec<Result<String, _>> = vec![Err(std::io::Error::other("gone"))];
    let stream = Body::from_stream(futures::stream::iter(broken));
    assert_eq!(
        world.send(put(stream)).await.code(),
        (400, "malformed_frame")
    );
    // Many may be longer than one, and are bounded, too.
    let users: Vec<_> = (0..1000).map(|n| format!("{n:0>128}")).collect();
    let body = json!({"users": users}).to_string();
    world.send(json_request("/v1/users:batch", body)).await.ok();
    let beat = format!(
        "{{\"device\":\"d\",\"conn\":1,\"x\":\"{}\"}}",
        "x".repeat(65 * 1024)
    );
    assert_eq!(
        world.send(json_request("/v1/heartbeat", beat)).await.code(),
        too_large
    );
    let huge = "x".repeat((4 << 20) + 1);
    assert_eq!(
        world
            .send(json_request("/v1/users:batch", huge))
            .await
            .code(),
        too_large
    );
}

#[tokio::test]
async fn paths_and_queries_that_are_none() {
    let world = World::new();
    let ann = token("ann");
    for (path, code) in [
        ("/users/%ff", "malformed_frame"),
        ("/users/a%00b", "invalid_id"),
        ("/users/%C2%85", "invalid_id"),
        ("/rooms/den?page_size=x", "malformed_frame"),
        ("/rooms/den?page_size=", "malformed_frame"),
        ("/rooms/den?page_size=-1", "malformed_frame"),
        ("/rooms/den?page_size=4294967296", "malformed_frame"),
        ("/rooms/den?page_size=1&page_size=2", "malformed_frame"),
        ("/rooms/den?page_token=zz", "invalid_page"),
        ("/tenant/members?page_token=0", "invalid_page"),
    ] {
        assert_eq!(world.get(&ann, path).await.code(), (400, code), "{path}");
    }
    let long = format!("/users/{}", "x".repeat(129));
    assert_eq!(world.get(&ann, &long).await.code(), (400, "invalid_id"));
    let users = json!({"users": ["ok", "x".repeat(129)]});
    assert_eq!(
        world.post(&ann, "/users:batch", users).await.code(),
        (400, "invalid_id")
    );
    world
        .get(&ann, "/rooms/den?page_size=4294967295&page_token=&more=1")
        .await
        .ok();
}

#[tokio::test]
async fn too_much_at_a_time() {
    let world = World::new();
    let strict = claims(json!({"tenant": "strict", "sub": "ann", "watch": ["*"]}));
    for _ in 0..3 {
        world.get(&strict, "/users/ann").await.ok();
    }
    let reply = world.get(&strict, "/users/ann").await;
    assert_eq!(reply.code(), (429, "rate_limited"));
    assert_eq!(reply.headers["retry-after"], "1");
    assert!(reply.body["error"]["retry_after_ms"].as_u64().unwrap() <= 1000);
    // One bucket for both doors.
    let ask = super::grpc::request(
        &strict,
        adsum_proto::client::v1::GetRequest { user: "a".into() },
    );
    let status = world.grpc().get(ask).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(status.metadata().get("adsum-code").unwrap(), "rate_limited");
    assert!(status.metadata().contains_key("retry-after-ms"));
    let other = claims(json!({"tenant": "strict", "sub": "bob"}));
    world.get(&other, "/users/bob").await.ok();
}

#[tokio::test]
async fn any_page_may_ask() {
    let world = World::new();
    let preflight = Request::options("/v1/me/status")
        .header("origin", "https://example.org")
        .header("access-control-request-method", "PUT")
        .header(
            "access-control-request-headers",
            "authorization,content-type",
        )
        .body(Body::empty());
    let reply = world.send(preflight.unwrap()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["access-control-allow-origin"], "*");
    assert_eq!(reply.headers["access-control-allow-methods"], "*");
    let asked = Request::get("/v1/users/ann").header("origin", "https://example.org");
    let reply = world.send(asked.body(Body::empty()).unwrap()).await;
    assert_eq!(
        (
            reply.status.as_u16(),
            reply.headers["access-control-allow-origin"].as_bytes()
        ),
        (401, &b"*"[..])
    );
}
