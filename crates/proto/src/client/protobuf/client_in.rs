//! Reads what a client says. A text that must be there and is empty is one that is missing.

use adsum_core::{DeviceId, Manual, Membership, Meta, RoomId, State, UserId};

use super::words;
use crate::client::{
    Fault, FrameLimits, Patch, Token, check,
    frame::{Beat, ClientBody, Hello, Join, Set, Watch},
    v1::{self, client_frame::Frame},
};

type Result<T> = std::result::Result<T, Fault>;

pub(super) fn read(frame: Option<Frame>, limits: &FrameLimits) -> Result<ClientBody> {
    Ok(match frame {
        Some(Frame::Hello(body)) => ClientBody::Hello(Box::new(hello(body, limits)?)),
        Some(Frame::Heartbeat(_)) => ClientBody::Heartbeat,
        Some(Frame::Join(body)) => ClientBody::Join(join(body, limits)?),
        Some(Frame::Part(body)) => ClientBody::Part(RoomId::new(there("room", body.room)?)?),
        Some(Frame::Watch(body)) => ClientBody::Watch(watch(body)?),
        Some(Frame::Unwatch(body)) => {
            limits.topics(body.topics.len())?;
            let topics = body.topics.iter().map(|t| check::topic(t));
            ClientBody::Unwatch(topics.collect::<Result<_>>()?)
        }
        Some(Frame::Set(body)) => ClientBody::Set(set(body, limits)?),
        Some(Frame::Refresh(body)) => ClientBody::Refresh(Token::new(there("token", body.token)?)),
        Some(Frame::Leave(_)) => ClientBody::Leave,
        // Nothing, or a field of a newer release: protobuf does not tell them apart.
        None => return Err(Fault::Unknown("none that is known here".into())),
    })
}

fn there(name: &'static str, text: String) -> Result<String> {
    if text.is_empty() {
        return Err(Fault::Missing(name));
    }
    Ok(text)
}

pub(super) fn watches(topics: Vec<v1::Watch>, limits: &FrameLimits) -> Result<Vec<Watch>> {
    if topics.is_empty() {
        return Err(Fault::Missing("topics"));
    }
    limits.topics(topics.len())?;
    topics.into_iter().map(watch).collect()
}

pub(super) fn beat(beat: v1::Beat, limits: &FrameLimits) -> Result<Beat> {
    limits.rooms(beat.rooms.len())?;
    let stay = |room| {
        let Join { room, meta } = join(room, limits)?;
        Ok((room, Membership { since: 0, meta }))
    };
    let rooms = beat.rooms.into_iter().map(stay);
    Ok(Beat {
        user: beat.user.map(UserId::new).transpose()?,
        device: DeviceId::new(there("device", beat.device)?)?,
        conn: check::conn(beat.conn)?,
        rev: Some(beat.rev).filter(|rev| *rev != 0),
        state: State {
            kind: check::kind(beat.kind.as_deref())?,
            activity: words::activity(beat.activity)?.unwrap_or_default(),
            meta: meta(beat.meta.as_deref(), limits)?.flatten(),
            rooms: rooms.collect::<Result<_>>()?,
        },
    })
}

fn hello(hello: v1::Hello, limits: &FrameLimits) -> Result<Hello> {
    use v1::hello::Manual as Given;
    limits.rooms(hello.rooms.len())?;
    limits.topics(hello.watch.len())?;
    if hello.device.is_some() && hello.conn.is_none() {
        return Err(Fault::Missing("conn"));
    }
    let rooms = hello.rooms.into_iter().map(|r| join(r, limits));
    Ok(Hello {
        token: hello.token.map(Token::new),
        device: hello.device.map(DeviceId::new).transpose()?,
        conn: hello.conn.map(check::conn).transpose()?,
        kind: check::kind(hello.kind.as_deref())?,
        activity: words::activity(hello.activity)?.unwrap_or_default(),
        status: match hello.manual {
            None => Patch::Keep,
            Some(Given::ClearStatus(_)) => Patch::Clear,
            Some(Given::Status(number)) => set_to(number)?,
        },
        meta: meta(hello.meta.as_deref(), limits)?.flatten(),
        rooms: rooms.collect::<Result<_>>()?,
        watch: hello.watch.into_iter().map(watch).collect::<Result<_>>()?,
        linger_ms: hello.linger_ms,
    })
}

fn join(join: v1::Join, limits: &FrameLimits) -> Result<Join> {
    Ok(Join {
        meta: meta(join.meta.as_deref(), limits)?.flatten(),
        room: RoomId::new(there("room", join.room)?)?,
    })
}

fn watch(watch: v1::Watch) -> Result<Watch> {
    Ok(Watch {
        topic: check::topic(&there("topic", watch.topic)?)?,
        mode: words::mode(watch.mode)?.unwrap_or_default(),
        digest: watch.digest.as_deref().map(check::digest).transpose()?,
    })
}

fn set(set: v1::Set, limits: &FrameLimits) -> Result<Set> {
    use v1::set::Manual as Given;
    Ok(Set {
        activity: words::activity(set.activity)?,
        status: match set.manual {
            None => Patch::Keep,
            Some(Given::ClearStatus(_)) => Patch::Clear,
            Some(Given::Status(number)) => set_to(number)?,
        },
        meta: match meta(set.meta.as_deref(), limits)? {
            None => Patch::Keep,
            Some(None) => Patch::Clear,
            Some(Some(meta)) => Patch::Set(meta),
        },
    })
}

fn set_to(number: i32) -> Result<Patch<Manual>> {
    words::manual(number).map(Patch::Set)
}

/// Nothing, `null`, or a value.
fn meta(text: Option<&str>, limits: &FrameLimits) -> Result<Option<Option<Meta>>> {
    text.map(|text| limits.meta(text)).transpose()
}
