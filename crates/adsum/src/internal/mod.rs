//! The internal listener: is this node alive, is it ready, how do its shards stand, why is
//! somebody online; and what operators may do. Never public: whoever reaches it may use it.

mod dependencies;
mod metrics;
mod problem;
mod ready;
mod shards;
mod stop;
mod users;
mod who;

use std::sync::Arc;

use adsum_core::{membership::Membership, store::Store};
use adsum_dispatcher::Dispatcher;
use adsum_reaper::ReaperStatus;
use adsum_telemetry::measured::Health;
use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header::ORIGIN},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::sync::watch;

use crate::{config::Config, drain::Drain, public::Public};
pub(crate) use dependencies::Since;
use problem::Problem;

/// What the node is made of.
pub(crate) struct Parts {
    /// As it was started.
    pub(crate) config: Arc<Config>,
    /// Where sessions live.
    pub(crate) store: Arc<dyn Store>,
    /// Who is in the cluster.
    pub(crate) membership: Arc<dyn Membership>,
    /// With the role.
    pub(crate) dispatcher: Option<Dispatcher>,
    /// With the role.
    pub(crate) reaper: Option<watch::Receiver<ReaperStatus>>,
    /// With the role.
    pub(crate) public: Option<Public>,
    /// How to stop it all.
    pub(crate) drain: Drain,
    /// How the store answers.
    pub(crate) health: Arc<Health>,
    /// Since when the rest is as it is.
    pub(crate) since: Since,
}

/// The routes.
pub(crate) fn router(parts: Arc<Parts>) -> Router {
    metrics::observe(&parts);
    dependencies::watch(&parts);
    let admin = Router::new()
        .route("/admin/shards", get(shards::shards))
        .route("/admin/users/{tenant}/{user}", get(users::why))
        .route("/admin/kick", post(users::kick))
        .route("/admin/purge", post(users::purge))
        .route("/admin/drain", post(stop::drain))
        .layer(middleware::from_fn(not_for_browsers));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready::ready))
        .route("/metrics", get(metrics::metrics))
        .merge(admin)
        .with_state(parts)
}

/// A page that somebody on this machine looks at could send requests here, too: browsers say so.
async fn not_for_browsers(request: Request, next: Next) -> Response {
    if request.method() != axum::http::Method::GET && request.headers().contains_key(ORIGIN) {
        let said = "admin calls are not for browsers: use `adsum` or curl";
        return Problem::new(StatusCode::FORBIDDEN, "forbidden", said).into_response();
    }
    next.run(request).await
}
