//! The way in: who comes, whether they may, and what their session is to be.

use adsum_core::{Conn, DeviceId, SessionKey, Topic, UserKey, hold::Word};
use adsum_proto::client::{
    Close, Code, Patch, Ref,
    frame::{ClientBody, ClientFrame, Hello, ServerBody, Welcome},
};
use adsum_telemetry::trace::{self, origin};
use litemap::LiteMap;
use tokio::time::timeout;

use super::client::{Client, End, Session};
use crate::{Caller, EdgeError, clock, limits::EdgeLimits};

impl Client {
    /// The first frame.
    pub(super) async fn enter(&mut self, frame: ClientFrame) -> Result<Option<End>, EdgeError> {
        let ClientBody::Hello(hello) = frame.body else {
            let message = format!("say hello before {}", frame.body.word());
            return Err(EdgeError::new(Code::HelloExpected, message));
        };
        let parent = frame.traceparent.as_deref();
        let brought = self.door.brought.as_deref();
        let parent = parent.or_else(|| brought?.trace.as_deref());
        let span = trace::begin("hello", parent);
        let token = hello.token.as_ref().map(|token| token.expose());
        let token = token.or_else(|| brought?.token.as_deref());
        let caller = self.edge.caller(token, self.door.peer)?;
        if self.edge.draining().is_cancelled() {
            let body = ServerBody::Reconnect { after_ms: 0 };
            self.answer(frame.r#ref, body);
            return Ok(Some(End::Close(Close::Drain)));
        }
        check(&hello, &caller)?;
        let session = self.open(&hello, caller)?;
        if let Patch::Set(_) | Patch::Clear = hello.status {
            self.check_newest(&session).await?;
            // Before anybody sees the session: who comes invisible is never seen.
            let status = hello.status.apply(None);
            let write = self.prefer_status(&session.key, status);
            trace::inside(span.as_ref().map(|span| span.context), write).await?;
        }
        let (key, conn) = (session.key.clone(), session.conn);
        let origin = Some(origin(span.as_ref()));
        let state = session.state.clone();
        let (registry, holder) = (self.edge.registry(), self.edge.holder());
        registry.add(&key, conn, &self.outbox, || {
            holder.hello(key.clone(), conn, state, origin)
        })?;
        let welcome = welcome(&session);
        self.begin(session);
        if let Some(end) = self.recorded(frame.r#ref.as_ref()).await {
            return Ok(Some(end));
        }
        self.answer(frame.r#ref, ServerBody::Welcome(welcome));
        for watch in hello.watch {
            self.watch(watch, None)?;
        }
        // A drain that began meanwhile may not have met this one.
        if self.edge.draining().is_cancelled() {
            self.send_away();
        }
        Ok(None)
    }

    fn open(&self, hello: &Hello, caller: Caller) -> Result<Session, EdgeError> {
        let user = caller.identity.user.clone();
        let Some(user) = user else {
            return Err(EdgeError::forbidden(
                "the token names no user, so nobody can be present with it; services watch",
            ));
        };
        let tenant = caller.identity.tenant.clone();
        let limits = &caller.settings.limits;
        let admission = self.edge.counters().admit(&tenant, Some(&user), limits)?;
        let (device, conn) = name(hello)?;
        Ok(Session {
            key: SessionKey::new(UserKey::new(tenant, user), device),
            conn,
            state: hello.state(),
            watches: LiteMap::with_capacity(hello.watch.len()),
            acks: Default::default(),
            linger_ms: hello
                .linger_ms
                .map_or(u32::MAX, |ms| ms.try_into().unwrap_or(u32::MAX)),
            warned: false,
            ended: false,
            _admission: admission,
            caller,
        })
    }

    /// Refuses a connection that comes after a newer one of its device. The store would do so, too,
    /// but what a hello sets besides is written before.
    async fn check_newest(&self, session: &Session) -> Result<(), EdgeError> {
        let owner = std::slice::from_ref(&session.key.owner);
        let store = self.edge.store();
        let within = self.edge.config().answer_within;
        // If it does not answer now, the write that follows says so.
        let Ok(Ok(users)) = timeout(within, store.read(owner)).await else {
            return Ok(());
        };
        let people = users.into_iter().filter_map(|user| user.person);
        let mut devices = people.filter_map(|mut p| p.sessions.remove(&session.key.device));
        match devices.next() {
            Some(known) if known.stamp.conn > session.conn => {
                Err(EdgeError::superseded(known.stamp.conn))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the store has the session, but not for long: a shard that is away keeps
    /// nobody out, and gets the session when it is back.
    async fn recorded(&mut self, r#ref: Option<&Ref>) -> Option<End> {
        let outbox = std::sync::Arc::clone(&self.outbox);
        let within = self.edge.config().answer_within;
        let word = timeout(within, outbox.next_word()).await;
        match word {
            Ok(Word::Recorded(_)) | Err(_) => None,
            Ok(word) => self.hear_of(r#ref.cloned(), word),
        }
    }

    /// Sets or clears the user's manual status.
    pub(super) async fn prefer_status(
        &self,
        key: &SessionKey,
        status: Option<adsum_core::Manual>,
    ) -> Result<(), EdgeError> {
        let preference = adsum_core::Preference::Status(status);
        let write = self.requests.prefer(&key.owner, &preference);
        let within = self.edge.config().answer_within;
        let prefs = timeout(within, write).await.unwrap_or_else(|_| {
            Err(EdgeError::unavailable(
                "the part of the store that keeps this user does not answer; try again",
            ))
        })?;
        // Carried from now on when the session is opened again; if the shard is too busy to
        // hear it, the store has it all the same.
        let _ = self.edge.holder().prefer(key.clone(), prefs);
        Ok(())
    }
}

/// What the token and the tenant's limits say to a hello.
fn check(hello: &Hello, caller: &Caller) -> Result<(), EdgeError> {
    let limits = &caller.settings.limits;
    limits.session().check(&hello.state())?;
    for join in &hello.rooms {
        caller.may_join(&join.room)?;
    }
    let topics: Vec<_> = hello.watch.iter().map(|w| &w.topic).collect();
    for topic in &topics {
        caller.may_watch(topic)?;
    }
    watched(limits, topics.into_iter())
}

/// Whether so many topics may be watched.
pub(crate) fn watched<'t>(
    limits: &EdgeLimits,
    topics: impl Iterator<Item = &'t Topic>,
) -> Result<(), EdgeError> {
    let (mut users, mut others) = (0, 0);
    for topic in topics {
        match topic {
            Topic::User(_) => users += 1,
            Topic::Room(_) | Topic::Tenant => others += 1,
        }
    }
    Ok(limits.check_watched(others, users)?)
}

/// The session's name: as given, or made up.
fn name(hello: &Hello) -> Result<(DeviceId, Conn), EdgeError> {
    let device = match &hello.device {
        Some(device) => device.clone(),
        None => DeviceId::new(format!("d-{:016x}", rand::random::<u64>()))?,
    };
    let conn = match hello.conn {
        Some(conn) => conn,
        None => Conn::new(clock::wall_ms())?,
    };
    Ok((device, conn))
}

fn welcome(session: &Session) -> Welcome {
    let times = &session.caller.settings.times;
    Welcome {
        user: session.key.owner.user.clone(),
        device: session.key.device.clone(),
        conn: session.conn,
        heartbeat_ms: times.beat_ms(),
        ttl_ms: times.session_ttl_ms,
        server_time: clock::wall_ms(),
    }
}
