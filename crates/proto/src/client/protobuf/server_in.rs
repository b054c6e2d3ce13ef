//! Reads what a server says, for clients in Rust. A newer server may say more: reasons and error
//! codes that are not known are read as none and as they are; statuses and modes are closed in v1.

use std::borrow::Cow;

use adsum_core::{DeviceId, Kind, Meta, UserId, Version};

use super::words;
use crate::client::{
    Fault, LastSeen, check,
    frame::{Item, Left, Members, PresenceDiff, PresenceState, Problem, ServerBody, Welcome},
    v1::{self, presence_state::State, server_frame::Frame},
};

type Result<T> = std::result::Result<T, Fault>;

pub(super) fn read(frame: Option<Frame>) -> Result<ServerBody> {
    Ok(match frame {
        Some(Frame::Welcome(body)) => ServerBody::Welcome(welcome(body)?),
        Some(Frame::Ack(_)) => ServerBody::Ack,
        Some(Frame::PresenceState(body)) => ServerBody::PresenceState(state(body)?),
        Some(Frame::PresenceDiff(body)) => ServerBody::PresenceDiff(diff(body)?),
        Some(Frame::Reconnect(body)) => ServerBody::Reconnect {
            after_ms: body.after_ms,
        },
        Some(Frame::Error(error)) => ServerBody::Error(Problem {
            code: Cow::Owned(error.code),
            message: error.message,
            retry_after_ms: error.retry_after_ms,
            conn: error.conn.map(check::conn).transpose()?,
        }),
        Some(Frame::Expiring(body)) => ServerBody::Expiring { in_ms: body.in_ms },
        None => return Err(Fault::Unknown("none that is known here".into())),
    })
}

fn welcome(welcome: v1::Welcome) -> Result<Welcome> {
    let session = welcome.session.ok_or(Fault::Missing("session"))?;
    Ok(Welcome {
        user: UserId::new(session.user)?,
        device: DeviceId::new(session.device)?,
        conn: check::conn(session.conn)?,
        heartbeat_ms: welcome.heartbeat_ms,
        ttl_ms: welcome.ttl_ms,
        server_time: welcome.server_time,
    })
}

fn state(state: v1::PresenceState) -> Result<PresenceState> {
    let members = match state.state.ok_or(Fault::Missing("members"))? {
        State::Unchanged(_) => None,
        State::Members(members) => Some(Members {
            complete: members.complete,
            members: items(members.members)?,
            count: members.count,
        }),
    };
    Ok(PresenceState {
        topic: check::topic(&state.topic)?,
        offset: state.offset,
        mode: words::mode(state.mode)?.ok_or(Fault::Missing("mode"))?,
        members,
        stale: state.stale,
    })
}

fn diff(diff: v1::PresenceDiff) -> Result<PresenceDiff> {
    Ok(PresenceDiff {
        topic: check::topic(&diff.topic)?,
        offset: diff.offset,
        joins: items(diff.joins)?,
        leaves: diff.leaves.into_iter().map(left).collect::<Result<_>>()?,
        updates: items(diff.updates)?,
        count: diff.count,
        stale: diff.stale,
    })
}

fn items(items: Vec<v1::Item>) -> Result<Vec<Item>> {
    items.into_iter().map(item).collect()
}

fn item(item: v1::Item) -> Result<Item> {
    let devices = item.devices.into_iter().map(Kind::new);
    // Whoever shows it may take it for JSON: that much is checked, its size is the server's.
    let meta = item.meta.map(|m| Meta::new(m, usize::MAX));
    Ok(Item {
        user: UserId::new(item.user)?,
        status: words::status(item.status)?,
        devices: devices.collect::<std::result::Result<_, _>>()?,
        meta: meta.transpose()?,
        since: item.since,
        v: version(&item.v)?,
    })
}

fn left(left: v1::Left) -> Result<Left> {
    let last_seen = left.last_seen.map(|text| {
        let told = LastSeen::told(&text, left.last_seen_s.unwrap_or_default());
        told.ok_or_else(|| Fault::Malformed("last_seen is not RFC 3339 in UTC".into()))
    });
    Ok(Left {
        user: UserId::new(left.user)?,
        reason: words::reason(left.reason),
        last_seen: last_seen.transpose()?,
        v: version(&left.v)?,
    })
}

fn version(text: &str) -> Result<Version> {
    text.parse()
        .map_err(|_| Fault::Malformed("v is not epoch-seq".into()))
}
