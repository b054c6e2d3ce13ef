//! Every frame, letter by letter: what changes here breaks somebody's client.

use adsum_core::{
    Activity, Conn, DeviceId, Digest, Kind, Manual, Meta, Reason, RoomId, Status, Topic, UserId,
    Version,
};
use adsum_proto::client::{
    Code, Encoding, FrameLimits, LastSeen, Mode, Patch, Ref, Token,
    frame::{
        ClientBody, ClientFrame, Hello, Item, Join, Left, Members, PresenceDiff, PresenceState,
        Problem, ServerBody, ServerFrame, Set, Watch, Welcome,
    },
};

fn room(id: &str) -> RoomId {
    RoomId::new(id).unwrap()
}

fn client(r#ref: &str, body: ClientBody, text: &str) {
    let frame = ClientFrame {
        r#ref: (!r#ref.is_empty()).then(|| Ref::new(r#ref).unwrap()),
        traceparent: None,
        body,
    };
    let limits = FrameLimits::default();
    assert_eq!(Encoding::Json.encode_client(&frame), text);
    assert_eq!(Encoding::Json.decode(text, &limits), Ok(frame.clone()));
    let bytes = Encoding::Protobuf.encode_client(&frame);
    assert_eq!(Encoding::Protobuf.decode(bytes, &limits), Ok(frame));
}

