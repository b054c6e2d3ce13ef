//! Requests over HTTP, under `/v1`: JSON in, JSON out, and one shape for every failure. What is
//! asked is decided in `requests`; here is only how it is spelled. `openapi` describes it all.

mod answer;
mod beats;
mod bodies;
mod extract;
mod json;
mod openapi;
mod reads;
mod schemas;
mod writes;

use adsum_proto::client::Code;
use axum::{
    Router,
    http::{StatusCode, Uri},
    routing::{delete, get, post, put},
};
use tower_http::cors::CorsLayer;

use crate::{EdgeError, requests::Requests};

pub(crate) use answer::HttpError;
pub(crate) use extract::{token, traceparent};

/// All of `/v1` but the connections. Unknown paths and methods are answered here, too.
pub(crate) fn router(requests: impl Into<Requests>) -> Router {
    let requests = requests.into();
    let document = openapi::document(requests.edge());
    Router::new()
        .route("/v1/heartbeat", post(beats::heartbeat))
        .route("/v1/sessions/{device}", delete(writes::leave))
        .route("/v1/users/{user}", get(reads::user))
        .route("/v1/users:batch", post(reads::users))
        .route("/v1/users/{user}/last_seen", get(reads::last_seen))
        .route("/v1/last_seen:batch", post(reads::last_seens))
        .route("/v1/rooms/{room}", get(reads::room))
        .route("/v1/rooms/{room}/count", get(reads::room_count))
        .route("/v1/tenant/members", get(reads::tenant))
        .route("/v1/tenant/count", get(reads::tenant_count))
        .route(
            "/v1/me/status",
            get(reads::own_status).put(writes::own_status),
        )
        .route(
            "/v1/me/visibility",
            get(reads::own_visibility).put(writes::own_visibility),
        )
        .route(
            "/v1/me/contacts",
            get(reads::own_contacts).put(writes::own_contacts),
        )
        .route("/v1/users/{user}/status", put(writes::status))
        .route("/v1/users/{user}/visibility", put(writes::visibility))
        .route("/v1/users/{user}/contacts", put(writes::contacts))
        .route("/v1/users/{user}/sessions", delete(writes::kick))
        .route(
            "/v1/users/{user}/sessions/{device}",
            delete(writes::kick_device),
        )
        .route("/v1/openapi.json", get(move || openapi::serve(document)))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(cors())
        .with_state(requests)
}

/// Tokens come in a header that scripts set themselves, never in a cookie: any page may ask.
pub(crate) fn cors() -> CorsLayer {
    CorsLayer::permissive()
}

async fn unknown_path(uri: Uri) -> HttpError {
    let path: String = uri.path().chars().take(64).collect();
    let error = EdgeError::new(Code::UnknownFrame, format!("there is no {path} here"));
    HttpError::with(StatusCode::NOT_FOUND, error)
}

pub(crate) async fn unknown_method() -> HttpError {
    let error = EdgeError::new(Code::UnknownFrame, "not by this method; see Allow");
    HttpError::with(StatusCode::METHOD_NOT_ALLOWED, error)
}
