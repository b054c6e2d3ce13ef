//! Settings and goodbyes: of oneself, and by services of others.

use adsum_core::{DeviceId, UserId};
use adsum_proto::client::{Fault, check};
use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
};

use super::{
    HttpError,
    answer::Reply,
    bodies::{ClosedBody, ContactsBody, StatusBody, VisibilityBody},
    extract::{Admitted, At},
    json::{self, Size},
    schemas::Id,
};
use crate::{Caller, requests::Requests};

type Done = Result<StatusCode, HttpError>;

/// Sets or clears one's own manual status.
#[utoipa::path(put, path = "/v1/me/status", operation_id = "set_own_status", tag = "me",
    request_body = StatusBody, responses((status = 204, description = "Done")))]
pub(super) async fn own_status(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    request: Request,
) -> Done {
    set_status(&requests, &caller, None, request).await
}

/// Sets or clears a user's manual status; for services.
#[utoipa::path(put, path = "/v1/users/{user}/status", operation_id = "set_status",
    tag = "services", params(("user" = Id, Path)),
    request_body = StatusBody, responses((status = 204, description = "Done")))]
pub(super) async fn status(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(user): At<UserId>,
    request: Request,
) -> Done {
    set_status(&requests, &caller, Some(user), request).await
}

async fn set_status(
    requests: &Requests,
    caller: &Caller,
    user: Option<UserId>,
    request: Request,
) -> Done {
    let body: StatusBody = json::read(request, caller, Size::One).await?;
    let word = body.status.ok_or(Fault::Missing("status"))?;
    let manual = word.as_deref().map(check::manual).transpose()?;
    requests.set_status(caller, user, manual).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets who may see oneself.
#[utoipa::path(put, path = "/v1/me/visibility", operation_id = "set_own_visibility",
    tag = "me", request_body = VisibilityBody,
    responses((status = 204, description = "Done")))]
pub(super) async fn own_visibility(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    request: Request,
) -> Done {
    set_visibility(&requests, &caller, None, request).await
}

/// Sets who may see a user; for services.
#[utoipa::path(put, path = "/v1/users/{user}/visibility", operation_id = "set_visibility",
    tag = "services", params(("user" = Id, Path)), request_body = VisibilityBody,
    responses((status = 204, description = "Done")))]
pub(super) async fn visibility(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(user): At<UserId>,
    request: Request,
) -> Done {
    set_visibility(&requests, &caller, Some(user), request).await
}

async fn set_visibility(
    requests: &Requests,
    caller: &Caller,
    user: Option<UserId>,
    request: Request,
) -> Done {
    let body: VisibilityBody = json::read(request, caller, Size::One).await?;
    let word = body.visibility.ok_or(Fault::Missing("visibility"))?;
    let visibility = check::visibility(&word)?;
    requests.set_visibility(caller, user, visibility).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces one's own list of contacts.
#[utoipa::path(put, path = "/v1/me/contacts", operation_id = "set_own_contacts", tag = "me",
    request_body = ContactsBody, responses((status = 204, description = "Done")))]
pub(super) async fn own_contacts(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    request: Request,
) -> Done {
    set_contacts(&requests, &caller, None, request).await
}

/// Replaces a user's list of contacts; for services.
#[utoipa::path(put, path = "/v1/users/{user}/contacts", operation_id = "set_contacts",
    tag = "services", params(("user" = Id, Path)), request_body = ContactsBody,
    responses((status = 204, description = "Done")))]
pub(super) async fn contacts(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(user): At<UserId>,
    request: Request,
) -> Done {
    set_contacts(&requests, &caller, Some(user), request).await
}

async fn set_contacts(
    requests: &Requests,
    caller: &Caller,
    user: Option<UserId>,
    request: Request,
) -> Done {
    let body: ContactsBody = json::read(request, caller, Size::Batch).await?;
    let contacts = body.contacts.ok_or(Fault::Missing("contacts"))?;
    let contacts = contacts.into_iter().map(UserId::new);
    let contacts = contacts.collect::<Result<_, _>>()?;
    requests.set_contacts(caller, user, contacts).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Says goodbye for one of one's own devices.
#[utoipa::path(delete, path = "/v1/sessions/{device}", operation_id = "leave",
    tag = "sessions", params(("device" = Id, Path)),
    responses((status = 200, description = "None, if it was not there", body = ClosedBody)))]
pub(super) async fn leave(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(device): At<DeviceId>,
) -> Reply<ClosedBody> {
    let closed = requests.disconnect(&caller, None, Some(device)).await?;
    Ok(Json(ClosedBody { closed }))
}

/// Closes all sessions of a user: `kicked` if by a service, `leave` if by the user.
#[utoipa::path(delete, path = "/v1/users/{user}/sessions", operation_id = "kick",
    tag = "services", params(("user" = Id, Path)),
    responses((status = 200, description = "How many were closed", body = ClosedBody)))]
pub(super) async fn kick(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(user): At<UserId>,
) -> Reply<ClosedBody> {
    let closed = requests.disconnect(&caller, Some(user), None).await?;
    Ok(Json(ClosedBody { closed }))
}

/// Closes one session of a user: `kicked` if by a service, `leave` if by the user.
#[utoipa::path(delete, path = "/v1/users/{user}/sessions/{device}",
    operation_id = "kick_device", tag = "services",
    params(("user" = Id, Path), ("device" = Id, Path)),
    responses((status = 200, description = "How many were closed", body = ClosedBody)))]
pub(super) async fn kick_device(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At((user, device)): At<(UserId, DeviceId)>,
) -> Reply<ClosedBody> {
    let closed = requests
        .disconnect(&caller, Some(user), Some(device))
        .await?;
    Ok(Json(ClosedBody { closed }))
}
