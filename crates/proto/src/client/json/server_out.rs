//! Writes what a server says. Diffs and states end in a part that is the same for all who see the
//! same; it can be written once, of items written once, and put behind each connection's head.

use adsum_core::Topic;
use bytes::Bytes;

use super::Out;
use crate::client::{
    Mode, Ref,
    frame::{Item, Left, PresenceDiff, PresenceState, ServerBody, ServerFrame},
};

pub(super) fn write(frame: &ServerFrame) -> Bytes {
    let mut out = Out::with_capacity(128);
    head(&mut out, frame.body.word(), frame.r#ref.as_ref());
    match &frame.body {
        ServerBody::Welcome(welcome) => {
            out.key("session").raw("{");
            out.text("user", welcome.user.as_str());
            out.text("device", welcome.device.as_str());
            out.number("conn", welcome.conn.get()).raw("}");
            out.number("heartbeat_ms", welcome.heartbeat_ms);
            out.number("ttl_ms", welcome.ttl_ms);
            out.number("server_time", welcome.server_time);
        }
        ServerBody::Ack => {}
        ServerBody::PresenceState(body) => state(&mut out, body),
        ServerBody::PresenceDiff(body) => diff(&mut out, body),
        ServerBody::Reconnect { after_ms } => {
            out.number("after_ms", *after_ms);
        }
        ServerBody::Error(error) => {
            out.text("code", &error.code);
            out.text("message", &error.message);
            out.some_number("retry_after_ms", error.retry_after_ms);
            out.some_number("conn", error.conn.map(|c| c.get()));
        }
        ServerBody::Expiring { in_ms } => {
            out.number("in_ms", *in_ms);
        }
    }
    out.raw("}");
    out.finish()
}

fn head(out: &mut Out, word: &str, r#ref: Option<&Ref>) {
    out.raw("{").text("type", word);
    out.some_text("ref", r#ref.map(Ref::as_str));
}

fn state(out: &mut Out, state: &PresenceState) {
    out.text("topic", &state.topic.to_string());
    out.number("offset", state.offset);
    out.text("mode", state.mode.as_str());
    match &state.members {
        None => {
            out.key("unchanged").raw("true");
        }
        Some(members) => {
            out.key("complete").plain(members.complete);
            out.list("members", &members.members, item);
            out.some_number("count", members.count);
        }
    }
    stale(out, state.stale.then_some(true));
}

fn diff(out: &mut Out, diff: &PresenceDiff) {
    out.text("topic", &diff.topic.to_string());
    out.number("offset", diff.offset);
    out.list("joins", &diff.joins, item);
    out.list("leaves", &diff.leaves, left);
    out.list("updates", &diff.updates, item);
    out.some_number("count", diff.count);
    stale(out, diff.stale);
}

fn stale(out: &mut Out, stale: Option<bool>) {
    if let Some(stale) = stale {
        out.key("stale").plain(stale);
    }
}

pub(super) fn item(out: &mut Out, item: &Item) {
    out.raw("{").text("user", item.user.as_str());
    out.text("status", item.status.as_str());
    out.list("devices", &item.devices, |out, kind| {
        out.string(kind.as_str());
    });
    if let Some(meta) = &item.meta {
        out.key("meta").raw(meta.as_str());
    }
    out.number("since", item.since);
    // Digits and a dash: nothing to escape.
    out.key("v").raw("\"").plain(item.v).raw("\"}");
}

pub(super) fn left(out: &mut Out, left: &Left) {
    out.raw("{").text("user", left.user.as_str());
    out.some_text("reason", left.reason.map(|r| r.as_str()));
    if let Some(seen) = left.last_seen {
        out.text("last_seen", &seen.rfc3339());
        out.number("last_seen_s", seen.ago_s());
    }
    out.key("v").raw("\"").plain(left.v).raw("\"}");
}

/// The shared part of a frame, and what stands before each connection's own.
#[derive(Debug, Clone)]
pub(in crate::client) struct Body {
    pub(in crate::client) topic: Bytes,
    pub(in crate::client) body: Bytes,
}

fn body(topic: &Topic, capacity: usize, write: impl FnOnce(&mut Out)) -> Body {
    let mut prefix = Out::default();
    prefix.raw(",").text("topic", &topic.to_string());
    prefix.key("offset");
    let mut out = Out::with_capacity(capacity + 64);
    out.raw(",");
    write(&mut out);
    out.raw("}");
    Body {
        topic: prefix.finish(),
        body: out.finish(),
    }
}

fn size(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|p| p.len() + 1).sum()
}

fn pieces(out: &mut Out, key: &str, pieces: &[&[u8]]) {
    out.list(key, pieces, |out, piece| {
        out.raw(piece);
    });
}

pub(in crate::client) fn diff_body(
    topic: &Topic,
    [joins, leaves, updates]: [&[&[u8]]; 3],
    count: Option<u64>,
    told: Option<bool>,
) -> Body {
    let capacity = size(joins) + size(leaves) + size(updates);
    body(topic, capacity, |out| {
        pieces(out, "joins", joins);
        pieces(out, "leaves", leaves);
        pieces(out, "updates", updates);
        out.some_number("count", count);
        stale(out, told);
    })
}

pub(in crate::client) fn state_body(
    topic: &Topic,
    mode: Mode,
    complete: bool,
    members: &[&[u8]],
    count: Option<u64>,
    told: bool,
) -> Body {
    body(topic, size(members), |out| {
        out.text("mode", mode.as_str());
        out.key("complete").plain(complete);
        pieces(out, "members", members);
        out.some_number("count", count);
        stale(out, told.then_some(true));
    })
}

/// A whole frame: the head, which is this connection's, and the shared part.
pub(in crate::client) fn splice(
    word: &str,
    r#ref: Option<&Ref>,
    offset: u64,
    shared: &Body,
    bytes: &mut Vec<u8>,
) {
    bytes.reserve(64 + 2 * Ref::MAX_BYTES + shared.topic.len() + shared.body.len());
    let mut out = Out::after(std::mem::take(bytes));
    head(&mut out, word, r#ref);
    out.raw(&shared.topic).plain(offset).raw(&shared.body);
    *bytes = out.into_vec();
}
