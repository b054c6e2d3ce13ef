//! `/admin/users`: why is this user online. And what operators may do to one: kick, purge.

use std::sync::Arc;

use adsum_core::{
    Activity, Conn, DeviceId, Holder, Incarnation, Kind, Manual, NodeId, RoomId, Session,
    SessionKey, Status, TenantId, UserId, UserKey, Visibility,
    store::{Due, Shard, UserRead},
};
use axum::{
    Json,
    extract::{
        Path, State,
        rejection::{JsonRejection, PathRejection},
    },
};
use serde::{Deserialize, Serialize};

use super::{Parts, problem::Problem, who::Responsible};
use crate::clock;

/// Deadlines of a shard that are looked through; the soonest come first.
const DEADLINES: usize = 10_000;

/// All that keeps a user online, or does not.
#[derive(Serialize)]
pub(super) struct Why {
    tenant: TenantId,
    user: UserId,
    status: Status,
    manual: Option<Manual>,
    visibility: Visibility,
    sessions: Vec<SessionLine>,
    last_seen: Option<u64>,
    shard: Shard,
    dispatchers: Vec<NodeId>,
    reaper: Option<NodeId>,
    settling: bool,
}

#[derive(Serialize)]
struct SessionLine {
    device: DeviceId,
    kind: Kind,
    activity: Activity,
    opened_at: u64,
    conn: Conn,
    rev: u64,
    rooms: Vec<RoomLine>,
    /// The gateway that holds it; none for one that beats over HTTP and holds itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Incarnation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<DeadlineLine>,
}

#[derive(Serialize)]
struct RoomLine {
    room: RoomId,
    since: u64,
}

/// When it is closed if nothing is heard until then.
#[derive(Serialize)]
struct DeadlineLine {
    at: u64,
    /// By this node's clock; below zero when it is overdue.
    left_ms: i64,
    of: &'static str,
}

pub(super) async fn why(
    State(parts): State<Arc<Parts>>,
    place: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<Why>, Problem> {
    let Path((tenant, user)) = place?;
    let key = UserKey::new(TenantId::new(tenant)?, UserId::new(user)?);
    let shard = parts.store.shard_of(&key);
    let read = parts.store.read(std::slice::from_ref(&key)).await?.pop();
    let read = read.unwrap_or_default();
    let deadlines = parts.store.deadlines(shard, DEADLINES).await?;
    let who = Responsible::now(&parts);
    Ok(Json(Why {
        status: read.person.as_ref().map_or(Status::Offline, |p| p.status()),
        manual: read.prefs.status.value,
        visibility: read.prefs.visibility.value,
        sessions: sessions(&key, &read, &deadlines),
        last_seen: read.last_seen,
        shard,
        dispatchers: who.dispatchers(shard),
        reaper: who.reaper(shard),
        settling: read.settling,
        tenant: key.tenant,
        user: key.user,
    }))
}

fn sessions(owner: &UserKey, read: &UserRead, deadlines: &[(Due, u64)]) -> Vec<SessionLine> {
    let sessions = read.person.iter().flat_map(|person| &person.sessions);
    let line = |(device, session): (&DeviceId, &Session)| {
        let key = SessionKey::new(owner.clone(), device.clone());
        let holder = match &session.holder {
            Holder::Own => None,
            Holder::Gateway(incarnation) => Some(incarnation.clone()),
        };
        let stays = session.state.rooms.iter();
        SessionLine {
            device: device.clone(),
            kind: session.state.kind.clone(),
            activity: session.state.activity,
            opened_at: session.opened_at,
            conn: session.stamp.conn,
            rev: session.stamp.rev,
            rooms: stays
                .map(|(room, stay)| RoomLine {
                    room: room.clone(),
                    since: stay.since,
                })
                .collect(),
            gateway: holder.as_ref().map(|h| h.node().to_owned()),
            deadline: deadline(&key, holder.as_ref(), deadlines),
            holder,
        }
    };
    sessions.map(line).collect()
}

fn deadline(
    key: &SessionKey,
    holder: Option<&Incarnation>,
    deadlines: &[(Due, u64)],
) -> Option<DeadlineLine> {
    let of = |due: &Due| match (due, holder) {
        (Due::Holder(of), Some(holder)) if of == holder => Some("gateway"),
        (Due::Draining(of), Some(holder)) if of == holder => Some("draining gateway"),
        (Due::Condemned(of), Some(holder)) if of == holder => Some("expired gateway"),
        (Due::Session(of), None) if of == key => Some("session"),
        _ => None,
    };
    let found = |(due, at): &(Due, u64)| Some((of(due)?, *at));
    let (of, at) = deadlines.iter().find_map(found)?;
    let left = i128::from(at) - i128::from(clock::now_ms());
    Some(DeadlineLine {
        at,
        left_ms: i64::try_from(left).unwrap_or(i64::MAX),
        of,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kick {
    tenant: TenantId,
    user: UserId,
    device: Option<DeviceId>,
}

#[derive(Serialize)]
pub(super) struct Kicked {
    closed: Vec<DeviceId>,
}

pub(super) async fn kick(
    State(parts): State<Arc<Parts>>,
    ask: Result<Json<Kick>, JsonRejection>,
) -> Result<Json<Kicked>, Problem> {
    let Json(ask) = ask?;
    let user = UserKey::new(ask.tenant, ask.user);
    let closed = parts.store.kick(&user, ask.device.as_ref()).await?.value;
    tracing::info!(sessions = closed.len(), "kicked by an operator");
    tracing::debug!(tenant = %user.tenant, user = %user.user, "kicked");
    Ok(Json(Kicked { closed }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Purge {
    tenant: TenantId,
    user: UserId,
}

#[derive(Serialize)]
pub(super) struct Purged {
    purged: bool,
}

pub(super) async fn purge(
    State(parts): State<Arc<Parts>>,
    ask: Result<Json<Purge>, JsonRejection>,
) -> Result<Json<Purged>, Problem> {
    let Json(ask) = ask?;
    let user = UserKey::new(ask.tenant, ask.user);
    parts.store.purge(&user).await?;
    tracing::info!("a user was purged by an operator");
    tracing::debug!(tenant = %user.tenant, user = %user.user, "purged");
    Ok(Json(Purged { purged: true }))
}
