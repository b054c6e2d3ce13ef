//! `adsum.v1.Presence` over gRPC, with health and reflection beside it. Requests are let in by
//! `admit` and answered by `requests`; `stream` has the connections.

mod admit;
mod answer;
mod body;
mod calls;
mod stream;

use adsum_proto::client::{FILE_DESCRIPTOR_SET, presence_door::PresenceServer};
use axum::middleware::{from_fn_with_state, map_response};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::Builder;

use crate::requests::{BATCH_BYTES, Requests};
use calls::PresenceCalls;

/// The name that health checks know the service by.
const SERVICE: &str = "adsum.v1.Presence";
/// A page of members with large `meta` is longer than what may come in.
const ANSWER_BYTES: usize = 16 << 20;

/// All gRPC services of the public port. To be called inside a runtime.
pub(crate) fn routes(requests: impl Into<Requests>) -> Routes {
    let requests = requests.into();
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(report(reporter, requests.edge().draining().clone()));
    let admit = from_fn_with_state(requests.clone(), admit::admit);
    let presence = PresenceServer::new(PresenceCalls::new(requests))
        .max_decoding_message_size(BATCH_BYTES)
        .max_encoding_message_size(ANSWER_BYTES);
    let routes = reflected(Routes::new(presence).add_service(health)).into_axum_router();
    let routes = routes.layer(map_response(body::carry));
    routes.layer(admit).into()
}

/// Serving until the gateway begins to drain: balancers then send newcomers elsewhere.
async fn report(reporter: HealthReporter, draining: tokio_util::sync::CancellationToken) {
    set(&reporter, ServingStatus::Serving).await;
    draining.cancelled().await;
    set(&reporter, ServingStatus::NotServing).await;
}

async fn set(reporter: &HealthReporter, status: ServingStatus) {
    for service in ["", SERVICE] {
        reporter.set_service_status(service, status).await;
    }
}

/// Both versions of reflection: tools still ask for the older one.
fn reflected(routes: Routes) -> Routes {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match (builder().build_v1(), builder().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            // The descriptors are part of the binary; without them everything else still works.
            tracing::error!(%error, "reflection is not served");
            routes
        }
    }
}
