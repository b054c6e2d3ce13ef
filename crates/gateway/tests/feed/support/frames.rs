//! What dispatchers say.

use adsum_proto::feed::{self, Cursor, Frame, TopicRef, frame::Body, topic_ref};

use super::EPOCH;

pub(crate) fn frame(shard: u32, seq: u64, body: Body) -> Frame {
    Frame {
        shard,
        epoch: EPOCH,
        seq,
        settling: false,
        body: Some(body),
    }
}

pub(crate) fn mark(shard: u32, seq: u64) -> Frame {
    frame(shard, seq, Body::Mark(feed::Mark {}))
}

pub(crate) fn settling(mut frame: Frame) -> Frame {
    frame.settling = true;
    frame
}

pub(crate) fn room_ref(room: &str) -> TopicRef {
    TopicRef {
        tenant: "acme".into(),
        topic: Some(topic_ref::Topic::Room(room.into())),
    }
}

pub(crate) fn user_ref(user: &str) -> TopicRef {
    TopicRef {
        tenant: "acme".into(),
        topic: Some(topic_ref::Topic::User(user.into())),
    }
}

pub(crate) fn cursor(seq: u64) -> Cursor {
    Cursor { epoch: EPOCH, seq }
}

pub(crate) fn item(user: &str, seq: u64) -> feed::Item {
    feed::Item {
        user: user.into(),
        status: feed::Status::Online.into(),
        devices: vec!["web".into()],
        meta: None,
        since: 1,
        v: Some(cursor(seq)),
        visibility: feed::Visibility::Everyone.into(),
        contacts: 0,
        frozen_at: 0,
    }
}

/// A part of a topic with people of these versions.
pub(crate) fn part_of(shard: u32, seq: u64, topic: TopicRef, members: &[(&str, u64)]) -> Frame {
    let member = |(user, seq): &(&str, u64)| feed::Member {
        item: Some(item(user, *seq)),
        version: Some(cursor(*seq)),
    };
    let part = feed::Part {
        topic: Some(topic),
        members: members.iter().map(member).collect(),
    };
    frame(shard, seq, Body::Part(part))
}

pub(crate) fn part(shard: u32, seq: u64, room: &str, members: &[(&str, u64)]) -> Frame {
    part_of(shard, seq, room_ref(room), members)
}

fn states(shard: u32, seq: u64, presence: feed::state::Presence, room: &str) -> Frame {
    let state = feed::State {
        topic: Some(room_ref(room)),
        version: Some(cursor(seq)),
        presence: Some(presence),
        origin: Some(feed::Origin {
            at_us: seq,
            traceparent: None,
            committed_us: seq + 1,
            routed_us: seq + 2,
        }),
    };
    frame(
        shard,
        seq,
        Body::States(feed::States {
            states: vec![state],
        }),
    )
}

pub(crate) fn here(shard: u32, seq: u64, room: &str, user: &str) -> Frame {
    states(
        shard,
        seq,
        feed::state::Presence::Here(item(user, seq)),
        room,
    )
}

pub(crate) fn busy(shard: u32, seq: u64, room: &str, user: &str) -> Frame {
    let mut item = item(user, seq);
    item.status = feed::Status::Busy.into();
    states(shard, seq, feed::state::Presence::Here(item), room)
}

pub(crate) fn gone(shard: u32, seq: u64, room: &str, user: &str) -> Frame {
    let absent = feed::Absent {
        user: user.into(),
        reason: 1,
        last_seen: 5,
    };
    states(shard, seq, feed::state::Presence::Absent(absent), room)
}
