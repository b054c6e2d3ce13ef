//! Reads what a client says. Texts are taken as they are here and checked one by one after, so
//! that each mistake has its own code.

use std::fmt;

use adsum_core::{DeviceId, Manual, RoomId};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use super::parse;
use crate::client::{
    Fault, FrameLimits, Mode, Patch, Token, check,
    error::excerpt,
    frame::{ClientBody, Hello, Join, Set, Watch},
};

type Result<T> = std::result::Result<T, Fault>;

pub(super) fn read(word: &str, text: &str, limits: &FrameLimits) -> Result<ClientBody> {
    Ok(match word {
        "hello" => ClientBody::Hello(Box::new(hello(parse(text)?, limits)?)),
        "heartbeat" => ClientBody::Heartbeat,
        "join" => ClientBody::Join(join(parse(text)?, limits)?),
        "part" => {
            let room = parse::<PartIn>(text)?.room;
            ClientBody::Part(RoomId::new(room.ok_or(Fault::Missing("room"))?)?)
        }
        "watch" => ClientBody::Watch(watch(parse(text)?)?),
        "unwatch" => {
            let topics = parse::<UnwatchIn>(text)?.topics;
            let topics = topics.ok_or(Fault::Missing("topics"))?;
            limits.topics(topics.len())?;
            let topics = topics.iter().map(|t| check::topic(t));
            ClientBody::Unwatch(topics.collect::<Result<_>>()?)
        }
        "set" => ClientBody::Set(set(&parse(text)?, limits)?),
        "refresh" => {
            let token = parse::<RefreshIn>(text)?.token.filter(|t| !t.is_empty());
            ClientBody::Refresh(Token::new(token.ok_or(Fault::Missing("token"))?))
        }
        "leave" => ClientBody::Leave,
        _ => return Err(Fault::Unknown(excerpt(word))),
    })
}

#[derive(Deserialize)]
struct HelloIn<'a> {
    token: Option<String>,
    device: Option<String>,
    conn: Option<u64>,
    kind: Option<String>,
    activity: Option<String>,
    #[serde(default, deserialize_with = "given")]
    status: Option<Option<String>>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    rooms: Option<Vec<RoomIn<'a>>>,
    watch: Option<Vec<WatchIn>>,
    linger_ms: Option<u64>,
}

#[derive(Deserialize)]
struct JoinIn<'a> {
    room: Option<String>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PartIn {
    room: Option<String>,
}

#[derive(Deserialize)]
struct WatchIn {
    topic: Option<String>,
    mode: Option<String>,
    digest: Option<String>,
}

#[derive(Deserialize)]
struct UnwatchIn {
    topics: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct SetIn<'a> {
    activity: Option<String>,
    #[serde(default, deserialize_with = "given")]
    status: Option<Option<String>>,
    #[serde(borrow, default, deserialize_with = "given")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RefreshIn {
    token: Option<String>,
}

/// Tells `null` from nothing: whatever stands there is something.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A room in a hello: its id alone, or an object with `meta`.
struct RoomIn<'a>(JoinIn<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for RoomIn<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct Room;
        impl<'de> Visitor<'de> for Room {
            type Value = JoinIn<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a room's id, or an object with room and meta")
            }
            fn visit_str<E: de::Error>(self, room: &str) -> std::result::Result<JoinIn<'de>, E> {
                Ok(JoinIn {
                    room: Some(room.to_owned()),
                    meta: None,
                })
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                map: A,
            ) -> std::result::Result<JoinIn<'de>, A::Error> {
                JoinIn::deserialize(MapAccessDeserializer::new(map))
            }
        }
        d.deserialize_any(Room).map(Self)
    }
}

fn hello(hello: HelloIn<'_>, limits: &FrameLimits) -> Result<Hello> {
    let rooms = hello.rooms.unwrap_or_default();
    limits.rooms(rooms.len())?;
    let watches = hello.watch.unwrap_or_default();
    limits.topics(watches.len())?;
    if hello.device.is_some() && hello.conn.is_none() {
        return Err(Fault::Missing("conn"));
    }
    let meta = hello.meta.map(|m| limits.meta(m.get())).transpose()?;
    let activity = hello.activity.as_deref().map(check::activity);
    let rooms = rooms.into_iter().map(|r| join(r.0, limits));
    Ok(Hello {
        token: hello.token.map(Token::new),
        device: hello.device.map(DeviceId::new).transpose()?,
        conn: hello.conn.map(check::conn).transpose()?,
        kind: check::kind(hello.kind.as_deref())?,
        activity: activity.transpose()?.unwrap_or_default(),
        status: manual(hello.status.as_ref())?,
        meta: meta.flatten(),
        rooms: rooms.collect::<Result<_>>()?,
        watch: watches.into_iter().map(watch).collect::<Result<_>>()?,
        linger_ms: hello.linger_ms,
    })
}

fn join(join: JoinIn<'_>, limits: &FrameLimits) -> Result<Join> {
    let meta = join.meta.map(|m| limits.meta(m.get())).transpose()?;
    Ok(Join {
        room: RoomId::new(join.room.ok_or(Fault::Missing("room"))?)?,
        meta: meta.flatten(),
    })
}

fn watch(watch: WatchIn) -> Result<Watch> {
    let topic = watch.topic.ok_or(Fault::Missing("topic"))?;
    let mode = watch.mode.as_deref().map(check::mode).transpose()?;
    Ok(Watch {
        topic: check::topic(&topic)?,
        mode: mode.unwrap_or(Mode::Members),
        digest: watch.digest.as_deref().map(check::digest).transpose()?,
    })
}

fn set(set: &SetIn<'_>, limits: &FrameLimits) -> Result<Set> {
    let meta = match set.meta.map(|m| limits.meta(m.get())).transpose()? {
        None => Patch::Keep,
        Some(None) => Patch::Clear,
        Some(Some(meta)) => Patch::Set(meta),
    };
    Ok(Set {
        activity: set.activity.as_deref().map(check::activity).transpose()?,
        status: manual(set.status.as_ref())?,
        meta,
    })
}

fn manual(status: Option<&Option<String>>) -> Result<Patch<Manual>> {
    Ok(match status {
        None => Patch::Keep,
        Some(None) => Patch::Clear,
        Some(Some(word)) => Patch::Set(check::manual(word)?),
    })
}
