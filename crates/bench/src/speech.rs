//! What the clients say, and as much as they need of what they hear, in both encodings. What is
//! heard is not decoded but walked through: the clients share the machine with what they measure.

use adsum_proto::client::{Encoding, v1};
use prost::Message;
use serde::Deserialize;
use serde_json::json;

use crate::{args::Spoken, socketio, wire};

/// Frames in one encoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speech(pub(crate) Spoken);

/// What is heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Welcome {
        heartbeat_ms: u64,
    },
    Ack,
    State {
        members: usize,
        complete: bool,
    },
    Diff,
    Reconnect,
    /// To be echoed by this.
    Ping(&'static str),
    Error(String),
    Other,
}

/// One line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Join(&'a str),
    Update(&'a str),
    Leave(&'a str),
}

/// What a session is to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hello {
    pub(crate) conn: u64,
    pub(crate) rooms: Vec<String>,
    pub(crate) watch: Vec<String>,
}

impl Speech {
    pub(crate) fn binary(self) -> bool {
        self.0 == Spoken::Protobuf
    }

    /// What opens a connection.
    pub(crate) fn handshake(self, host: &str) -> Vec<u8> {
        match self.0 {
            Spoken::Json => wire::handshake(host, "/v1/ws", Encoding::Json.subprotocol()),
            Spoken::Protobuf => wire::handshake(host, "/v1/ws", Encoding::Protobuf.subprotocol()),
            Spoken::Socketio => wire::handshake(host, socketio::PATH, "socketio"),
        }
    }

    pub(crate) fn hello(self, token: &str, hello: &Hello) -> Vec<u8> {
        match self.0 {
            Spoken::Json => {
                let watch = hello.watch.iter().map(|topic| json!({ "topic": topic }));
                let watch: Vec<_> = watch.collect();
                text(&json!({
                    "type": "hello", "token": token, "device": "bench", "conn": hello.conn,
                    "rooms": hello.rooms, "watch": watch,
                }))
            }
            Spoken::Protobuf => {
                let rooms = hello.rooms.iter().map(|room| v1::Join {
                    room: room.clone(),
                    meta: None,
                });
                let watch = hello.watch.iter().map(|topic| v1::Watch {
                    topic: topic.clone(),
                    ..v1::Watch::default()
                });
                bytes(v1::client_frame::Frame::Hello(v1::Hello {
                    token: Some(token.to_owned()),
                    device: Some("bench".into()),
                    conn: Some(hello.conn),
                    rooms: rooms.collect(),
                    watch: watch.collect(),
                    ..v1::Hello::default()
                }))
            }
            Spoken::Socketio => socketio::hello(token, hello),
        }
    }

    pub(crate) fn join(self, room: &str) -> Vec<u8> {
        match self.0 {
            Spoken::Json => text(&json!({ "type": "join", "room": room })),
            Spoken::Protobuf => bytes(v1::client_frame::Frame::Join(v1::Join {
                room: room.to_owned(),
                meta: None,
            })),
            Spoken::Socketio => socketio::event("join", room),
        }
    }

    pub(crate) fn part(self, room: &str) -> Vec<u8> {
        match self.0 {
            Spoken::Json => text(&json!({ "type": "part", "room": room })),
            Spoken::Protobuf => bytes(v1::client_frame::Frame::Part(v1::Part {
                room: room.to_owned(),
            })),
            Spoken::Socketio => socketio::event("part", room),
        }
    }

    pub(crate) fn heartbeat(self) -> Vec<u8> {
        match self.0 {
            Spoken::Json => text(&json!({ "type": "heartbeat" })),
            Spoken::Protobuf => bytes(v1::client_frame::Frame::Heartbeat(v1::Heartbeat {})),
            Spoken::Socketio => socketio::BEAT.into(),
        }
    }

    pub(crate) fn watch(self, topic: &str) -> Vec<u8> {
        match self.0 {
            Spoken::Json => text(&json!({ "type": "watch", "topic": topic })),
            Spoken::Protobuf => bytes(v1::client_frame::Frame::Watch(v1::Watch {
                topic: topic.to_owned(),
                ..v1::Watch::default()
            })),
            Spoken::Socketio => socketio::event("watch", topic),
        }
    }

    /// Reads a frame; each line of a diff goes to `lines`.
    pub(crate) fn hear(self, frame: &[u8], lines: impl FnMut(Line<'_>)) -> Result<Heard, String> {
        match self.0 {
            Spoken::Json => hear_json(frame, lines),
            Spoken::Protobuf => hear_proto(frame, lines).ok_or_else(|| "bad protobuf".into()),
            Spoken::Socketio => socketio::hear(frame, lines),
        }
    }
}

fn text(frame: &serde_json::Value) -> Vec<u8> {
    frame.to_string().into_bytes()
}

fn bytes(frame: v1::client_frame::Frame) -> Vec<u8> {
    let frame = v1::ClientFrame {
        frame: Some(frame),
        ..v1::ClientFrame::default()
    };
    frame.encode_to_vec()
}

#[derive(Deserialize)]
struct JsonFrame<'a> {
    r#type: &'a str,
    #[serde(default)]
    heartbeat_ms: u64,
    #[serde(default)]
    complete: bool,
    #[serde(borrow, default)]
    members: Vec<Who<'a>>,
    #[serde(borrow, default)]
    joins: Vec<Who<'a>>,
    #[serde(borrow, default)]
    updates: Vec<Who<'a>>,
    #[serde(borrow, default)]
    leaves: Vec<Who<'a>>,
    #[serde(default)]
    code: Option<String>,
}

#[derive(Deserialize)]
struct Who<'a> {
    user: &'a str,
}

