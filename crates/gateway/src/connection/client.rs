//! The loop of a connection: frames, words of the store, and times. A beat costs a store of the
//! clock and an answer: timers are set anew only when they ring.

use std::{sync::Arc, time::Duration};

use adsum_core::{Conn, Reason, SessionKey, State, Topic, hold::Word};
use adsum_proto::client::{
    Close, Code, FrameError, Ref,
    frame::{ClientFrame, ServerBody, ServerFrame},
    protobuf,
};
use bytes::Bytes;
use litemap::LiteMap;
use tokio::time::{Instant, sleep_until};

use super::{Door, Received, Source, acks::Acks};
use crate::{
    Caller, Edge, EdgeError, Settings, beats, clock,
    holder::Ending,
    hub::Subscription,
    limits::{Admission, LimitError, RateLimiter},
    outbox::Outbox,
    requests::Requests,
};

/// Bad frames in a row, after which a client is not listened to any more.
const BAD_FRAMES: u32 = 20;

/// Refusals for sending too fast, less one for every frame that was taken meanwhile, after which
/// a client is not listened to any more.
const TOO_FAST: u32 = 200;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client is gone without a word.
    Broken,
    /// The client closes the connection, which says nothing of its presence.
    Goodbye,
    /// We close it.
    Close(Close),
}

/// What became of something that came in.
enum Taken {
    Done(Option<End>),
    Frame(ClientFrame),
}

/// What a connection is once its hello was taken.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) key: SessionKey,
    pub(super) conn: Conn,
    pub(super) caller: Caller,
    pub(super) state: State,
    pub(super) watches: LiteMap<Topic, Subscription>,
    pub(super) acks: Acks,
    /// How long a break is told to nobody, at most.
    pub(super) linger_ms: u32,
    /// The client was told that its token ends.
    pub(super) warned: bool,
    /// The store has ended it: there is nothing left to close.
    pub(super) ended: bool,
    pub(super) _admission: Admission,
}

pub(super) struct Client {
    pub(super) edge: Edge,
    pub(super) requests: Requests,
    pub(super) door: Door,
    pub(super) outbox: Arc<Outbox>,
    pub(super) session: Option<Session>,
    rate: RateLimiter,
    bad_frames: u32,
    too_fast: u32,
    started: Instant,
    heard: Instant,
    /// Sent away: closed at this time.
    away_at: Option<Instant>,
    /// A time came nearer: the timer has to be set anew.
    pub(super) hurry: bool,
}

impl Client {
    pub(super) fn new(requests: Requests, door: Door, outbox: Arc<Outbox>) -> Self {
        let edge = requests.edge().clone();
        let rate = RateLimiter::new(&edge.book().node().limits);
        let now = Instant::now();
        Self {
            edge,
            requests,
            door,
            outbox,
            session: None,
            rate,
            bad_frames: 0,
            too_fast: 0,
            started: now,
            heard: now,
            away_at: None,
            hurry: false,
        }
    }

