//! Watching without being present: what a service's stream and a browser's event source have in
//! common. The same states and diffs as on a connection; it ends with its token.

use std::{collections::HashMap, sync::Arc};

use adsum_core::Topic;
use adsum_proto::client::{
    Close, Code, Encoding,
    frame::{ServerFrame, Watch},
};
use bytes::Bytes;
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    Caller, Edge, EdgeError, clock,
    connection::hello::watched,
    hub::{Asked, Subscription, Watcher},
    limits::Admission,
    outbox::Outbox,
};

/// One that watches.
#[derive(Debug)]
pub(crate) struct Observer {
    edge: Edge,
    outbox: Arc<Outbox>,
    caller: Caller,
    ends: Instant,
    away_at: Option<Instant>,
    over: bool,
    _watches: HashMap<Topic, Subscription>,
    _admission: Admission,
}

/// What an observer gets.
#[derive(Debug)]
pub(crate) enum Told {
    /// Frames, in order.
    Frames(Vec<Bytes>),
    /// It is over, and why.
    Over(Close),
}

impl Observer {
    /// Begins to watch.
    pub(crate) fn open(
        edge: &Edge,
        caller: Caller,
        encoding: Encoding,
        watches: Vec<Watch>,
    ) -> Result<Self, EdgeError> {
        edge.open()?;
        let limits = &caller.settings.limits;
        watched(limits, watches.iter().map(|w| &w.topic))?;
        for watch in &watches {
            caller.may_watch(&watch.topic)?;
        }
        let identity = &caller.identity;
        let (tenant, user) = (&identity.tenant, identity.user.as_ref());
        let admission = edge.counters().admit(tenant, user, limits)?;
        let outbox = edge.outbox(encoding, None);
        let begin = |watch: Watch| {
            let asked = Asked {
                mode: watch.mode,
                digest: watch.digest,
                r#ref: None,
            };
            let watcher = Watcher {
                outbox: Arc::clone(&outbox),
                sight: caller.sight.clone(),
                asked,
            };
            let topic = watch.topic.clone();
            (watch.topic, edge.hub().watch(tenant, topic, watcher))
        };
        let watches = watches.into_iter().map(begin).collect();
        let left = identity.expires_at_ms.saturating_sub(clock::wall_ms());
        Ok(Self {
            edge: edge.clone(),
            ends: Instant::now() + Duration::from_millis(left),
            outbox,
            away_at: None,
            over: false,
            _watches: watches,
            _admission: admission,
            caller,
        })
    }

    /// The next frames; `None` when it is over. Safe to drop half-way.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        while !self.over {
            let draining = self.edge.draining().clone();
            let until = self.away_at.map_or(self.ends, |at| at.min(self.ends));
            tokio::select! {
                () = self.outbox.wait() => {}
                () = sleep_until(until) => self.ring(),
                () = draining.cancelled(), if self.away_at.is_none() => self.send_away(),
            }
            let batch = self.outbox.take();
            for (topic, watcher) in batch.dirty {
                topic.restate(watcher);
            }
            if !batch.writes.frames.is_empty() {
                return Some(Told::Frames(batch.writes.frames));
            }
            if let Some(close) = batch.close {
                self.over = true;
                return Some(Told::Over(close));
            }
        }
        None
    }

    /// How often something should be said on a quiet line.
    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.caller.settings.times.heartbeat_ms)
    }

    fn ring(&mut self) {
        if Instant::now() >= self.ends {
            let error = EdgeError::new(Code::TokenExpired, "the token has ended");
            self.outbox.answer(&error.reply(None));
            self.outbox.close(Close::TokenExpired);
        } else {
            self.outbox.close(Close::Drain);
        }
    }

    fn send_away(&mut self) {
        let (body, after) = self.edge.reconnect();
        self.outbox.answer(&ServerFrame::new(None, body));
        // It can't be told to move by itself: the end of the stream does.
        self.away_at = Some(Instant::now() + after);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.outbox.abandon();
    }
}
