//! A frame put together of pieces is, to the byte, the one that is written in one go.

use adsum_core::{Topic, UserId};
use adsum_proto::client::{
    Encoding, Mode, Piece, Ref, WireFrame,
    frame::{Left, PresenceDiff, ServerBody, ServerFrame},
};
use proptest::prelude::*;
use prost::Message;

use super::make::{item, server_frame};

fn spliced(encoding: Encoding, frame: &ServerFrame) -> Option<bytes::Bytes> {
    let items = |items: &[_]| -> Vec<Piece> { items.iter().map(|i| encoding.item(i)).collect() };
    let (shared, offset) = match &frame.body {
        ServerBody::PresenceDiff(d) => {
            let leaves: Vec<_> = d.leaves.iter().map(|l| encoding.left(l)).collect();
            let (joins, updates) = (items(&d.joins), items(&d.updates));
            let diff = encoding.diff(&d.topic, &joins, &leaves, &updates, d.count, d.stale);
            (diff, d.offset)
        }
        ServerBody::PresenceState(s) => {
            let m = s.members.as_ref()?;
            let members = items(&m.members);
            let state = encoding.state(&s.topic, s.mode, m.complete, &members, m.count, s.stale);
            (state, s.offset)
        }
        _ => return None,
    };
    Some(shared.frame(frame.r#ref.as_ref(), offset))
}

proptest! {
    #[test]
    fn equals_the_plain_frame(frame in server_frame()) {
        for encoding in Encoding::ALL {
            if let Some(bytes) = spliced(encoding, &frame) {
                prop_assert_eq!(bytes, encoding.encode(&frame));
            }
        }
    }

    /// What gRPC sends, spliced or not, is the generated message.
    #[test]
    fn equals_it_through_grpc(frame in server_frame()) {
        let plain = Encoding::Protobuf.encode(&frame);
        let bytes = spliced(Encoding::Protobuf, &frame).unwrap_or_else(|| plain.clone());
        for wire in [WireFrame::encoded(bytes), WireFrame::from(&frame)] {
            prop_assert_eq!(wire.encoded_len(), plain.len());
            let sent = wire.encode_to_vec();
            prop_assert_eq!(&sent, &plain);
            let received = WireFrame::decode(&*sent).unwrap();
            prop_assert_eq!(received.read(), Ok(frame.clone()));
            prop_assert_eq!(wire.read(), Ok(frame.clone()));
        }
    }

    /// One body, many connections: only `ref` and `offset` differ.
    #[test]
    fn is_shared_by_connections(item in item(), offsets in prop::collection::vec(any::<u64>(), 3)) {
        for encoding in Encoding::ALL {
            let pieces = [encoding.item(&item)];
            let shared = encoding.diff(&Topic::Tenant, &pieces, &[], &[], Some(1), None);
            for (n, offset) in offsets.iter().enumerate() {
                let r#ref = (n > 0).then(|| Ref::new(n.to_string()).unwrap());
                let read = encoding.decode_server(shared.frame(r#ref.as_ref(), *offset));
                let diff = PresenceDiff {
                    topic: Topic::Tenant,
                    offset: *offset,
                    joins: vec![item.clone()],
                    leaves: Vec::new(),
                    updates: Vec::new(),
                    count: Some(1),
                    stale: None,
                };
                let body = ServerBody::PresenceDiff(diff);
                prop_assert_eq!(read, Ok(ServerFrame::new(r#ref, body)));
            }
        }
    }
}

#[test]
fn of_core_and_back() {
    let core = adsum_core::Item {
        user: UserId::new("ann").unwrap(),
        status: adsum_core::Status::Invisible,
        devices: Vec::new(),
        meta: None,
        since: 5,
        v: adsum_core::Version::new(3, 7),
        visibility: adsum_core::Visibility::Nobody,
        contacts: 9,
        frozen_at: 0,
    };
    let piece = Encoding::Json.item(&(&core).into());
    let text = r#"{"user":"ann","status":"invisible","devices":[],"since":5,"v":"3-7"}"#;
    assert_eq!(piece.as_bytes(), text.as_bytes());
    let leave = adsum_core::Leave {
        item: core.into(),
        reason: Some(adsum_core::Reason::NodeLost),
        last_seen: 1000,
        version: adsum_core::Version::new(3, 9),
    };
    let piece = Encoding::Json.left(&Left::new(&leave, 4999));
    let text = concat!(
        r#"{"user":"ann","reason":"node_lost","last_seen":"1970-01-01T00:00:01.000Z","#,
        r#""last_seen_s":3,"v":"3-9"}"#
    );
    assert_eq!(piece.as_bytes(), text.as_bytes());
    let empty = Encoding::Json.state(&Topic::Tenant, Mode::Count, false, &[], None, false);
    let text = concat!(
        r#"{"type":"presence_state","topic":"tenant","offset":1,"#,
        r#""mode":"count","complete":false,"members":[]}"#
    );
    assert_eq!(empty.frame(None, 1), text);
}
