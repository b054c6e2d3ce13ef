//! Writes what a server says. Diffs and states end in a part that is the same for all who see the
//! same: on the wire a repeated message is a run of length-delimited bytes, so items encoded once
//! are laid into it as they are.

use adsum_core::Topic;
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{
    WireType, encode_key, encode_varint, encoded_len_varint, key_len, string, uint64,
};

use super::words;
use crate::client::{
    Mode, Ref,
    frame::{Item, Left, PresenceState, ServerBody, ServerFrame},
    v1::{self, presence_state::State, server_frame::Frame},
};

/// Numbers of fields in `client.proto`; a test compares what is made with them to what prost makes.
mod tag {
    pub(super) const REF: u32 = 1;
    pub(super) const STATE: u32 = 4;
    pub(super) const DIFF: u32 = 5;
    pub(super) const TOPIC: u32 = 1;
    pub(super) const OFFSET: u32 = 2;
    pub(super) const JOINS: u32 = 3;
    pub(super) const LEAVES: u32 = 4;
    pub(super) const UPDATES: u32 = 5;
    pub(super) const DIFF_COUNT: u32 = 6;
    pub(super) const DIFF_STALE: u32 = 7;
    pub(super) const MODE: u32 = 3;
    pub(super) const MEMBERS: u32 = 4;
    pub(super) const COMPLETE: u32 = 1;
    pub(super) const ITEMS: u32 = 2;
    pub(super) const STATE_COUNT: u32 = 3;
    pub(super) const STATE_STALE: u32 = 6;
}

pub(super) fn message(frame: &ServerFrame) -> v1::ServerFrame {
    v1::ServerFrame {
        r#ref: frame.r#ref.as_ref().map(|r| r.as_str().to_owned()),
        frame: Some(body(&frame.body)),
    }
}

fn body(body: &ServerBody) -> Frame {
    match body {
        ServerBody::Welcome(welcome) => Frame::Welcome(v1::Welcome {
            session: Some(v1::Session {
                user: welcome.user.to_string(),
                device: welcome.device.to_string(),
                conn: welcome.conn.get(),
            }),
            heartbeat_ms: welcome.heartbeat_ms,
            ttl_ms: welcome.ttl_ms,
            server_time: welcome.server_time,
        }),
        ServerBody::Ack => Frame::Ack(v1::Ack {}),
        ServerBody::PresenceState(body) => Frame::PresenceState(state(body)),
        ServerBody::PresenceDiff(diff) => Frame::PresenceDiff(v1::PresenceDiff {
            topic: diff.topic.to_string(),
            offset: diff.offset,
            joins: diff.joins.iter().map(item).collect(),
            leaves: diff.leaves.iter().map(left).collect(),
            updates: diff.updates.iter().map(item).collect(),
            count: diff.count,
            stale: diff.stale,
        }),
        ServerBody::Reconnect { after_ms } => Frame::Reconnect(v1::Reconnect {
            after_ms: *after_ms,
        }),
        ServerBody::Error(error) => Frame::Error(v1::Error {
            code: error.code.clone().into_owned(),
            message: error.message.clone(),
            retry_after_ms: error.retry_after_ms,
            conn: error.conn.map(|c| c.get()),
        }),
        ServerBody::Expiring { in_ms } => Frame::Expiring(v1::Expiring { in_ms: *in_ms }),
    }
}

fn state(state: &PresenceState) -> v1::PresenceState {
    let told = match &state.members {
        None => State::Unchanged(v1::Unchanged {}),
        Some(members) => State::Members(v1::Members {
            complete: members.complete,
            members: members.members.iter().map(item).collect(),
            count: members.count,
        }),
    };
    v1::PresenceState {
        topic: state.topic.to_string(),
        offset: state.offset,
        mode: words::mode_to(state.mode).into(),
        state: Some(told),
        stale: state.stale,
    }
}

pub(super) fn item(item: &Item) -> v1::Item {
    v1::Item {
        user: item.user.to_string(),
        status: words::status_to(item.status).into(),
        devices: item.devices.iter().map(|k| k.as_str().to_owned()).collect(),
        meta: item.meta.as_ref().map(|m| m.as_str().to_owned()),
        since: item.since,
        v: item.v.to_string(),
    }
}

