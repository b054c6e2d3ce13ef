//! Each mistake has its code, and is answered by the `ref` of the frame that made it.

use adsum_core::{Invalid, Limits};
use adsum_proto::client::{
    Close, Code, Encoding, Fault, FrameError, FrameLimits, json, protobuf,
    v1::{self, client_frame::Frame},
};
use prost::Message;

fn limits() -> FrameLimits {
    FrameLimits {
        frame_bytes: 20_000,
        topics: 2,
        session: Limits {
            meta_bytes: 20,
            rooms: 2,
            contacts: 2,
        },
    }
}

fn refused(text: &str) -> FrameError {
    json::decode(text, &limits()).unwrap_err()
}

/// Refused with this code, and the `ref` was read although the frame is bad.
fn says(code: Code, rest: &str) -> String {
    let error = refused(&format!(r#"{{"ref":"r1",{rest}}}"#));
    assert_eq!(error.code(), code, "{rest}: {error}");
    let echoed = error.r#ref.as_ref().map(|r| r.as_str());
    assert_eq!(echoed, Some("r1"), "{rest}");
    let reply = String::from_utf8(json::encode(&error.reply()).into()).unwrap();
    let begins = format!(r#"{{"type":"error","ref":"r1","code":"{}""#, code.as_str());
    assert!(reply.starts_with(&begins), "{reply}");
    error.to_string()
}

#[test]
fn each_code_in_json() {
    let meta = format!(r#""type":"join","room":"a","meta":"{}""#, "x".repeat(19));
    let cases = [
        (Code::MalformedFrame, r#""type":"join","room":5"#),
        (Code::UnknownFrame, r#""type":"jion""#),
        (Code::MissingField, r#""room":"a""#),
        (Code::MissingField, r#""type":"join""#),
        (Code::MissingField, r#""type":"hello","device":"d""#),
        (Code::MissingField, r#""type":"refresh","token":"""#),
        (Code::InvalidId, r#""type":"part","room":"""#),
        (Code::InvalidId, r#""type":"part","room":"a\nb""#),
        (Code::InvalidTopic, r#""type":"watch","topic":"rooms:a""#),
        (Code::InvalidTopic, r#""type":"unwatch","topics":["room:"]"#),
        (Code::InvalidMeta, r#""type":"set","meta":{"a":1,"a":2}"#),
        (Code::InvalidMeta, r#""type":"set","meta":[1e999]"#),
        (Code::MetaTooLarge, &meta),
        (Code::InvalidStatus, r#""type":"set","status":"online""#),
        (Code::InvalidStatus, r#""type":"set","activity":"busy""#),
        (
            Code::InvalidMode,
            r#""type":"watch","topic":"tenant","mode":"all""#,
        ),
        (Code::InvalidKind, r#""type":"hello","kind":"Web""#),
        (Code::InvalidConn, r#""type":"hello","conn":0"#),
        (
            Code::InvalidConn,
            r#""type":"hello","conn":9007199254740992"#,
        ),
        (
            Code::InvalidDigest,
            r#""type":"watch","topic":"tenant","digest":"+8d33093f218b77f""#,
        ),
        (
            Code::TooManyRooms,
            r#""type":"hello","rooms":["a","b","c"]"#,
        ),
        (
            Code::TooManyTopics,
            r#""type":"unwatch","topics":["tenant","tenant","tenant"]"#,
        ),
    ];
    for (code, rest) in cases {
        says(code, rest);
    }
    let long = format!(r#"{{"type":"heartbeat","ref":"{}"}}"#, "x".repeat(65));
    assert_eq!(refused(&long).code(), Code::InvalidRef);
    let long = format!(r#"{{"type":"heartbeat","x":"{}"}}"#, "x".repeat(20_000));
    assert_eq!(refused(&long).code(), Code::FrameTooLarge);
}

#[test]
fn wrong_types_are_named_by_their_path() {
    let cases = [
        (
            r#""type":"join","room":5"#,
            "room: invalid type: integer `5`",
        ),
        (
            r#""type":"join","room":["a","b"]"#,
            "room: invalid type: sequence",
        ),
        (
            r#""type":"hello","rooms":["a",{"room":1}]"#,
            "rooms[1].room: invalid type",
        ),
        (
            r#""type":"hello","rooms":["a",1]"#,
            "rooms[1]: invalid type: integer `1`",
        ),
        (
            r#""type":"hello","watch":[{"topic":{}}]"#,
            "watch[0].topic: invalid type: map",
        ),
        (
            r#""type":"hello","conn":-1"#,
            "conn: invalid value: integer `-1`",
        ),
        (
            r#""type":"hello","conn":1e999"#,
            "conn: number out of range",
        ),
        (
            r#""type":"hello","conn":18446744073709551616"#,
            "conn: invalid",
        ),
        (
            r#""type":"set","status":[]"#,
            "status: invalid type: sequence",
        ),
        (r#""type":7"#, "type: invalid type: integer `7`"),
        (r#""type":"heartbeat","ref":"r2""#, "duplicate field `ref`"),
        (
            r#""type":"part","room":"a","room":"b""#,
            "duplicate field `room`",
        ),
    ];
    for (rest, message) in cases {
        let text = says(Code::MalformedFrame, rest);
        assert!(text.contains(message), "{rest}: {text}");
    }
}

#[test]
fn what_is_no_frame_at_all() {
    let deep = format!(r#"{{"type":"set","x":{}"#, "[".repeat(65));
    let cases = [
        "",
        " ",
        "null",
        "[]",
        "5",
        "\"hello\"",
        "{",
        "{}x",
        "{\"type\":\"leave\"}{}",
        &deep,
        "{\"type\":\"lea",
        "{'type':'leave'}",
    ];
    for text in cases {
        assert_eq!(refused(text).code(), Code::MalformedFrame, "{text}");
    }
    assert_eq!(refused("{}").fault, Fault::Missing("type"));
    assert_eq!(refused("{\"type\":null}").fault, Fault::Missing("type"));
    let binary = json::decode([0xff, 0xfe], &limits()).unwrap_err();
    assert_eq!(binary.code(), Code::MalformedFrame);
    // Read as far as it goes: the `ref` came before the break.
    let broken = refused(r#"{"type":"join","ref":"r1","room":"#);
    assert_eq!(broken.r#ref.as_ref().map(|r| r.as_str()), Some("r1"));
    // What a client wrote is repeated to it in part only.
    let long = refused(&format!(r#"{{"type":"{}"}}"#, "x".repeat(5000)));
    assert!(long.to_string().len() < 100);
    let long = "x".repeat(5000);
    for rest in [
        format!(r#""conn":"{long}""#),
        format!(r#""meta":{{"{long}":1,"{long}":2}}"#),
    ] {
        let error = refused(&format!(r#"{{"type":"hello",{rest}}}"#));
        assert!(error.to_string().len() < 400, "{error}");
    }
}

fn protobuf_says(code: Code, frame: Option<Frame>) {
    let message = v1::ClientFrame {
        r#ref: Some("r1".into()),
        traceparent: None,
        frame,
    };
    let error = protobuf::decode(message.encode_to_vec(), &limits()).unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert_eq!(error.r#ref.as_ref().map(|r| r.as_str()), Some("r1"));
}

#[test]
fn each_code_in_protobuf() {
    let watch = |topic: &str, mode: i32, digest: Option<&str>| {
        let (topic, digest) = (topic.into(), digest.map(Into::into));
        Some(Frame::Watch(v1::Watch {
            topic,
            mode,
            digest,
        }))
    };
    let hello = |bend: fn(&mut v1::Hello)| {
        let mut hello = v1::Hello::default();
        bend(&mut hello);
        Some(Frame::Hello(hello))
    };
    let set = |bend: fn(&mut v1::Set)| {
        let mut set = v1::Set::default();
        bend(&mut set);
        Some(Frame::Set(set))
    };
    let cases = [
        (Code::UnknownFrame, None),
        (Code::MissingField, Some(Frame::Join(v1::Join::default()))),
        (
            Code::MissingField,
            Some(Frame::Refresh(v1::Refresh::default())),
        ),
        (Code::MissingField, hello(|h| h.device = Some("d".into()))),
        (
            Code::InvalidId,
            Some(Frame::Part(v1::Part { room: "\n".into() })),
        ),
        (Code::InvalidTopic, watch("rooms:a", 0, None)),
        (Code::InvalidMode, watch("tenant", 9, None)),
        (Code::InvalidDigest, watch("tenant", 0, Some("ab"))),
        (Code::InvalidKind, hello(|h| h.kind = Some(String::new()))),
        (Code::InvalidConn, hello(|h| h.conn = Some(u64::MAX))),
        (
            Code::TooManyRooms,
            hello(|h| h.rooms = vec![v1::Join::default(); 3]),
        ),
        (
            Code::TooManyTopics,
            hello(|h| h.watch = vec![v1::Watch::default(); 3]),
        ),
        (Code::InvalidMeta, set(|s| s.meta = Some(String::new()))),
        (Code::MetaTooLarge, set(|s| s.meta = Some("1".repeat(21)))),
        (Code::InvalidStatus, set(|s| s.activity = 9)),
        (
            Code::InvalidStatus,
            set(|s| s.manual = Some(v1::set::Manual::Status(0))),
        ),
        (
            Code::InvalidStatus,
            set(|s| s.manual = Some(v1::set::Manual::Status(1))),
        ),
    ];
    for (code, frame) in cases {
        protobuf_says(code, frame);
    }
    let garbage = protobuf::decode([0x0a, 0xff], &limits()).unwrap_err();
    assert_eq!(garbage.code(), Code::MalformedFrame);
    let large = protobuf::decode(vec![0; 20_001], &limits()).unwrap_err();
    assert_eq!(large.code(), Code::FrameTooLarge);
}

#[test]
fn a_newer_server_is_understood_as_far_as_v1_goes() {
    let diff = |left: &str| {
        let text = format!(
            r#"{{"type":"presence_diff","topic":"tenant","offset":1,"more":1,"leaves":[{left}]}}"#
        );
        json::decode_server(text)
    };
    let known = diff(r#"{"user":"a","v":"1-1"}"#);
    assert!(known.is_ok());
    assert_eq!(
        diff(r#"{"user":"a","v":"1-1","reason":"moved","x":2}"#),
        known
    );
    assert!(diff(r#"{"user":"a","v":"1"}"#).is_err());
    assert!(diff(r#"{"user":"a","v":"1-1","last_seen":"today"}"#).is_err());
    let state = |mode: &str, status: &str| {
        let text = format!(
            r#"{{"type":"presence_state","topic":"tenant","offset":1,"mode":"{mode}",
            "complete":true,"members":[{{"user":"a","v":"1-1","since":1,"status":"{status}"}}]}}"#
        );
        json::decode_server(text).map(|_| ()).map_err(|e| e.code())
    };
    assert_eq!(state("members", "busy"), Ok(()));
    assert_eq!(state("digest", "busy"), Err(Code::InvalidMode));
    assert_eq!(state("members", "asleep"), Err(Code::MalformedFrame));
    let other = json::decode_server(r#"{"type":"typing","ref":"3"}"#).unwrap_err();
    assert_eq!(other.code(), Code::UnknownFrame);
    let error = json::decode_server(r#"{"type":"error","code":"new","message":""}"#);
    assert!(error.is_ok());

    let left = v1::Left {
        user: "a".into(),
        reason: 99,
        v: "1-1".into(),
        ..v1::Left::default()
    };
    let diff = v1::PresenceDiff {
        topic: "tenant".into(),
        offset: 1,
        leaves: vec![left],
        ..v1::PresenceDiff::default()
    };
    let frame = v1::ServerFrame {
        r#ref: None,
        frame: Some(v1::server_frame::Frame::PresenceDiff(diff)),
    };
    assert_eq!(protobuf::from_server(frame), known);
}

#[test]
fn codes_are_those_of_core_and_unlike_each_other() {
    let of_core = [
        Invalid::MetaNotJson(String::new()),
        Invalid::MetaTooLarge { size: 1, limit: 0 },
        Invalid::TooManyRooms { count: 1, limit: 0 },
        Invalid::TooManyContacts { count: 1, limit: 0 },
        Invalid::Conn,
        Invalid::Kind,
    ];
    for invalid in of_core {
        let word = invalid.code();
        assert_eq!(Fault::from(invalid).code().as_str(), word);
    }
    let words: std::collections::HashSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
    assert_eq!(words.len(), Code::ALL.len());
    for code in Code::ALL {
        assert_eq!(Code::from_word(code.as_str()), Some(*code));
    }
    for close in Close::ALL {
        assert_eq!(Close::from_code(close.code()), Some(close));
    }
    assert_eq!(Close::from_code(1006), None);
    for encoding in Encoding::ALL {
        let name = encoding.subprotocol();
        assert_eq!(Encoding::from_subprotocol(name), Some(encoding));
    }
}
