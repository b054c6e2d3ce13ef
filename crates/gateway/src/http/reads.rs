//! Questions: persons, last seen, members, counts, and one's own settings.

use adsum_core::{RoomId, Topic, UserId};
use adsum_proto::client::Fault;
use axum::{
    Json,
    extract::{Request, State},
};

use super::{
    HttpError,
    answer::Reply,
    bodies::{
        ContactsBody, CountBody, LastSeenBody, LastSeensBody, MembersBody, PersonBody, PersonsBody,
        StatusBody, UsersBody, VisibilityBody,
    },
    extract::{Admitted, At, Paging},
    json::{self, Size},
    schemas::{Id, PageTokenText},
};
use crate::{Caller, requests::Requests};

/// One person.
#[utoipa::path(get, path = "/v1/users/{user}", operation_id = "get", tag = "people",
    params(("user" = Id, Path)),
    responses((status = 200, description = "The person, there or not", body = PersonBody)))]
pub(super) async fn user(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(user): At<UserId>,
) -> Reply<PersonBody> {
    Ok(Json(requests.get(&caller, user).await?.into()))
}

/// Many persons.
#[utoipa::path(post, path = "/v1/users:batch", operation_id = "get_many", tag = "people",
    request_body = UsersBody,
    responses((status = 200, description = "One for each, in order", body = PersonsBody)))]
pub(super) async fn users(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    request: Request,
) -> Reply<PersonsBody> {
    let users = named(request, &caller).await?;
    let found = requests.get_many(&caller, users).await?;
    let persons = found.into_iter().map(PersonBody::from).collect();
    Ok(Json(PersonsBody { persons }))
}

/// When a user was last there.
#[utoipa::path(get, path = "/v1/users/{user}/last_seen", operation_id = "last_seen",
    tag = "people", params(("user" = Id, Path)),
    responses((status = 200, description = "When, if that may be told", body = LastSeenBody)))]
pub(super) async fn last_seen(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(user): At<UserId>,
) -> Reply<LastSeenBody> {
    Ok(Json(requests.get(&caller, user).await?.into()))
}

/// When users were last there.
#[utoipa::path(post, path = "/v1/last_seen:batch", operation_id = "last_seen_many",
    tag = "people", request_body = UsersBody,
    responses((status = 200, description = "One for each, in order", body = LastSeensBody)))]
pub(super) async fn last_seens(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    request: Request,
) -> Reply<LastSeensBody> {
    let users = named(request, &caller).await?;
    let found = requests.last_seen(&caller, users).await?;
    let users = found.into_iter().map(LastSeenBody::from).collect();
    Ok(Json(LastSeensBody { users }))
}

async fn named(request: Request, caller: &Caller) -> Result<Vec<UserId>, HttpError> {
    let body: UsersBody = json::read(request, caller, Size::Batch).await?;
    let users = body.users.ok_or(Fault::Missing("users"))?;
    let users = users.into_iter().map(UserId::new);
    Ok(users.collect::<Result<_, _>>()?)
}

/// Who is in a room, page by page.
#[utoipa::path(get, path = "/v1/rooms/{room}", operation_id = "room_members", tag = "topics",
    params(
        ("room" = Id, Path),
        ("page_size" = Option<u32>, Query, description = "It may give fewer than asked",
            format = Int64, maximum = 4_294_967_295_u32),
        ("page_token" = Option<PageTokenText>, Query),
    ),
    responses((status = 200, description = "A page, sorted by user", body = MembersBody)))]
pub(super) async fn room(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(room): At<RoomId>,
    paging: Paging,
) -> Reply<MembersBody> {
    members(&requests, &caller, Topic::Room(room), &paging).await
}

/// Who is in the tenant, page by page.
#[utoipa::path(get, path = "/v1/tenant/members", operation_id = "tenant_members",
    tag = "topics",
    params(
        ("page_size" = Option<u32>, Query, description = "It may give fewer than asked",
            format = Int64, maximum = 4_294_967_295_u32),
        ("page_token" = Option<PageTokenText>, Query),
    ),
    responses((status = 200, description = "A page, sorted by user", body = MembersBody)))]
pub(super) async fn tenant(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    paging: Paging,
) -> Reply<MembersBody> {
    members(&requests, &caller, Topic::Tenant, &paging).await
}

async fn members(
    requests: &Requests,
    caller: &Caller,
    topic: Topic,
    paging: &Paging,
) -> Reply<MembersBody> {
    let page = requests.members(caller, topic, paging.size, paging.after.as_ref());
    Ok(Json(page.await?.into()))
}

/// How many are in a room.
#[utoipa::path(get, path = "/v1/rooms/{room}/count", operation_id = "room_count",
    tag = "topics", params(("room" = Id, Path)),
    responses((status = 200, description = "Those that everybody may see", body = CountBody)))]
pub(super) async fn room_count(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    At(room): At<RoomId>,
) -> Reply<CountBody> {
    Ok(Json(
        requests.count(&caller, Topic::Room(room)).await?.into(),
    ))
}

/// How many are in the tenant.
#[utoipa::path(get, path = "/v1/tenant/count", operation_id = "tenant_count", tag = "topics",
    responses((status = 200, description = "Those that everybody may see", body = CountBody)))]
pub(super) async fn tenant_count(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
) -> Reply<CountBody> {
    Ok(Json(requests.count(&caller, Topic::Tenant).await?.into()))
}

/// One's own manual status.
#[utoipa::path(get, path = "/v1/me/status", operation_id = "own_status", tag = "me",
    responses((status = 200, description = "As it is set", body = StatusBody)))]
pub(super) async fn own_status(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
) -> Reply<StatusBody> {
    let manual = requests.own_prefs(&caller).await?.status.value;
    let status = manual.map(|manual| adsum_core::Status::from(manual).to_string());
    Ok(Json(StatusBody {
        status: Some(status),
    }))
}

/// Who may see oneself.
#[utoipa::path(get, path = "/v1/me/visibility", operation_id = "own_visibility", tag = "me",
    responses((status = 200, description = "As it is set", body = VisibilityBody)))]
pub(super) async fn own_visibility(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
) -> Reply<VisibilityBody> {
    let visibility = requests.own_prefs(&caller).await?.visibility.value;
    Ok(Json(VisibilityBody {
        visibility: Some(visibility.as_str().to_owned()),
    }))
}

/// One's own list of contacts.
#[utoipa::path(get, path = "/v1/me/contacts", operation_id = "own_contacts", tag = "me",
    responses((status = 200, description = "As it is set", body = ContactsBody)))]
pub(super) async fn own_contacts(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
) -> Reply<ContactsBody> {
    let contacts = requests.own_contacts(&caller).await?;
    let contacts = contacts.iter().map(ToString::to_string).collect();
    Ok(Json(ContactsBody {
        contacts: Some(contacts),
    }))
}
