//! All doors of the public port in one router.

use axum::Router;

use crate::{Edge, grpc, http, requests::Requests, sse, ws};

/// WebSocket, HTTP, events and gRPC, over one edge.
pub fn doors(edge: Edge) -> Router {
    let requests = Requests::from(edge);
    Router::new()
        .merge(ws::router(requests.clone()))
        .merge(sse::router(requests.clone()))
        .merge(
            grpc::routes(requests.clone())
                .into_axum_router()
                .reset_fallback(),
        )
        .merge(http::router(requests))
}
