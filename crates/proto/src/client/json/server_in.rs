//! Reads what a server says, for clients in Rust. A newer server may say more: reasons and error
//! codes that are not known are read as none and as they are; statuses and modes are closed in v1.

use std::borrow::Cow;

use adsum_core::{DeviceId, Kind, Meta, Reason, Status, UserId, Version};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::parse;
use crate::client::{
    Fault, LastSeen, check,
    error::excerpt,
    frame::{Item, Left, Members, PresenceDiff, PresenceState, Problem, ServerBody, Welcome},
};

type Result<T> = std::result::Result<T, Fault>;

pub(super) fn read(word: &str, text: &str) -> Result<ServerBody> {
    Ok(match word {
        "welcome" => ServerBody::Welcome(welcome(parse(text)?)?),
        "ack" => ServerBody::Ack,
        "presence_state" => ServerBody::PresenceState(state(parse(text)?)?),
        "presence_diff" => ServerBody::PresenceDiff(diff(parse(text)?)?),
        "reconnect" => ServerBody::Reconnect {
            after_ms: parse::<ReconnectIn>(text)?.after_ms,
        },
        "error" => ServerBody::Error(problem(parse(text)?)?),
        "expiring" => ServerBody::Expiring {
            in_ms: parse::<ExpiringIn>(text)?.in_ms,
        },
        _ => return Err(Fault::Unknown(excerpt(word))),
    })
}

#[derive(Deserialize)]
struct WelcomeIn {
    session: SessionIn,
    heartbeat_ms: u64,
    ttl_ms: u64,
    server_time: u64,
}

#[derive(Deserialize)]
struct SessionIn {
    user: UserId,
    device: DeviceId,
    conn: u64,
}

#[derive(Deserialize)]
struct StateIn<'a> {
    topic: String,
    offset: u64,
    mode: String,
    #[serde(default)]
    unchanged: bool,
    complete: Option<bool>,
    #[serde(borrow, default)]
    members: Vec<ItemIn<'a>>,
    count: Option<u64>,
    #[serde(default)]
    stale: bool,
}

#[derive(Deserialize)]
struct DiffIn<'a> {
    topic: String,
    offset: u64,
    #[serde(borrow, default)]
    joins: Vec<ItemIn<'a>>,
    #[serde(default)]
    leaves: Vec<LeftIn>,
    #[serde(borrow, default)]
    updates: Vec<ItemIn<'a>>,
    count: Option<u64>,
    stale: Option<bool>,
}

#[derive(Deserialize)]
struct ItemIn<'a> {
    user: UserId,
    status: Status,
    #[serde(default)]
    devices: Vec<Kind>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    since: u64,
    v: Version,
}

#[derive(Deserialize)]
struct LeftIn {
    user: UserId,
    reason: Option<String>,
    last_seen: Option<String>,
    last_seen_s: Option<u64>,
    v: Version,
}

#[derive(Deserialize)]
struct ReconnectIn {
    after_ms: u64,
}

#[derive(Deserialize)]
struct ErrorIn {
    code: String,
    message: String,
    retry_after_ms: Option<u64>,
    conn: Option<u64>,
}

#[derive(Deserialize)]
struct ExpiringIn {
    in_ms: u64,
}

fn welcome(welcome: WelcomeIn) -> Result<Welcome> {
    Ok(Welcome {
        user: welcome.session.user,
        device: welcome.session.device,
        conn: check::conn(welcome.session.conn)?,
        heartbeat_ms: welcome.heartbeat_ms,
        ttl_ms: welcome.ttl_ms,
        server_time: welcome.server_time,
    })
}

fn state(state: StateIn<'_>) -> Result<PresenceState> {
    let members = if state.unchanged {
        None
    } else {
        Some(Members {
            complete: state.complete.ok_or(Fault::Missing("complete"))?,
            members: state.members.into_iter().map(item).collect(),
            count: state.count,
        })
    };
    Ok(PresenceState {
        topic: check::topic(&state.topic)?,
        offset: state.offset,
        mode: check::mode(&state.mode)?,
        members,
        stale: state.stale,
    })
}

fn diff(diff: DiffIn<'_>) -> Result<PresenceDiff> {
    let leaves = diff.leaves.into_iter().map(left);
    Ok(PresenceDiff {
        topic: check::topic(&diff.topic)?,
        offset: diff.offset,
        joins: diff.joins.into_iter().map(item).collect(),
        leaves: leaves.collect::<Result<_>>()?,
        updates: diff.updates.into_iter().map(item).collect(),
        count: diff.count,
        stale: diff.stale,
    })
}

fn item(item: ItemIn<'_>) -> Item {
    Item {
        user: item.user,
        status: item.status,
        devices: item.devices,
        meta: item.meta.map(|m| Meta::trusted(m.get())),
        since: item.since,
        v: item.v,
    }
}

fn left(left: LeftIn) -> Result<Left> {
    let reason = |word: String| Reason::ALL.into_iter().find(|r| r.as_str() == word);
    let last_seen = left.last_seen.map(|text| {
        let told = LastSeen::told(&text, left.last_seen_s.unwrap_or_default());
        told.ok_or_else(|| Fault::Malformed("last_seen is not RFC 3339 in UTC".into()))
    });
    Ok(Left {
        user: left.user,
        reason: left.reason.and_then(reason),
        last_seen: last_seen.transpose()?,
        v: left.v,
    })
}

fn problem(error: ErrorIn) -> Result<Problem> {
    Ok(Problem {
        code: Cow::Owned(error.code),
        message: error.message,
        retry_after_ms: error.retry_after_ms,
        conn: error.conn.map(check::conn).transpose()?,
    })
}
