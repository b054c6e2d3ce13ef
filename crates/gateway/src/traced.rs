//! Spans of requests: HTTP and gRPC calls whose head names a sampled trace, or that chance picks.
//! What the store commits within one becomes a part of it.

use adsum_telemetry::trace::{self, Span};
use axum::{
    extract::{MatchedPath, Request},
    http::header::CONTENT_TYPE,
    middleware::Next,
    response::Response,
};

/// Runs a request within its span, if it has one.
pub(crate) async fn traced(request: Request, next: Next) -> Response {
    if !trace::on() {
        return next.run(request).await;
    }
    let parent = request.headers().get("traceparent");
    let span = trace::begin("request", parent.and_then(|value| value.to_str().ok()));
    let span = span.map(|span| named(span, &request));
    trace::within(span, next.run(request)).await
}

/// By the names that OpenTelemetry gives to calls.
fn named(span: Span, request: &Request) -> Span {
    let grpc = request.headers().get(CONTENT_TYPE);
    if grpc.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        let method = request.uri().path().trim_start_matches('/').to_owned();
        return span.named(method).with("rpc.system.name", "grpc");
    }
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("", |route| route.as_str()).to_owned();
    let method = request.method().to_string();
    span.named(format!("{method} {route}"))
        .with("http.request.method", method)
        .with("http.route", route)
}
