//! What each frame does once the client is in.

use std::{sync::Arc, time::Duration};

use adsum_core::{Membership, Reason, RoomId, State, Topic, hold::Word};
use adsum_proto::client::{
    Close, Code, Patch, Ref, Token,
    frame::{ClientBody, ClientFrame, Join, ServerBody, Set, Watch},
};
use adsum_telemetry::trace::{self, Span, origin};
use tokio::time::{Instant, timeout};

use super::{
    client::{Client, End, Session},
    hello::watched,
};
use crate::{
    EdgeError,
    holder::Ending,
    hub::{Asked, Watcher},
};

type Done = Result<Option<End>, EdgeError>;

impl Client {
    pub(super) async fn handle(&mut self, frame: ClientFrame) -> Done {
        let r#ref = frame.r#ref;
        let span = match &frame.body {
            ClientBody::Join(_) | ClientBody::Part(_) | ClientBody::Set(_) | ClientBody::Leave => {
                trace::begin(frame.body.word(), frame.traceparent.as_deref())
            }
            _ => None,
        };
        match frame.body {
            ClientBody::Heartbeat => self.answer(r#ref, ServerBody::Ack),
            ClientBody::Hello(_) => {
                let message = "there was a hello already on this connection";
                return Err(EdgeError::new(Code::HelloRepeated, message));
            }
            ClientBody::Join(join) => self.join(join, r#ref, span)?,
            ClientBody::Part(room) => self.part(&room, r#ref, span)?,
            ClientBody::Set(set) => self.set(set, r#ref, span).await?,
            ClientBody::Watch(watch) => self.watch(watch, r#ref)?,
            ClientBody::Unwatch(topics) => self.unwatch(&topics, r#ref),
            ClientBody::Refresh(token) => self.refresh(&token, r#ref)?,
            ClientBody::Leave => return Ok(Some(self.leave(r#ref, span).await)),
        }
        Ok(None)
    }

    /// Only called once there is one.
    fn session(&mut self) -> Result<&mut Session, EdgeError> {
        let missing = || EdgeError::new(Code::HelloExpected, "say hello first");
        self.session.as_mut().ok_or_else(missing)
    }

    /// Tells the store the session's new state; the answer follows when it has it.
    fn change(
        &mut self,
        state: State,
        r#ref: Option<Ref>,
        span: Option<Span>,
    ) -> Result<(), EdgeError> {
        let late_at = Instant::now() + self.edge.config().answer_within;
        let holder = self.edge.holder().clone();
        let session = self.session()?;
        session.caller.settings.limits.session().check(&state)?;
        let (key, conn) = (session.key.clone(), session.conn);
        holder.set(key, conn, state.clone(), Some(origin(span.as_ref())))?;
        session.state = state.clone();
        session.acks.wait(r#ref, state, late_at, span);
        self.hurry = true;
        Ok(())
    }

    fn join(
        &mut self,
        join: Join,
        r#ref: Option<Ref>,
        span: Option<Span>,
    ) -> Result<(), EdgeError> {
        let session = self.session()?;
        session.caller.may_join(&join.room)?;
        let mut state = session.state.clone();
        let stay = state.rooms.entry(join.room).or_insert(Membership {
            since: 0,
            meta: None,
        });
        stay.meta = join.meta;
        self.change(state, r#ref, span)
    }

    fn part(
        &mut self,
        room: &RoomId,
        r#ref: Option<Ref>,
        span: Option<Span>,
    ) -> Result<(), EdgeError> {
        let mut state = self.session()?.state.clone();
        if state.rooms.remove(room).is_none() {
            self.answer(r#ref, ServerBody::Ack);
            return Ok(());
        }
        self.change(state, r#ref, span)
    }

    async fn set(
        &mut self,
        set: Set,
        r#ref: Option<Ref>,
        span: Option<Span>,
    ) -> Result<(), EdgeError> {
        let session = self.session()?;
        let key = session.key.clone();
        let mut state = session.state.clone();
        state.activity = set.activity.unwrap_or(state.activity);
        state.meta = set.meta.apply(state.meta.take());
        session.caller.settings.limits.session().check(&state)?;
        let changed = state != session.state;
        if set.status != Patch::Keep {
            let write = self.prefer_status(&key, set.status.apply(None));
            trace::inside(span.as_ref().map(|span| span.context), write).await?;
        }
        if changed {
            return self.change(state, r#ref, span);
        }
        self.answer(r#ref, ServerBody::Ack);
        Ok(())
    }

    pub(super) fn watch(&mut self, watch: Watch, r#ref: Option<Ref>) -> Result<(), EdgeError> {
        let (edge, outbox) = (self.edge.clone(), Arc::clone(&self.outbox));
        let session = self.session()?;
        session.caller.may_watch(&watch.topic)?;
        let asked = Asked {
            mode: watch.mode,
            digest: watch.digest,
            r#ref,
        };
        if let Some(subscription) = session.watches.get(&watch.topic) {
            subscription.again(asked);
            return Ok(());
        }
        let topics = session.watches.keys().chain([&watch.topic]);
        watched(&session.caller.settings.limits, topics)?;
        let sight = session.caller.sight.clone();
        let watcher = Watcher {
            outbox,
            sight,
            asked,
        };
        let tenant = &session.caller.identity.tenant;
        let subscription = edge.hub().watch(tenant, watch.topic.clone(), watcher);
        session.watches.insert(watch.topic, subscription);
        Ok(())
    }

    fn unwatch(&mut self, topics: &[Topic], r#ref: Option<Ref>) {
        if let Some(session) = &mut self.session {
            session.watches.retain(|topic, _| !topics.contains(topic));
        }
        self.answer(r#ref, ServerBody::Ack);
    }

    fn refresh(&mut self, token: &Token, r#ref: Option<Ref>) -> Result<(), EdgeError> {
        let caller = self.edge.caller(Some(token.expose()), self.door.peer)?;
        let session = self.session()?;
        let changes = session.caller.identity.refreshed_by(&caller.identity)?;
        let lost = changes.topics_lost(session.watches.keys());
        let rooms = changes.rooms_lost(session.state.rooms.keys());
        let other_eyes = changes.sight_changed();
        session.caller = caller;
        session.warned = false;
        session.watches.retain(|topic, _| !lost.contains(topic));
        if other_eyes {
            let sight = &session.caller.sight;
            session.watches.values().for_each(|w| w.look(sight.clone()));
        }
        for topic in lost {
            let message = format!("the new token does not allow to watch {topic}");
            self.refuse(None, &EdgeError::forbidden(message));
        }
        self.hurry = true;
        if rooms.is_empty() {
            self.answer(r#ref, ServerBody::Ack);
            return Ok(());
        }
        let mut state = self.session()?.state.clone();
        state.rooms.retain(|room, _| !rooms.contains(room));
        self.change(state, r#ref, None)
    }

    /// Goodbye: answered when the store has it.
    async fn leave(&mut self, r#ref: Option<Ref>, span: Option<Span>) -> End {
        let within = self.edge.config().answer_within;
        if let Some(session) = &mut self.session {
            session.ended = true;
            session.watches.clear();
            let (key, conn) = (session.key.clone(), session.conn);
            let ending = Ending {
                origin: Some(origin(span.as_ref())),
                ..Ending::new(Reason::Leave, Duration::ZERO)
            };
            self.edge.end(key, conn, ending);
            let outbox = &self.outbox;
            let closed = async { while !matches!(outbox.next_word().await, Word::Closed(_)) {} };
            // The store gets it all the same, if later.
            let _ = timeout(within, closed).await;
        }
        self.answer(r#ref, ServerBody::Ack);
        End::Close(Close::Left)
    }
}
