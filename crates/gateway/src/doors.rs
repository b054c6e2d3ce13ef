//! All doors of the public port in one router.

use axum::{Router, middleware};

use crate::{Edge, grpc, http, requests::Requests, sse, traced::traced, ws};

/// WebSocket, HTTP, events and gRPC, over one edge.
pub fn doors(edge: Edge) -> Router {
    let requests = Requests::from(edge);
    let calls = grpc::routes(requests.clone())
        .into_axum_router()
        .reset_fallback()
        .merge(http::router(requests.clone()))
        .layer(middleware::from_fn(traced));
    Router::new()
        .merge(ws::router(requests.clone()))
        .merge(sse::router(requests))
        .merge(calls)
}