fn hear_json(frame: &[u8], mut lines: impl FnMut(Line<'_>)) -> Result<Heard, String> {
    let frame: JsonFrame<'_> = serde_json::from_slice(frame).map_err(|e| e.to_string())?;
    frame
        .joins
        .iter()
        .for_each(|who| lines(Line::Join(who.user)));
    frame
        .updates
        .iter()
        .for_each(|who| lines(Line::Update(who.user)));
    frame
        .leaves
        .iter()
        .for_each(|who| lines(Line::Leave(who.user)));
    Ok(match frame.r#type {
        "welcome" => Heard::Welcome {
            heartbeat_ms: frame.heartbeat_ms,
        },
        "ack" => Heard::Ack,
        "presence_state" => Heard::State {
            members: frame.members.len(),
            complete: frame.complete,
        },
        "presence_diff" => Heard::Diff,
        "reconnect" => Heard::Reconnect,
        "error" => Heard::Error(frame.code.unwrap_or_default()),
        _ => Heard::Other,
    })
}

/// The fields of a protobuf message, one after another.
struct Fields<'a>(&'a [u8]);

#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next field; `None` at the end, and `Some(None)` if there is garbage.
    fn next(&mut self) -> Option<Option<(u64, Field<'a>)>> {
        (!self.0.is_empty()).then(|| self.field())
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.skip(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.skip(length)?)
            }
            5 => Field::Bytes(self.skip(4)?),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

fn hear_proto(frame: &[u8], mut lines: impl FnMut(Line<'_>)) -> Option<Heard> {
    let mut fields = Fields(frame);
    let mut heard = Heard::Other;
    while let Some(field) = fields.next() {
        let (number, Field::Bytes(body)) = field? else {
            continue;
        };
        heard = match number {
            1 => continue,
            2 => Heard::Welcome {
                heartbeat_ms: number_at(body, 2)?,
            },
            3 => Heard::Ack,
            4 => hear_state(body)?,
            5 => {
                hear_diff(body, &mut lines)?;
                Heard::Diff
            }
            6 => Heard::Reconnect,
            7 => Heard::Error(text_at(body, 1)?.to_owned()),
            _ => Heard::Other,
        };
    }
    Some(heard)
}

fn hear_state(body: &[u8]) -> Option<Heard> {
    let (mut fields, mut members, mut complete) = (Fields(body), 0, true);
    while let Some(field) = fields.next() {
        if let (4, Field::Bytes(body)) = field? {
            let mut fields = Fields(body);
            complete = false;
            while let Some(field) = fields.next() {
                match field? {
                    (1, Field::Number(is)) => complete = is != 0,
                    (2, Field::Bytes(_)) => members += 1,
                    _ => {}
                }
            }
        }
    }
    Some(Heard::State { members, complete })
}

fn hear_diff(body: &[u8], lines: &mut impl FnMut(Line<'_>)) -> Option<()> {
    let mut fields = Fields(body);
    while let Some(field) = fields.next() {
        match field? {
            (3, Field::Bytes(item)) => lines(Line::Join(text_at(item, 1)?)),
            (4, Field::Bytes(left)) => lines(Line::Leave(text_at(left, 1)?)),
            (5, Field::Bytes(item)) => lines(Line::Update(text_at(item, 1)?)),
            _ => {}
        }
    }
    Some(())
}

fn number_at(body: &[u8], number: u64) -> Option<u64> {
    let mut fields = Fields(body);
    while let Some(field) = fields.next() {
        match field? {
            (at, Field::Number(value)) if at == number => return Some(value),
            _ => {}
        }
    }
    Some(0)
}

fn text_at(body: &[u8], number: u64) -> Option<&str> {
    let mut fields = Fields(body);
    while let Some(field) = fields.next() {
        match field? {
            (at, Field::Bytes(value)) if at == number => return std::str::from_utf8(value).ok(),
            _ => {}
        }
    }
    Some("")
}

#[cfg(test)]
mod tests {
    use adsum_proto::client::{
        Ref,
        frame::{ServerBody, ServerFrame},
    };

    use super::*;

    fn item(user: &str) -> v1::Item {
        v1::Item {
            user: user.into(),
            ..v1::Item::default()
        }
    }

    #[test]
    fn diffs_are_walked_through() {
        let diff = v1::PresenceDiff {
            topic: "room:a".into(),
            offset: 7,
            joins: vec![item("x1"), item("x2")],
            leaves: vec![v1::Left {
                user: "x3".into(),
                v: "1-2".into(),
                ..v1::Left::default()
            }],
            updates: vec![item("x4")],
            count: Some(9),
            stale: None,
        };
        let frame = v1::ServerFrame {
            r#ref: Some("a".into()),
            frame: Some(v1::server_frame::Frame::PresenceDiff(diff)),
        };
        let mut lines = Vec::new();
        let bytes = frame.encode_to_vec();
        let heard = hear_proto(&bytes, |line| lines.push(format!("{line:?}")));
        assert_eq!(heard, Some(Heard::Diff));
        let expected = [
            r#"Join("x1")"#,
            r#"Join("x2")"#,
            r#"Leave("x3")"#,
            r#"Update("x4")"#,
        ];
        assert_eq!(lines, expected);
        assert_eq!(hear_proto(&bytes[..bytes.len() - 3], |_| ()), None);
    }

    #[test]
    fn both_encodings_say_the_same() {
        let bodies = [ServerBody::Ack, ServerBody::Reconnect { after_ms: 5 }];
        for body in bodies {
            let frame = ServerFrame::new(Some(Ref::new("r").unwrap()), body);
            let [json, proto] = [Spoken::Json, Spoken::Protobuf].map(|encoding| {
                Speech(encoding)
                    .hear(&encoding.encoding().unwrap().encode(&frame), |_| ())
                    .unwrap()
            });
            assert_eq!(json, proto);
        }
    }
}
