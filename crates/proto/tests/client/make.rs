//! Makes frames of all sorts.

use adsum_core::{
    Activity, Conn, DeviceId, Digest, Kind, Manual, Meta, Reason, RoomId, Status, Topic, UserId,
    Version,
};
use adsum_proto::client::{
    Code, LastSeen, Mode, Patch, Ref, Token,
    frame::{
        ClientBody, ClientFrame, Hello, Item, Join, Left, Members, PresenceDiff, PresenceState,
        Problem, ServerBody, ServerFrame, Set, Watch, Welcome,
    },
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// Quotes, escapes, other scripts, and characters that JavaScript treats apart.
const ID: &str = "[a-z0-9:/\"\\\\ äßж\u{2028}😀]{1,20}";

fn room() -> impl Strategy<Value = RoomId> {
    ID.prop_map(|s| RoomId::new(s).unwrap())
}

fn user() -> impl Strategy<Value = UserId> {
    ID.prop_map(|s| UserId::new(s).unwrap())
}

fn device() -> impl Strategy<Value = DeviceId> {
    ID.prop_map(|s| DeviceId::new(s).unwrap())
}

fn conn() -> impl Strategy<Value = Conn> {
    (1..=Conn::MAX).prop_map(|n| Conn::new(n).unwrap())
}

fn kind() -> impl Strategy<Value = Kind> {
    "[a-z0-9_-]{1,32}".prop_map(|s| Kind::new(s).unwrap())
}

fn meta() -> impl Strategy<Value = Meta> {
    let leaf = prop_oneof![
        Just(serde_json::Value::from(true)),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,12}".prop_map(Into::into),
    ];
    let tree = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map("[a-z ]{0,4}", inner, 0..4)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    });
    // A double that is none becomes null, which is no meta.
    let tree = tree.prop_filter("null is none", |v| !v.is_null());
    tree.prop_map(|v| Meta::new(v.to_string(), usize::MAX).unwrap())
}

fn topic() -> impl Strategy<Value = Topic> {
    prop_oneof![
        room().prop_map(Topic::Room),
        user().prop_map(Topic::User),
        Just(Topic::Tenant),
    ]
}

fn version() -> impl Strategy<Value = Version> {
    any::<(u64, u64)>().prop_map(|(e, s)| Version::new(e, s))
}

fn mode() -> impl Strategy<Value = Mode> {
    select(Mode::ALL.to_vec())
}

fn activity() -> impl Strategy<Value = Activity> {
    select(vec![Activity::Online, Activity::Away])
}

fn patch<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Patch<T>> {
    prop_oneof![
        Just(Patch::Keep),
        Just(Patch::Clear),
        value.prop_map(Patch::Set),
    ]
}

fn manual() -> impl Strategy<Value = Patch<Manual>> {
    patch(select(vec![
        Manual::Away,
        Manual::Busy,
        Manual::Dnd,
        Manual::Invisible,
    ]))
}

fn token() -> impl Strategy<Value = Token> {
    "[A-Za-z0-9._\"-]{1,40}".prop_map(Token::new)
}

fn join() -> impl Strategy<Value = Join> {
    (room(), option::of(meta())).prop_map(|(room, meta)| Join { room, meta })
}

