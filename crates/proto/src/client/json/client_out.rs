//! Writes what a client says, for clients in Rust and for tests. What is as usual is left out.

use adsum_core::{Activity, Kind, Manual, Meta, Status};
use bytes::Bytes;

use super::Out;
use crate::client::{
    Mode, Patch, Token,
    frame::{ClientBody, ClientFrame, Hello, Join, Set, Watch},
};

pub(super) fn write(frame: &ClientFrame) -> Bytes {
    let mut out = Out::default();
    out.raw("{").text("type", frame.body.word());
    out.some_text("ref", frame.r#ref.as_ref().map(|r| r.as_str()));
    out.some_text("traceparent", frame.traceparent.as_deref());
    match &frame.body {
        ClientBody::Hello(body) => hello(&mut out, body),
        ClientBody::Heartbeat | ClientBody::Leave => {}
        ClientBody::Join(body) => join(&mut out, body),
        ClientBody::Part(room) => {
            out.text("room", room.as_str());
        }
        ClientBody::Watch(body) => watch(&mut out, body),
        ClientBody::Unwatch(topics) => {
            out.list("topics", topics, |out, t| {
                out.string(&t.to_string());
            });
        }
        ClientBody::Set(body) => set(&mut out, body),
        ClientBody::Refresh(token) => {
            out.text("token", token.expose());
        }
    }
    out.raw("}");
    out.finish()
}

fn hello(out: &mut Out, hello: &Hello) {
    out.some_text("token", hello.token.as_ref().map(Token::expose));
    out.some_text("device", hello.device.as_ref().map(|d| d.as_str()));
    out.some_number("conn", hello.conn.map(|c| c.get()));
    if hello.kind != Kind::default() {
        out.text("kind", hello.kind.as_str());
    }
    if hello.activity != Activity::default() {
        out.text("activity", activity(hello.activity));
    }
    manual(out, hello.status);
    meta(out, hello.meta.as_ref());
    if !hello.rooms.is_empty() {
        out.list("rooms", &hello.rooms, |out, room| {
            if room.meta.is_none() {
                out.string(room.room.as_str());
            } else {
                out.raw("{");
                join(out, room);
                out.raw("}");
            }
        });
    }
    if !hello.watch.is_empty() {
        out.list("watch", &hello.watch, |out, topic| {
            out.raw("{");
            watch(out, topic);
            out.raw("}");
        });
    }
    out.some_number("linger_ms", hello.linger_ms);
}

fn join(out: &mut Out, join: &Join) {
    out.text("room", join.room.as_str());
    meta(out, join.meta.as_ref());
}

fn watch(out: &mut Out, watch: &Watch) {
    out.text("topic", &watch.topic.to_string());
    if watch.mode != Mode::default() {
        out.text("mode", watch.mode.as_str());
    }
    if let Some(digest) = watch.digest {
        out.text("digest", &digest.to_string());
    }
}

fn set(out: &mut Out, set: &Set) {
    out.some_text("activity", set.activity.map(activity));
    manual(out, set.status);
    match &set.meta {
        Patch::Keep => {}
        Patch::Clear => {
            out.key("meta").raw("null");
        }
        Patch::Set(value) => meta(out, Some(value)),
    }
}

const fn activity(activity: Activity) -> &'static str {
    match activity {
        Activity::Online => "online",
        Activity::Away => "away",
    }
}

fn manual(out: &mut Out, status: Patch<Manual>) {
    match status {
        Patch::Keep => {}
        Patch::Clear => {
            out.key("status").raw("null");
        }
        Patch::Set(manual) => {
            out.text("status", Status::from(manual).as_str());
        }
    }
}

fn meta(out: &mut Out, meta: Option<&Meta>) {
    if let Some(meta) = meta {
        out.key("meta").raw(meta.as_str());
    }
}