pub(super) fn left(left: &Left) -> v1::Left {
    v1::Left {
        user: left.user.to_string(),
        reason: words::reason_to(left.reason),
        last_seen: left.last_seen.map(|seen| seen.rfc3339()),
        last_seen_s: left.last_seen.map(|seen| seen.ago_s()),
        v: left.v.to_string(),
    }
}

/// The shared part of a frame, and what stands before each connection's own.
#[derive(Debug, Clone)]
pub(in crate::client) struct Body {
    tag: u32,
    topic: Bytes,
    body: Bytes,
}

impl Body {
    fn new(tag: u32, topic: &Topic, body: BytesMut) -> Self {
        let mut prefix = BytesMut::new();
        string::encode(tag::TOPIC, &topic.to_string(), &mut prefix);
        Self {
            tag,
            topic: prefix.freeze(),
            body: body.freeze(),
        }
    }
}

fn pieces(tag: u32, pieces: &[&[u8]], buf: &mut BytesMut) {
    for piece in pieces {
        delimited(tag, piece.len(), buf);
        buf.put_slice(piece);
    }
}

fn delimited(tag: u32, len: usize, buf: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, buf);
    encode_varint(len as u64, buf);
}

fn size(pieces: &[&[u8]]) -> usize {
    // A key of one byte and a length of hardly ever more than two.
    pieces.iter().map(|p| p.len() + 3).sum()
}

pub(in crate::client) fn diff_body(
    topic: &Topic,
    [joins, leaves, updates]: [&[&[u8]]; 3],
    count: Option<u64>,
    stale: Option<bool>,
) -> Body {
    let mut buf = BytesMut::with_capacity(size(joins) + size(leaves) + size(updates) + 16);
    pieces(tag::JOINS, joins, &mut buf);
    pieces(tag::LEAVES, leaves, &mut buf);
    pieces(tag::UPDATES, updates, &mut buf);
    if let Some(count) = count {
        uint64::encode(tag::DIFF_COUNT, &count, &mut buf);
    }
    if let Some(stale) = stale {
        prost::encoding::bool::encode(tag::DIFF_STALE, &stale, &mut buf);
    }
    Body::new(tag::DIFF, topic, buf)
}

pub(in crate::client) fn state_body(
    topic: &Topic,
    mode: Mode,
    complete: bool,
    members: &[&[u8]],
    count: Option<u64>,
    stale: bool,
) -> Body {
    let mut inner = BytesMut::with_capacity(size(members) + 16);
    if complete {
        prost::encoding::bool::encode(tag::COMPLETE, &true, &mut inner);
    }
    pieces(tag::ITEMS, members, &mut inner);
    if let Some(count) = count {
        uint64::encode(tag::STATE_COUNT, &count, &mut inner);
    }
    let mut buf = BytesMut::with_capacity(inner.len() + 16);
    prost::encoding::int32::encode(tag::MODE, &words::mode_to(mode).into(), &mut buf);
    delimited(tag::MEMBERS, inner.len(), &mut buf);
    buf.put_slice(&inner);
    if stale {
        prost::encoding::bool::encode(tag::STATE_STALE, &true, &mut buf);
    }
    Body::new(tag::STATE, topic, buf)
}

/// A whole frame: the head, which is this connection's, and the shared part.
pub(in crate::client) fn splice(
    r#ref: Option<&Ref>,
    offset: u64,
    shared: &Body,
    buf: &mut Vec<u8>,
) {
    let offset_len = match offset {
        // What is 0 is not written.
        0 => 0,
        _ => key_len(tag::OFFSET) + encoded_len_varint(offset),
    };
    let len = shared.topic.len() + offset_len + shared.body.len();
    buf.reserve(len + 16 + r#ref.map_or(0, |text| text.as_str().len()));
    if let Some(text) = r#ref {
        delimited(tag::REF, text.as_str().len(), buf);
        buf.put_slice(text.as_str().as_bytes());
    }
    delimited(shared.tag, len, buf);
    buf.put_slice(&shared.topic);
    if offset != 0 {
        uint64::encode(tag::OFFSET, &offset, buf);
    }
    buf.put_slice(&shared.body);
}
