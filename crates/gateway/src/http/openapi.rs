//! The description of `/v1` in OpenAPI, put together of what stands at the handlers, with the
//! failures that all of them share and the limits of this node.

use axum::{http::header, response::IntoResponse};
use bytes::Bytes;
use serde_json::{Value, json};
use utoipa::{
    Modify, OpenApi as _,
    openapi::{
        HttpMethod, OpenApi, Ref, RefOr, Response, ResponseBuilder,
        content::ContentBuilder,
        header::HeaderBuilder,
        path::Operation,
        schema::{ObjectBuilder, Type},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::{
    beats, bodies, reads,
    schemas::{HeartbeatBody, ModeWord, PageTokenText, RoomEntry, TopicName},
    writes,
};
use crate::Edge;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Adsum",
        description = "Who is online, on which devices, in which rooms, since when. Fields that \
                       are not known are ignored, in both directions. See docs/protocol.md.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        beats::heartbeat, writes::leave,
        reads::user, reads::users, reads::last_seen, reads::last_seens,
        reads::room, reads::room_count, reads::tenant, reads::tenant_count,
        reads::own_status, writes::own_status, reads::own_visibility, writes::own_visibility,
        reads::own_contacts, writes::own_contacts,
        writes::status, writes::visibility, writes::contacts, writes::kick, writes::kick_device,
        events, itself
    ),
    components(schemas(
        bodies::ErrorBody, bodies::ProblemBody, bodies::BeatBody, bodies::BeatsBody,
        bodies::RoomBody, HeartbeatBody, ModeWord, PageTokenText, RoomEntry, TopicName
    )),
    modifiers(&Shared)
)]
struct Document;

/// Topics as server-sent events: `presence_state`, then `presence_diff`s.
#[utoipa::path(get, path = "/v1/events", operation_id = "events", tag = "topics",
    params(
        ("topic" = Vec<TopicName>, Query, description = "One or more", style = Form, explode),
        ("mode" = Option<ModeWord>, Query),
        ("token" = Option<String>, Query, description = "For those who can't set a header"),
    ),
    responses((status = 200, description = "Until closed", body = String,
        content_type = "text/event-stream")))]
#[allow(dead_code, reason = "describes what another module serves")]
const fn events() {}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "openapi", tag = "about",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
#[allow(dead_code, reason = "describes a route that is a closure")]
const fn itself() {}

/// What every operation has in common.
struct Shared;

const BEARER: &str = "bearer";

impl Modify for Shared {
    fn modify(&self, document: &mut OpenApi) {
        if let Some(components) = &mut document.components {
            let scheme = HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .bearer_format("JWT");
            components.add_security_scheme(BEARER, SecurityScheme::Http(scheme.build()));
        }
        for item in document.paths.paths.values_mut() {
            let operations = [
                (HttpMethod::Get, &mut item.get),
                (HttpMethod::Put, &mut item.put),
                (HttpMethod::Post, &mut item.post),
                (HttpMethod::Delete, &mut item.delete),
            ];
            for (_, operation) in operations {
                operation.iter_mut().for_each(share);
            }
        }
    }
}

fn share(operation: &mut Operation) {
    add(operation, "405", "Not by this method");
    if operation.security.is_some() {
        // The one that needs no token.
        return;
    }
    operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(
        BEARER,
        [],
    )]);
    add(operation, "400", "Something in the request is wrong");
    add(
        operation,
        "401",
        "No token, or one that is not good or has ended",
    );
    add(operation, "403", "The token does not allow this");
    add(operation, "404", "There is no such path");
    add(operation, "429", "Too many requests");
    add(operation, "500", "A fault of ours");
    add(operation, "503", "A part of the cluster does not answer");
    if operation.request_body.is_some() {
        add(operation, "413", "The body is too large");
        add(operation, "415", "The body is not `application/json`");
    }
    if let Some(RefOr::T(conflict)) = operation.responses.responses.get_mut("409") {
        *conflict = failure("409", &conflict.description);
    }
}

fn add(operation: &mut Operation, status: &str, description: &str) {
    let response = RefOr::T(failure(status, description));
    let responses = &mut operation.responses.responses;
    responses.insert(status.to_owned(), response);
}

fn failure(status: &str, description: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error")));
    let mut response = ResponseBuilder::new()
        .description(description)
        .content("application/json", content.build());
    let header = |kind| {
        let schema = ObjectBuilder::new().schema_type(kind).build();
        HeaderBuilder::new().schema(Some(schema)).build()
    };
    match status {
        "401" => response = response.header("WWW-Authenticate", header(Type::String)),
        "405" => response = response.header("Allow", header(Type::String)),
        "429" | "503" => response = response.header("Retry-After", header(Type::Integer)),
        _ => {}
    }
    response.build()
}

/// The document, with the limits of this node in it.
pub(super) fn document(edge: &Edge) -> Bytes {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or(Value::Null);
    let limits = &edge.book().node().limits;
    let users = edge.config().users_per_request;
    for (path, limit) in [
        ("Users/properties/users", users),
        ("Beats/properties/beats", users),
        ("Contacts/properties/contacts", limits.contacts),
        ("Beat/properties/rooms", limits.rooms_per_session),
    ] {
        let place = format!("/components/schemas/{path}/maxItems");
        if let Some(most) = document.pointer_mut(&place) {
            *most = json!(limit);
        }
    }
    document.to_string().into()
}

/// Serves the document.
pub(super) async fn serve(document: Bytes) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document)
}
