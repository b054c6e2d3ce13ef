//! The session against a scripted server, without IO and without waiting.

mod calls;
mod connections;
mod model;
mod topics;

use std::{sync::Arc, time::Duration};

use adsum_core::{Activity, Conn, DeviceId, Kind, Meta, RoomId, Status, Topic, UserId, Version};
use adsum_proto::client::{
    Code, Ref,
    frame::{
        ClientBody, ClientFrame, Hello, Item, Left, Members, Mode, PresenceDiff, PresenceState,
        Problem, ServerBody, ServerFrame, Watch, Welcome,
    },
};
use tokio::{sync::oneshot, time::Instant};

use super::{Book, Cause, Intent, Numbers, Session, Signal, Verdict};
use crate::{EndReason, Error, Event, Timing};

pub(super) fn lobby() -> Topic {
    Topic::Room(RoomId::new("lobby").unwrap())
}

pub(super) fn item(user: &str, v: u64) -> Item {
    Item {
        user: UserId::new(user).unwrap(),
        status: Status::Online,
        devices: vec![Kind::default()],
        meta: Some(Meta::trusted(v.to_string())),
        since: 1,
        v: Version::new(1, v),
    }
}

pub(super) fn left(user: &str) -> Left {
    Left {
        user: UserId::new(user).unwrap(),
        reason: None,
        last_seen: None,
        v: Version::new(1, 99),
    }
}

pub(super) fn members(items: Vec<Item>) -> Option<Members> {
    Some(Members {
        complete: true,
        members: items,
        count: None,
    })
}

type Answer = oneshot::Receiver<Result<(), Error>>;

/// A session, its clock, and what it did.
pub(super) struct Desk {
    pub(super) session: Session,
    pub(super) book: Arc<Book>,
    pub(super) now: Instant,
}

impl Desk {
    pub(super) fn new(intent: Intent) -> Self {
        let book = Arc::new(Book::default());
        let device = Some(DeviceId::new("laptop").unwrap());
        let session = Session::new(
            Timing::default(),
            intent,
            Numbers::new(device),
            book.clone(),
            false,
            7,
        );
        Self {
            session,
            book,
            now: Instant::now(),
        }
    }

    pub(super) fn watching() -> Self {
        let mut intent = Intent::default();
        intent.watches.insert(lobby(), Mode::Members);
        Self::new(intent)
    }

    pub(super) fn hello(&mut self) -> Hello {
        self.session.hello(1000)
    }

    pub(super) fn welcome(&mut self, hello: &Hello) {
        let welcome = Welcome {
            user: UserId::new("ann").unwrap(),
            device: hello.device.clone().unwrap(),
            conn: hello.conn.unwrap(),
            heartbeat_ms: 15_000,
            ttl_ms: 45_000,
            server_time: 0,
        };
        self.session.opened(self.now, "ws://a".into(), &welcome);
    }

    /// Connects, and returns what the hello said.
    pub(super) fn connect(&mut self) -> Hello {
        let hello = self.hello();
        self.welcome(&hello);
        hello
    }

    pub(super) fn call(&mut self, body: ClientBody) -> Answer {
        let (done, answer) = oneshot::channel();
        self.session.call(self.now, body, done);
        answer
    }

    pub(super) fn sent(&mut self) -> Vec<ClientFrame> {
        self.session.take_out()
    }

    /// The only frame that was sent.
    pub(super) fn sent_one(&mut self) -> ClientFrame {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    pub(super) fn reply(&mut self, r#ref: Option<Ref>, body: ServerBody) -> Option<Signal> {
        self.session.frame(self.now, ServerFrame { r#ref, body })
    }

    pub(super) fn news(&mut self, body: ServerBody) -> Option<Signal> {
        self.reply(None, body)
    }

    pub(super) fn state(&mut self, offset: u64, members: Option<Members>) -> Vec<Event> {
        self.news(state(offset, members));
        self.session.take_events()
    }

    pub(super) fn diff(&mut self, offset: u64, joins: Vec<Item>, leaves: Vec<Left>) -> Vec<Event> {
        self.news(ServerBody::PresenceDiff(PresenceDiff {
            topic: lobby(),
            offset,
            joins,
            leaves,
            updates: Vec::new(),
            count: None,
            stale: None,
        }));
        self.session.take_events()
    }

    pub(super) fn pass(&mut self, time: Duration) -> Option<Signal> {
        self.now += time;
        self.session.tick(self.now)
    }

    /// Who is in the lobby.
    pub(super) fn roster(&self) -> Vec<String> {
        let view = self.book.view(&lobby()).unwrap();
        view.members.iter().map(|i| i.user.to_string()).collect()
    }
}

pub(super) fn state(offset: u64, members: Option<Members>) -> ServerBody {
    ServerBody::PresenceState(PresenceState {
        topic: lobby(),
        offset,
        mode: Mode::Members,
        members,
        stale: false,
    })
}

pub(super) fn join(room: &str) -> ClientBody {
    ClientBody::Join(adsum_proto::client::frame::Join {
        room: RoomId::new(room).unwrap(),
        meta: None,
    })
}

pub(super) fn watch() -> ClientBody {
    ClientBody::Watch(Watch {
        topic: lobby(),
        mode: Mode::Members,
        digest: None,
    })
}

pub(super) fn problem(code: Code) -> Problem {
    Problem::new(code, "no")
}

/// Events as short texts: `+ann`, `~ann`, `-ann`, `=resumed`.
pub(super) fn short(events: &[Event]) -> Vec<String> {
    let one = |event: &Event| match event {
        Event::Joined { item, .. } => format!("+{}", item.user),
        Event::Updated { item, .. } => format!("~{}", item.user),
        Event::Left { left, .. } => format!("-{}", left.user),
        Event::Count { count, .. } => format!("#{count}"),
        Event::Stale { stale, .. } => format!("?{stale}"),
        Event::Synced { resumed: true, .. } => "=resumed".into(),
        Event::Synced { mode, complete, .. } => format!("={} {complete}", mode.as_str()),
        other => format!("{other:?}"),
    };
    events.iter().map(one).collect()
}
