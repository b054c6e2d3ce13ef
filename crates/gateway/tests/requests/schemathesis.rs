//! Serves the router on a port for tools that try an API by its document. Not a test by itself:
//! `ADSUM_SERVE=127.0.0.1:8099 cargo test -p adsum-gateway serve_for_tools -- --ignored`.

use std::net::SocketAddr;

use super::support::*;
use crate::{EdgeConfig, limits::EdgeLimits};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "serves until it is stopped"]
async fn serve_for_tools() {
    let address = std::env::var("ADSUM_SERVE").unwrap_or_else(|_| "127.0.0.1:8099".into());
    let limits = EdgeLimits {
        messages_per_second: 100_000,
        message_burst: 100_000,
        ..EdgeLimits::default()
    };
    let world = World::with(limits, EdgeConfig::default());
    for name in ["ann", "bob"] {
        world.open(name, "d", "den").await;
    }
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("user {}\nservice {}", token("ann"), all_seeing());
    let app = world.router.clone();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await.unwrap();
}