fn server(r#ref: &str, body: ServerBody, text: &str) {
    let r#ref = (!r#ref.is_empty()).then(|| Ref::new(r#ref).unwrap());
    let frame = ServerFrame::new(r#ref, body);
    assert_eq!(Encoding::Json.encode(&frame), text);
    assert_eq!(Encoding::Json.decode_server(text), Ok(frame.clone()));
    let bytes = Encoding::Protobuf.encode(&frame);
    assert_eq!(Encoding::Protobuf.decode_server(bytes), Ok(frame));
}

#[test]
fn hello() {
    let full = Hello {
        token: Some(Token::new("eyJ")),
        device: Some(DeviceId::new("laptop").unwrap()),
        conn: Some(Conn::new(1_782_909_296_789).unwrap()),
        kind: Kind::new("desktop").unwrap(),
        activity: Activity::Away,
        status: Patch::Set(Manual::Dnd),
        meta: Some(Meta::trusted(r#"{"name":"Ann"}"#)),
        rooms: vec![
            Join {
                room: room("lobby"),
                meta: None,
            },
            Join {
                room: room("game"),
                meta: Some(Meta::trusted("[1]")),
            },
        ],
        watch: vec![
            Watch {
                topic: Topic::Room(room("lobby")),
                mode: Mode::Members,
                digest: Some("48d33093f218b77f".parse::<Digest>().unwrap()),
            },
            Watch {
                topic: Topic::Tenant,
                mode: Mode::Count,
                digest: None,
            },
        ],
        linger_ms: Some(2000),
    };
    let text = concat!(
        r#"{"type":"hello","ref":"1","token":"eyJ","device":"laptop","conn":1782909296789,"#,
        r#""kind":"desktop","activity":"away","status":"dnd","meta":{"name":"Ann"},"#,
        r#""rooms":["lobby",{"room":"game","meta":[1]}],"#,
        r#""watch":[{"topic":"room:lobby","digest":"48d33093f218b77f"},"#,
        r#"{"topic":"tenant","mode":"count"}],"linger_ms":2000}"#
    );
    assert_eq!(full.state().rooms.len(), 2);
    client("1", ClientBody::Hello(Box::new(full)), text);
    client("", ClientBody::Hello(Box::default()), r#"{"type":"hello"}"#);
}

#[test]
fn other_frames_of_clients() {
    client("", ClientBody::Heartbeat, r#"{"type":"heartbeat"}"#);
    client("9", ClientBody::Leave, r#"{"type":"leave","ref":"9"}"#);
    let join = Join {
        room: room("lobby"),
        meta: Some(Meta::trusted("{}")),
    };
    let text = r#"{"type":"join","ref":"2","room":"lobby","meta":{}}"#;
    client("2", ClientBody::Join(join), text);
    let text = r#"{"type":"part","ref":"3","room":"lobby"}"#;
    client("3", ClientBody::Part(room("lobby")), text);
    let watch = Watch {
        topic: Topic::User(UserId::new("bob").unwrap()),
        mode: Mode::Interval,
        digest: None,
    };
    let text = r#"{"type":"watch","ref":"4","topic":"user:bob","mode":"interval"}"#;
    client("4", ClientBody::Watch(watch), text);
    let topics = vec![Topic::Tenant, Topic::Room(room("a"))];
    let text = r#"{"type":"unwatch","ref":"5","topics":["tenant","room:a"]}"#;
    client("5", ClientBody::Unwatch(topics), text);
    let token = Token::new("eyJ");
    assert_eq!(format!("{token:?}"), "Token(3 bytes)");
    let text = r#"{"type":"refresh","ref":"6","token":"eyJ"}"#;
    client("6", ClientBody::Refresh(token), text);
}

#[test]
fn set_tells_nothing_from_null() {
    let set = |activity, status, meta, text| {
        let set = Set {
            activity,
            status,
            meta,
        };
        client("", ClientBody::Set(set), text);
    };
    set(None, Patch::Keep, Patch::Keep, r#"{"type":"set"}"#);
    let text = r#"{"type":"set","status":null,"meta":null}"#;
    set(None, Patch::Clear, Patch::Clear, text);
    let text = r#"{"type":"set","activity":"online","status":"invisible","meta":7}"#;
    let meta = Patch::Set(Meta::trusted("7"));
    let status = Patch::Set(Manual::Invisible);
    set(Some(Activity::Online), status, meta, text);
    assert_eq!(Patch::Keep.apply(Some(1)), Some(1));
    assert_eq!(Patch::Clear.apply(Some(1)), None);
    assert_eq!(Patch::Set(2).apply(Some(1)), Some(2));
}

#[test]
fn what_is_as_usual_may_be_said() {
    let limits = FrameLimits::default();
    let read = |text: &str| Encoding::Json.decode(text, &limits).unwrap();
    let long = r#"{"rooms":[{"room":"a","meta":null}],"kind":"other","activity":"online",
        "meta":null,"watch":[{"mode":"members","topic":"tenant"}],"later":{"x":[1]},
        "type":"hello","ref":null,"token":null}"#;
    let short = r#"{"type":"hello","rooms":["a"],"watch":[{"topic":"tenant"}]}"#;
    assert_eq!(read(long), read(short));
    let spaced = read("{\"type\":\"join\",\"room\":\"a\",\"meta\":{ \"x\" :\n 1 }}");
    let plain = read("{\"type\":\"join\",\"room\":\"a\",\"meta\":{\"x\":1}}");
    assert_eq!(spaced, plain);
    let trace = |t: &str| {
        let text = format!(r#"{{"type":"heartbeat","traceparent":"{t}"}}"#);
        read(&text).traceparent
    };
    let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert_eq!(trace(good).as_deref(), Some(good));
    for bad in [
        "",
        "00-4b-00-01",
        &good.to_uppercase(),
        &format!("{good}-x"),
    ] {
        assert_eq!(trace(bad), None, "{bad}");
    }
}

fn ann(status: Status) -> Item {
    Item {
        user: UserId::new("ann").unwrap(),
        status,
        devices: vec![Kind::new("mobile").unwrap(), Kind::new("web").unwrap()],
        meta: Some(Meta::trusted(r#"{"name":"Ann"}"#)),
        since: 1_782_909_296_789,
        v: Version::new(3, 7),
    }
}

#[test]
fn welcome_and_small_frames() {
    let welcome = Welcome {
        user: UserId::new("ann").unwrap(),
        device: DeviceId::new("laptop").unwrap(),
        conn: Conn::new(7).unwrap(),
        heartbeat_ms: 14_480,
        ttl_ms: 45_000,
        server_time: 1_782_909_296_789,
    };
    let text = concat!(
        r#"{"type":"welcome","ref":"1","session":{"user":"ann","device":"laptop","conn":7},"#,
        r#""heartbeat_ms":14480,"ttl_ms":45000,"server_time":1782909296789}"#
    );
    server("1", ServerBody::Welcome(welcome), text);
    server("2", ServerBody::Ack, r#"{"type":"ack","ref":"2"}"#);
    let text = r#"{"type":"reconnect","after_ms":5200}"#;
    server("", ServerBody::Reconnect { after_ms: 5200 }, text);
    let text = r#"{"type":"expiring","in_ms":30000}"#;
    server("", ServerBody::Expiring { in_ms: 30_000 }, text);
    let error = Problem {
        conn: Some(Conn::new(8).unwrap()),
        retry_after_ms: Some(0),
        ..Problem::new(Code::Superseded, "go \"above\"")
    };
    let text = concat!(
        r#"{"type":"error","ref":"1","code":"superseded","message":"go \"above\"","#,
        r#""retry_after_ms":0,"conn":8}"#
    );
    server("1", ServerBody::Error(error), text);
}

#[test]
fn states() {
    let state = |mode, members, text: &str| {
        let topic = Topic::Room(room("lobby"));
        let body = PresenceState {
            topic,
            offset: 1,
            mode,
            members,
            stale: text.contains("stale"),
        };
        server("4", ServerBody::PresenceState(body), text);
    };
    let text = concat!(
        r#"{"type":"presence_state","ref":"4","topic":"room:lobby","offset":1,"mode":"members","#,
        r#""complete":true,"members":[{"user":"ann","status":"invisible","#,
        r#""devices":["mobile","web"],"meta":{"name":"Ann"},"since":1782909296789,"v":"3-7"}]}"#
    );
    let members = Members {
        complete: true,
        members: vec![ann(Status::Invisible)],
        count: None,
    };
    state(Mode::Members, Some(members), text);
    let text = concat!(
        r#"{"type":"presence_state","ref":"4","topic":"room:lobby","offset":1,"mode":"count","#,
        r#""complete":false,"members":[],"count":12000}"#
    );
    let members = Members {
        complete: false,
        members: Vec::new(),
        count: Some(12_000),
    };
    state(Mode::Count, Some(members), text);
    let text = concat!(
        r#"{"type":"presence_state","ref":"4","topic":"room:lobby","offset":1,"#,
        r#""mode":"interval","unchanged":true}"#
    );
    state(Mode::Interval, None, text);
    let text = concat!(
        r#"{"type":"presence_state","ref":"4","topic":"room:lobby","offset":1,"#,
        r#""mode":"interval","unchanged":true,"stale":true}"#
    );
    state(Mode::Interval, None, text);
}

#[test]
fn diffs() {
    let left = |user: &str, reason, last_seen| Left {
        user: UserId::new(user).unwrap(),
        reason,
        last_seen,
        v: Version::new(3, 9),
    };
    let seen = LastSeen::new(1_782_909_296_789, 1_782_909_299_000);
    let diff = PresenceDiff {
        topic: Topic::Room(room("lobby")),
        offset: 2,
        joins: vec![ann(Status::Online)],
        leaves: vec![
            left("bob", Some(Reason::NodeLost), seen),
            left("eve", None, None),
        ],
        updates: Vec::new(),
        count: Some(1),
        stale: None,
    };
    let text = concat!(
        r#"{"type":"presence_diff","topic":"room:lobby","offset":2,"#,
        r#""joins":[{"user":"ann","status":"online","devices":["mobile","web"],"#,
        r#""meta":{"name":"Ann"},"since":1782909296789,"v":"3-7"}],"#,
        r#""leaves":[{"user":"bob","reason":"node_lost","#,
        r#""last_seen":"2026-07-01T12:34:56.789Z","last_seen_s":2,"v":"3-9"},"#,
        r#"{"user":"eve","v":"3-9"}],"updates":[],"count":1}"#
    );
    server("", ServerBody::PresenceDiff(diff), text);
    let diff = PresenceDiff {
        topic: Topic::Tenant,
        offset: 3,
        joins: Vec::new(),
        leaves: Vec::new(),
        updates: Vec::new(),
        count: None,
        stale: Some(false),
    };
    let text = concat!(
        r#"{"type":"presence_diff","topic":"tenant","offset":3,"#,
        r#""joins":[],"leaves":[],"updates":[],"stale":false}"#
    );
    server("", ServerBody::PresenceDiff(diff), text);
}
