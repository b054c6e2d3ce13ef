//! The heartbeat of sessions without a connection: one, or many in one body.

use std::fmt;

use adsum_core::{DeviceId, Membership, RoomId, State, UserId};
use adsum_proto::client::{Fault, FrameLimits, check, frame::Beat};
use axum::{
    Json,
    extract::{Request, State as From},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use super::{
    HttpError,
    answer::Reply,
    bodies::{BeatBody, BeatResult, BeatenBody, ProblemBody, RoomBody},
    extract::Admitted,
    json::{self, Size},
};
use crate::requests::{Beaten, Requests};

/// A room of a session: its id alone, or an object with `meta`.
pub(super) struct RoomIn(RoomBody);

impl<'de> Deserialize<'de> for RoomIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Room;
        impl<'de> Visitor<'de> for Room {
            type Value = RoomBody;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a room's id, or an object with room and meta")
            }
            fn visit_str<E: de::Error>(self, room: &str) -> Result<RoomBody, E> {
                Ok(RoomBody {
                    room: Some(room.to_owned()),
                    meta: None,
                })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RoomBody, A::Error> {
                RoomBody::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Room).map(Self)
    }
}

/// Which of the two shapes a body has.
#[derive(Deserialize)]
struct Shape {
    beats: Option<IgnoredAny>,
}

/// Many beats, none of them read yet: there may be too many, and each is judged by itself.
#[derive(Deserialize)]
struct Parts<'b> {
    #[serde(borrow)]
    beats: Vec<&'b RawValue>,
}

/// Keeps sessions alive that have no connection, and opens those that are not known.
#[utoipa::path(post, path = "/v1/heartbeat", operation_id = "heartbeat", tag = "sessions",
    request_body = super::schemas::HeartbeatBody,
    responses(
        (status = 200, description = "Taken; of many each has its own result", body = BeatenBody),
        (status = 409, description = "The one beat is superseded: go above `conn`, once"),
    ))]
pub(super) async fn heartbeat(
    From(requests): From<Requests>,
    Admitted(caller): Admitted,
    request: Request,
) -> Reply<BeatenBody> {
    let body = json::take(request, &caller, Size::Batch).await?;
    let limits = &caller.settings.frame;
    if json::parse::<Shape>(&body)?.beats.is_none() {
        // One that is refused is a request that failed; it has the limits of a frame.
        caller.settings.limits.check_frame(body.len())?;
        let one = beat(json::parse::<BeatBody>(&body)?, limits)?;
        let mut beaten = requests.heartbeat(&caller, vec![Ok(one)]).await?;
        if let Some(Err(error)) = beaten.results.pop() {
            return Err(error.into());
        }
        beaten.results.push(Ok(()));
        return Ok(answer(beaten));
    }
    let beats = json::parse::<Parts>(&body)?.beats;
    requests.check_users(beats.len())?;
    if let Some(n) = beats.iter().position(|part| !part.get().starts_with('{')) {
        return Err(Fault::Malformed(format!("beats[{n}]: must be an object")).into());
    }
    let beats = beats.into_iter().map(|part| {
        let body = json::parse::<BeatBody>(part.get().as_bytes())?;
        beat(body, limits)
    });
    let beaten = requests.heartbeat(&caller, beats.collect()).await;
    Ok(answer(beaten.map_err(HttpError::from)?))
}

fn answer(beaten: Beaten) -> Json<BeatenBody> {
    let results = beaten.results.iter().map(|result| BeatResult {
        error: result.as_ref().err().map(ProblemBody::from),
    });
    Json(BeatenBody {
        results: results.collect(),
        heartbeat_ms: beaten.heartbeat_ms,
        ttl_ms: beaten.ttl_ms,
    })
}

fn beat(body: BeatBody, limits: &FrameLimits) -> Result<Beat, Fault> {
    let rooms = body.rooms.unwrap_or_default();
    limits.rooms(rooms.len())?;
    let rooms = rooms.into_iter().map(|RoomIn(room)| stay(room, limits));
    let activity = body.activity.as_deref().map(check::activity);
    Ok(Beat {
        user: body.user.map(UserId::new).transpose()?,
        device: DeviceId::new(body.device.ok_or(Fault::Missing("device"))?)?,
        conn: check::conn(body.conn.ok_or(Fault::Missing("conn"))?)?,
        rev: body.rev,
        state: State {
            kind: check::kind(body.kind.as_deref())?,
            activity: activity.transpose()?.unwrap_or_default(),
            meta: meta(body.meta.as_deref(), limits)?,
            rooms: rooms.collect::<Result<_, Fault>>()?,
        },
    })
}

fn stay(body: RoomBody, limits: &FrameLimits) -> Result<(RoomId, Membership), Fault> {
    let room = RoomId::new(body.room.ok_or(Fault::Missing("room"))?)?;
    let meta = meta(body.meta.as_deref(), limits)?;
    Ok((room, Membership { since: 0, meta }))
}

fn meta(raw: Option<&RawValue>, limits: &FrameLimits) -> Result<Option<adsum_core::Meta>, Fault> {
    Ok(raw.map(|raw| limits.meta(raw.get())).transpose()?.flatten())
}
