//! The gRPC service: what reflection shows, and requests that are no frames.

use adsum_core::{Activity, Conn, DeviceId, Kind, Membership, RoomId, State, Visibility};
use adsum_proto::client::{
    Code, FILE_DESCRIPTOR_SET, FrameLimits, Mode,
    frame::Beat,
    incoming::Incoming,
    protobuf::{from_beat, from_watch, manual, visibility},
    v1,
};
use prost::Message;

#[test]
fn reflection_lists_every_method() {
    let set = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let file = &set.file[0];
    assert_eq!(file.package(), "adsum.v1");
    let methods: Vec<_> = file.service[0].method.iter().map(|m| m.name()).collect();
    let expected = [
        "Connect",
        "Watch",
        "Get",
        "GetMany",
        "Members",
        "Count",
        "LastSeen",
        "SetStatus",
        "SetVisibility",
        "SetContacts",
        "Heartbeat",
        "Disconnect",
    ];
    assert_eq!(file.service[0].name(), "Presence");
    assert_eq!(methods, expected);
    // Every enum begins with "not said".
    for kind in &file.enum_type {
        assert!(kind.value[0].name().ends_with("_UNSPECIFIED"), "{kind:?}");
    }
}

#[test]
fn a_service_watches_what_it_names() {
    let limits = FrameLimits {
        topics: 1,
        ..FrameLimits::default()
    };
    let ask = |topics: &[&str]| {
        let watch = |topic: &&str| v1::Watch {
            topic: (*topic).into(),
            mode: v1::Mode::Count.into(),
            digest: None,
        };
        let topics = topics.iter().map(watch).collect();
        from_watch(v1::WatchRequest { topics }, &limits)
    };
    assert_eq!(ask(&["tenant"]).unwrap()[0].mode, Mode::Count);
    assert_eq!(ask(&[]).unwrap_err().code(), Code::MissingField);
    assert_eq!(ask(&["nobody"]).unwrap_err().code(), Code::InvalidTopic);
    let many = ask(&["tenant", "room:a"]).unwrap_err();
    assert_eq!(many.code(), Code::TooManyTopics);
}

#[test]
fn a_beat_is_a_whole_session() {
    let beat = v1::Beat {
        device: "laptop".into(),
        conn: 7,
        activity: v1::Activity::Away.into(),
        rooms: vec![v1::Join {
            room: "lobby".into(),
            meta: None,
        }],
        ..v1::Beat::default()
    };
    let limits = FrameLimits::default();
    let read = from_beat(beat.clone(), &limits).unwrap();
    let rooms = [(RoomId::new("lobby").unwrap(), Membership::default())];
    let expected = Beat {
        user: None,
        device: DeviceId::new("laptop").unwrap(),
        conn: Conn::new(7).unwrap(),
        rev: None,
        state: State {
            kind: Kind::default(),
            activity: Activity::Away,
            meta: None,
            rooms: rooms.into_iter().collect(),
        },
    };
    assert_eq!(read, expected);
    let bent = |bend: fn(&mut v1::Beat)| {
        let mut beat = beat.clone();
        bend(&mut beat);
        from_beat(beat, &limits).unwrap_err().code()
    };
    assert_eq!(bent(|b| b.device.clear()), Code::MissingField);
    assert_eq!(bent(|b| b.conn = 0), Code::InvalidConn);
    assert_eq!(bent(|b| b.user = Some(String::new())), Code::InvalidId);
    assert_eq!(bent(|b| b.activity = 9), Code::InvalidStatus);
    assert_eq!(bent(|b| b.meta = Some("{".into())), Code::InvalidMeta);
    let many = |b: &mut v1::Beat| b.rooms = vec![v1::Join::default(); 101];
    assert_eq!(bent(many), Code::TooManyRooms);
}

#[test]
fn requests_are_counted_before_they_are_decoded() {
    let users = |count| v1::GetManyRequest {
        users: vec!["u".to_owned(); count],
    };
    let most = users(100_000);
    assert_eq!(
        v1::GetManyRequest::read(&most.encode_to_vec()).unwrap(),
        most
    );
    let word = |status: tonic::Status| {
        let word = status.metadata().get("adsum-code").unwrap();
        word.to_str().unwrap().to_owned()
    };
    let more = v1::GetManyRequest::read(&users(100_001).encode_to_vec());
    assert_eq!(word(more.unwrap_err()), "too_many_users");

    let beats = |rooms| v1::HeartbeatRequest {
        beats: vec![
            v1::Beat {
                device: "laptop".into(),
                rooms: vec![v1::Join::default(); rooms],
                ..v1::Beat::default()
            };
            100
        ],
    };
    let most = beats(3_999);
    assert_eq!(
        v1::HeartbeatRequest::read(&most.encode_to_vec()).unwrap(),
        most
    );
    let more = v1::HeartbeatRequest::read(&beats(4_000).encode_to_vec());
    assert_eq!(word(more.unwrap_err()), "too_many_users");
    // A beat that breaks off.
    let broken = v1::HeartbeatRequest::read(b"\x0a\x7f\x12");
    assert_eq!(word(broken.unwrap_err()), "malformed_frame");
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    assert_eq!(visibility(3), Ok(Visibility::Nobody));
    assert_eq!(visibility(0).unwrap_err().code(), Code::MissingField);
    assert_eq!(visibility(9).unwrap_err().code(), Code::InvalidVisibility);
    for number in [0, 1, 6, 9] {
        let refused = manual(number).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidStatus, "{number}");
    }
}
