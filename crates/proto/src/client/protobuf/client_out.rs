//! Writes what a client says, for clients in Rust and for tests. What is as usual is left out.

use adsum_core::{Activity, Kind, Manual, Meta};

use super::words;
use crate::client::{
    Mode, Patch, Token,
    frame::{ClientBody, ClientFrame, Hello, Join, Set, Watch},
    v1::{self, client_frame::Frame},
};

pub(super) fn message(frame: &ClientFrame) -> v1::ClientFrame {
    v1::ClientFrame {
        r#ref: frame.r#ref.as_ref().map(|r| r.as_str().to_owned()),
        traceparent: frame.traceparent.as_deref().map(str::to_owned),
        frame: Some(body(&frame.body)),
    }
}

fn body(body: &ClientBody) -> Frame {
    match body {
        ClientBody::Hello(body) => Frame::Hello(hello(body)),
        ClientBody::Heartbeat => Frame::Heartbeat(v1::Heartbeat {}),
        ClientBody::Join(body) => Frame::Join(join(body)),
        ClientBody::Part(room) => Frame::Part(v1::Part {
            room: room.to_string(),
        }),
        ClientBody::Watch(body) => Frame::Watch(watch(body)),
        ClientBody::Unwatch(topics) => Frame::Unwatch(v1::Unwatch {
            topics: topics.iter().map(ToString::to_string).collect(),
        }),
        ClientBody::Set(body) => Frame::Set(set(body)),
        ClientBody::Refresh(token) => Frame::Refresh(v1::Refresh {
            token: token.expose().to_owned(),
        }),
        ClientBody::Leave => Frame::Leave(v1::Leave {}),
    }
}

fn hello(hello: &Hello) -> v1::Hello {
    use v1::hello::Manual as Given;
    let kind = Some(&hello.kind).filter(|k| **k != Kind::default());
    let activity = Some(hello.activity).filter(|a| *a != Activity::default());
    v1::Hello {
        token: hello.token.as_ref().map(Token::expose).map(str::to_owned),
        device: hello.device.as_ref().map(ToString::to_string),
        conn: hello.conn.map(|c| c.get()),
        kind: kind.map(|k| k.as_str().to_owned()),
        activity: activity.map(words::activity_to).unwrap_or_default().into(),
        manual: match hello.status {
            Patch::Keep => None,
            Patch::Clear => Some(Given::ClearStatus(v1::Clear {})),
            Patch::Set(manual) => Some(Given::Status(number(manual))),
        },
        meta: hello.meta.as_ref().map(text),
        rooms: hello.rooms.iter().map(join).collect(),
        watch: hello.watch.iter().map(watch).collect(),
        linger_ms: hello.linger_ms,
    }
}

fn join(join: &Join) -> v1::Join {
    v1::Join {
        room: join.room.to_string(),
        meta: join.meta.as_ref().map(text),
    }
}

fn watch(watch: &Watch) -> v1::Watch {
    let mode = Some(watch.mode).filter(|m| *m != Mode::default());
    v1::Watch {
        topic: watch.topic.to_string(),
        mode: mode.map(words::mode_to).unwrap_or_default().into(),
        digest: watch.digest.map(|d| d.to_string()),
    }
}

fn set(set: &Set) -> v1::Set {
    use v1::set::Manual as Given;
    v1::Set {
        activity: set
            .activity
            .map(words::activity_to)
            .unwrap_or_default()
            .into(),
        manual: match set.status {
            Patch::Keep => None,
            Patch::Clear => Some(Given::ClearStatus(v1::Clear {})),
            Patch::Set(manual) => Some(Given::Status(number(manual))),
        },
        meta: match &set.meta {
            Patch::Keep => None,
            Patch::Clear => Some("null".to_owned()),
            Patch::Set(meta) => Some(text(meta)),
        },
    }
}

fn number(manual: Manual) -> i32 {
    words::status_to(manual.into()).into()
}

fn text(meta: &Meta) -> String {
    meta.as_str().to_owned()
}