fn watch() -> impl Strategy<Value = Watch> {
    let digest = any::<u64>().prop_map(|n| format!("{n:016x}").parse::<Digest>().unwrap());
    (topic(), mode(), option::of(digest)).prop_map(|(topic, mode, digest)| Watch {
        topic,
        mode,
        digest,
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let who = prop_oneof![
        (device(), conn()).prop_map(|(d, c)| (Some(d), Some(c))),
        option::of(conn()).prop_map(|c| (None, c)),
    ];
    let what = (option::of(token()), who, kind(), activity(), manual());
    let where_to = (option::of(meta()), vec(join(), 0..4), vec(watch(), 0..4));
    let linger_ms = option::of(0..1u64 << 53);
    (what, where_to, linger_ms).prop_map(|(what, (meta, rooms, watch), linger_ms)| {
        let (token, (device, conn), kind, activity, status) = what;
        Hello {
            token,
            device,
            conn,
            kind,
            activity,
            status,
            meta,
            rooms,
            watch,
            linger_ms,
        }
    })
}

fn set() -> impl Strategy<Value = Set> {
    (option::of(activity()), manual(), patch(meta())).prop_map(|(activity, status, meta)| Set {
        activity,
        status,
        meta,
    })
}

fn reference() -> impl Strategy<Value = Option<Ref>> {
    option::of("[a-z0-9\"ü]{0,20}".prop_map(|s| Ref::new(s).unwrap()))
}

pub(crate) fn client_frame() -> impl Strategy<Value = ClientFrame> {
    let body = prop_oneof![
        3 => hello().prop_map(|h| ClientBody::Hello(Box::new(h))),
        1 => Just(ClientBody::Heartbeat),
        2 => join().prop_map(ClientBody::Join),
        1 => room().prop_map(ClientBody::Part),
        2 => watch().prop_map(ClientBody::Watch),
        1 => vec(topic(), 0..4).prop_map(ClientBody::Unwatch),
        3 => set().prop_map(ClientBody::Set),
        1 => token().prop_map(ClientBody::Refresh),
        1 => Just(ClientBody::Leave),
    ];
    let trace = option::of("00-[a-f1-9]{32}-[a-f1-9]{16}-0[01]");
    (reference(), trace, body).prop_map(|(r#ref, trace, body)| ClientFrame {
        r#ref,
        traceparent: trace.map(Into::into),
        body,
    })
}

pub(crate) fn item() -> impl Strategy<Value = Item> {
    let status = select(vec![
        Status::Online,
        Status::Away,
        Status::Busy,
        Status::Dnd,
        Status::Invisible,
        Status::Offline,
    ]);
    let parts = (
        user(),
        status,
        vec(kind(), 0..3),
        option::of(meta()),
        any::<u64>(),
        version(),
    );
    parts.prop_map(|(user, status, devices, meta, since, v)| Item {
        user,
        status,
        devices,
        meta,
        since,
        v,
    })
}

fn left() -> impl Strategy<Value = Left> {
    let seen = (0..4_000_000_000_000_u64, 0..4_000_000_000_000_u64)
        .prop_map(|(at, now)| LastSeen::new(at, now));
    let reason = option::of(select(Reason::ALL.to_vec()));
    (user(), reason, seen, version()).prop_map(|(user, reason, last_seen, v)| Left {
        user,
        reason,
        last_seen,
        v,
    })
}

fn state() -> impl Strategy<Value = PresenceState> {
    let members = (any::<bool>(), vec(item(), 0..4), option::of(any::<u64>())).prop_map(
        |(complete, members, count)| Members {
            complete,
            members,
            count,
        },
    );
    let parts = (
        topic(),
        any::<u64>(),
        mode(),
        option::of(members),
        any::<bool>(),
    );
    parts.prop_map(|(topic, offset, mode, members, stale)| PresenceState {
        topic,
        offset,
        mode,
        members,
        stale,
    })
}

fn diff() -> impl Strategy<Value = PresenceDiff> {
    let lists = (vec(item(), 0..4), vec(left(), 0..4), vec(item(), 0..4));
    let offset = prop_oneof![0..3_u64, any::<u64>()];
    let (count, stale) = (option::of(any::<u64>()), option::of(any::<bool>()));
    (topic(), offset, lists, count, stale).prop_map(
        |(topic, offset, (joins, leaves, updates), count, stale)| PresenceDiff {
            topic,
            offset,
            joins,
            leaves,
            updates,
            count,
            stale,
        },
    )
}

fn problem() -> impl Strategy<Value = Problem> {
    let parts = (
        select(Code::ALL.to_vec()),
        ".{0,20}",
        option::of(any::<u64>()),
        option::of(conn()),
    );
    parts.prop_map(|(code, message, retry_after_ms, conn)| Problem {
        retry_after_ms,
        conn,
        ..Problem::new(code, message)
    })
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let times = any::<(u64, u64, u64)>();
    (user(), device(), conn(), times).prop_map(|(user, device, conn, times)| Welcome {
        user,
        device,
        conn,
        heartbeat_ms: times.0,
        ttl_ms: times.1,
        server_time: times.2,
    })
}

pub(crate) fn server_frame() -> impl Strategy<Value = ServerFrame> {
    let body = prop_oneof![
        1 => welcome().prop_map(ServerBody::Welcome),
        1 => Just(ServerBody::Ack),
        3 => state().prop_map(ServerBody::PresenceState),
        3 => diff().prop_map(ServerBody::PresenceDiff),
        1 => any::<u64>().prop_map(|after_ms| ServerBody::Reconnect { after_ms }),
        1 => problem().prop_map(ServerBody::Error),
        1 => any::<u64>().prop_map(|in_ms| ServerBody::Expiring { in_ms }),
    ];
    (reference(), body).prop_map(|(r#ref, body)| ServerFrame::new(r#ref, body))
}