    pub(super) fn answer(&self, r#ref: Option<Ref>, body: ServerBody) {
        self.outbox.answer(&ServerFrame::new(r#ref, body));
    }

    /// Tells what went wrong; some things end the connection.
    pub(super) fn refuse(&self, r#ref: Option<Ref>, error: &EdgeError) -> Option<End> {
        self.outbox.answer(&error.reply(r#ref));
        error.code.close().map(End::Close)
    }

    /// Serves the client until one side ends it.
    pub(super) async fn serve(&mut self, source: &mut impl Source) -> End {
        let outbox = Arc::clone(&self.outbox);
        let timer = sleep_until(self.next_time());
        tokio::pin!(timer);
        loop {
            let end = tokio::select! {
                received = source.next() => match received {
                    Some(received) => match self.receive(received) {
                        Taken::Done(end) => end,
                        // On the heap, for as long as it takes: most of the time a connection
                        // is idle, and all of them together must be small.
                        Taken::Frame(frame) => Box::pin(self.take(frame)).await,
                    },
                    None => Some(End::Broken),
                },
                word = outbox.next_word() => self.hear(word),
                () = &mut timer => {
                    self.hurry = true;
                    self.ring()
                }
            };
            if let Some(end) = end {
                return end;
            }
            if std::mem::take(&mut self.hurry) {
                timer.as_mut().reset(self.next_time());
            }
        }
    }

    /// As they are now: they may have been read again.
    fn settings(&mut self) -> Arc<Settings> {
        let Some(session) = &mut self.session else {
            return self.edge.book().node();
        };
        let settings = self.edge.book().of(&session.caller.identity.tenant);
        if !Arc::ptr_eq(&settings, &session.caller.settings) {
            self.rate.retune(&settings.limits);
            session.caller.settings = Arc::clone(&settings);
            self.hurry = true;
        }
        settings
    }

    /// Takes what came in; what has to wait for something is handed back.
    fn receive(&mut self, received: Received) -> Taken {
        match self.read(received) {
            Ok(Some(frame)) if frame.is_beat() && self.session.is_some() => {
                self.answer(frame.r#ref, ServerBody::Ack);
                beats::one();
                Taken::Done(None)
            }
            Ok(Some(frame)) => Taken::Frame(frame),
            Ok(None) => Taken::Done(None),
            Err(end) => Taken::Done(end),
        }
    }

    /// The frame that came in, if it is one and may come; whether it ends the connection if not.
    fn read(&mut self, received: Received) -> Result<Option<ClientFrame>, Option<End>> {
        self.heard = Instant::now();
        let settings = self.settings();
        let frame = match received {
            Received::Alive => return self.spare(None),
            Received::Ping(payload) => return self.spare(Some(payload)),
            Received::Goodbye => return Err(Some(End::Goodbye)),
            Received::WrongType => return Err(Some(End::Close(Close::WrongType))),
            Received::Garbage(close) => return Err(Some(End::Close(close))),
            Received::TooLarge => {
                let limit = settings.limits.frame_bytes;
                let message = format!("the frame is too large: at most {limit} bytes are allowed");
                return Err(self.refuse(None, &EdgeError::new(Code::FrameTooLarge, message)));
            }
            Received::Bytes(bytes) => self.outbox.encoding().decode(bytes, &settings.frame),
            Received::Message(message) => protobuf::from_client(*message, &settings.frame),
        };
        let r#ref = match &frame {
            Ok(frame) => frame.r#ref.clone(),
            Err(error) => error.r#ref.clone(),
        };
        if let Err((error, enough)) = self.count() {
            let end = self.refuse(r#ref, &error.into());
            return Err(end.or(enough));
        }
        match frame {
            Ok(frame) => {
                self.bad_frames = 0;
                Ok(Some(frame))
            }
            Err(error) => Err(self.bad_frame(&error)),
        }
    }

    /// One message more. If it is one too many, also whether the client goes on regardless.
    fn count(&mut self) -> Result<(), (LimitError, Option<End>)> {
        if let Err(error) = self.rate.take(clock::steady_ms()) {
            self.too_fast += 1;
            let regardless = self.too_fast > TOO_FAST;
            return Err((error, regardless.then_some(End::Close(Close::TooMany))));
        }
        self.too_fast = self.too_fast.saturating_sub(1);
        Ok(())
    }

    /// Pings, which are echoed, and pongs: they count like frames, or whoever sends nothing else
    /// would never be told to stop. One too many is not answered.
    fn spare(&mut self, ping: Option<Bytes>) -> Result<Option<ClientFrame>, Option<End>> {
        self.count().map_err(|(_, enough)| enough)?;
        if let Some(payload) = ping {
            self.outbox.pong(payload);
        }
        Ok(None)
    }

    fn bad_frame(&mut self, error: &FrameError) -> Option<End> {
        self.bad_frames += 1;
        let end = self.refuse(error.r#ref.clone(), &EdgeError::from(error.fault.clone()));
        let enough = self.bad_frames >= BAD_FRAMES;
        end.or(enough.then_some(End::Close(Close::BadFrames)))
    }

    async fn take(&mut self, frame: ClientFrame) -> Option<End> {
        let r#ref = frame.r#ref.clone();
        let done = if self.session.is_some() {
            self.handle(frame).await
        } else {
            self.enter(frame).await
        };
        match done {
            Ok(end) => end,
            Err(error) => self.refuse(r#ref, &error),
        }
    }

    /// A session began: its tenant's settings hold from now on.
    pub(super) fn begin(&mut self, session: Session) {
        self.rate.retune(&session.caller.settings.limits);
        self.session = Some(session);
        self.door.brought = None;
        self.hurry = true;
    }

    /// What the store says of the session.
    fn hear(&mut self, word: Word) -> Option<End> {
        self.hear_of(None, word)
    }

    /// The same, in answer to a frame.
    pub(super) fn hear_of(&mut self, r#ref: Option<Ref>, word: Word) -> Option<End> {
        let Some(session) = self.session.as_mut() else {
            let message = "too many connections: this one had not said hello yet";
            let error = EdgeError::new(Code::TooManyConnections, message);
            let away = matches!(word, Word::Away);
            return away.then(|| self.refuse(r#ref, &error)).flatten();
        };
        let error = match word {
            Word::Recorded(kept) => {
                let done = session.acks.recorded(&kept.state);
                done.into_iter()
                    .for_each(|r| self.answer(r, ServerBody::Ack));
                return None;
            }
            Word::Closed(_) => return None,
            Word::Away => {
                self.send_away();
                return None;
            }
            Word::Replaced => EdgeError::new(
                Code::Replaced,
                "a newer connection of this device took over",
            ),
            Word::Superseded(conn) => EdgeError::superseded(conn),
            Word::Kicked => EdgeError::new(Code::Kicked, "closed by a service"),
        };
        session.ended = true;
        self.refuse(r#ref, &error)
    }

    /// Asks the client, once, to come back elsewhere; it is closed when the drain window has
    /// passed.
    pub(super) fn send_away(&mut self) {
        if self.away_at.is_some() {
            return;
        }
        let (body, _) = self.edge.reconnect();
        self.answer(None, body);
        self.away_at = Some(Instant::now() + self.edge.config().drain_window);
        self.hurry = true;
    }

    /// The next time at which something may have to be done.
    fn next_time(&self) -> Instant {
        let Some(session) = &self.session else {
            return self.started + self.edge.config().hello_within;
        };
        let silent = self.heard + session.caller.settings.times.ttl();
        let token = Instant::now() + self.token_left(session, !session.warned);
        let times = [Some(silent), Some(token), self.away_at, session.acks.next()];
        times.into_iter().flatten().min().unwrap_or(silent)
    }

    /// How long until the token ends, or until the client is to be told of that.
    fn token_left(&self, session: &Session, warning: bool) -> Duration {
        let ends = session.caller.identity.expires_at_ms;
        let left = Duration::from_millis(ends.saturating_sub(clock::wall_ms()));
        match warning {
            true => left.saturating_sub(self.edge.config().expiring),
            false => left,
        }
    }

    /// A time has come.
    fn ring(&mut self) -> Option<End> {
        let now = Instant::now();
        let Some(session) = &mut self.session else {
            let late = now >= self.started + self.edge.config().hello_within;
            let error = EdgeError::new(Code::Timeout, "no hello came in time");
            return late.then(|| self.refuse(None, &error)).flatten();
        };
        for r#ref in session.acks.late(now) {
            self.outbox
                .answer(&ServerFrame::new(r#ref, ServerBody::Ack));
        }
        let session = self.session.as_ref()?;
        if now >= self.heard + session.caller.settings.times.ttl() {
            let error = EdgeError::new(Code::Timeout, "nothing was heard for too long");
            return self.refuse(None, &error);
        }
        if self.away_at.is_some_and(|at| now >= at) {
            return Some(End::Close(Close::Drain));
        }
        let left = self.token_left(session, false);
        if left.is_zero() {
            let error = EdgeError::new(Code::TokenExpired, "the token has ended");
            return self.refuse(None, &error);
        }
        if !session.warned && left <= self.edge.config().expiring {
            let in_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.answer(None, ServerBody::Expiring { in_ms });
            if let Some(session) = &mut self.session {
                session.warned = true;
            }
        }
        None
    }

    /// The connection is over: what becomes of its session.
    pub(super) fn over(&mut self, end: End) {
        let Some(session) = self.session.take() else {
            return;
        };
        let own = Duration::from_millis(session.linger_ms.into());
        let linger = session.caller.settings.times.linger().min(own);
        let ending = match end {
            End::Close(Close::Timeout) => Ending {
                since: self.heard,
                ..Ending::new(Reason::Timeout, Duration::ZERO)
            },
            _ => Ending::new(Reason::Disconnect, linger),
        };
        let (key, conn) = (session.key, session.conn);
        self.edge.registry().remove(&key, conn, &self.outbox, || {
            if !session.ended {
                self.edge.end(key.clone(), conn, ending);
            }
        });
    }
}
