//! The task of a client: waits for whatever comes first, hands it to the session, and sends what
//! the session says. All that is decided here is which connection there is.

mod wait;

use std::{pin::Pin, time::Duration};

use adsum_proto::client::frame::{ClientBody, Token};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use crate::{
    EndReason, State,
    builder::Config,
    client::Command,
    link::{Incoming, Link},
    open::{Opened, cause, open},
    queue::Queue,
    session::{Backoff, Cause, Session, Signal, Verdict},
    tokens::{TokenError, Tokens},
};

use wait::Happened;

type Soon<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Fetched = Result<Option<Token>, TokenError>;

/// A client at work.
pub(crate) struct Driver {
    config: Config,
    tokens: Tokens,
    session: Session,
    queue: Queue,
    orders: mpsc::Receiver<Box<Command>>,
    tell: watch::Sender<State>,
    link: Option<Link>,
    /// Writing failed. What the server said before may still be read, and may say why.
    mute: bool,
    since: Instant,
    backoff: Backoff,
    route: usize,
    dial_at: Option<Instant>,
    dial: Option<Soon<Result<Opened, Cause>>>,
    fetch: Option<Soon<Fetched>>,
    /// Set by tests only: reads nothing, sends nothing.
    deaf: bool,
    dumb: bool,
}

impl Driver {
    pub(crate) fn new(
        config: Config,
        tokens: Tokens,
        mut session: Session,
        queue: Queue,
        orders: mpsc::Receiver<Box<Command>>,
        tell: watch::Sender<State>,
    ) -> Self {
        let now = Instant::now();
        let timing = config.timing;
        Self {
            // Each client starts elsewhere, so that a crowd spreads over the gateways.
            route: session.jitter().next() as usize % config.routes.len().max(1),
            backoff: Backoff::new(timing.backoff_min, timing.backoff_max),
            config,
            tokens,
            session,
            queue,
            orders,
            tell,
            link: None,
            mute: false,
            since: now,
            dial_at: Some(now),
            dial: None,
            fetch: None,
            deaf: false,
            dumb: false,
        }
    }

    /// Runs until the client is over.
    pub(crate) async fn run(mut self) {
        let reason = loop {
            let end = self.turn().await;
            self.queue.extend(self.session.take_events());
            if let Some(reason) = end {
                break reason;
            }
        };
        tracing::debug!(%reason, "client ended");
        self.link = None;
        self.session.end(&reason);
        self.queue.extend(self.session.take_events());
        self.tell.send_replace(State::Ended(reason));
    }

    async fn turn(&mut self) -> Option<EndReason> {
        let happened = self.wait().await;
        let now = Instant::now();
        let signal = match happened {
            Happened::Order(None) => return Some(EndReason::ClosedByApp),
            Happened::Order(Some(command)) => self.order(now, *command),
            Happened::Opened(result) => return self.opened(now, *result).await,
            Happened::Incoming(Incoming::Frame(frame)) => self.session.frame(now, *frame),
            Happened::Incoming(end) => Some(Signal::Over(cause(end))),
            Happened::Fetched(token) => self.fetched(now, token),
            Happened::Time => None,
        };
        let end = signal.and_then(|signal| self.signal(now, signal));
        if end.is_some() {
            return end;
        }
        self.go_on(now).await
    }

    /// What the time asks for, and what there is to send.
    async fn go_on(&mut self, now: Instant) -> Option<EndReason> {
        if self.dial_at.is_some_and(|at| at <= now) {
            self.start();
        }
        if self.dumb {
            return None;
        }
        let signal = self.session.tick(now);
        let end = signal.and_then(|signal| self.signal(now, signal));
        self.flush().await;
        end
    }

    fn order(&mut self, now: Instant, command: Command) -> Option<Signal> {
        match command {
            Command::Call(body, done) => {
                if let ClientBody::Unwatch(topics) = &body {
                    // Before anything new of a later watch can come.
                    self.queue.extend(self.session.take_events());
                    topics.iter().for_each(|topic| self.queue.forget(topic));
                }
                self.session.call(now, body, done);
            }
            Command::Token(token, done) => {
                if !matches!(self.tokens, Tokens::Provider(_)) {
                    self.tokens = Tokens::Fixed(token.clone());
                }
                self.session.call(now, ClientBody::Refresh(token), done);
            }
            Command::Close => return Some(Signal::End(EndReason::ClosedByApp)),
            #[cfg(feature = "testing")]
            Command::Sever => {
                self.link.as_ref()?;
                return Some(Signal::Over(Cause::Broken("severed".into())));
            }
            #[cfg(feature = "testing")]
            Command::Freeze(freeze) => (self.deaf, self.dumb) = (freeze.reading, freeze.beating),
        }
        None
    }

    fn signal(&mut self, now: Instant, signal: Signal) -> Option<EndReason> {
        match signal {
            Signal::End(reason) => return Some(reason),
            Signal::Over(cause) => return self.over(now, cause),
            Signal::Drain(after) => {
                // Never later than was planned already: calls may wait for it.
                if self.dial.is_none() {
                    let at = now + after;
                    self.dial_at = Some(self.dial_at.map_or(at, |planned| planned.min(at)));
                }
            }
            Signal::Expiring(_) => self.fetch(Duration::ZERO),
        }
        None
    }

    /// The connection is gone.
    fn over(&mut self, now: Instant, cause: Cause) -> Option<EndReason> {
        tracing::debug!(?cause, "connection lost");
        self.link = None;
        self.fetch = None;
        if now.duration_since(self.since) >= self.config.timing.stable_after {
            self.backoff.reset();
        }
        match self.session.lost(cause) {
            // Our own next connection has just replaced this one.
            Verdict::End(EndReason::Replaced) if self.dial.is_some() => {}
            Verdict::End(reason) => return Some(reason),
            // The next one is on its way, or was told when to come.
            Verdict::Again { .. } if self.dial.is_some() || self.dial_at.is_some() => {}
            again => self.again(now, &again),
        }
        let state = match self.dial {
            Some(_) => State::Connecting,
            None => State::Waiting,
        };
        self.tell.send_replace(state);
        None
    }

    fn again(&mut self, now: Instant, verdict: &Verdict) {
        let Verdict::Again { after, at_once } = verdict else {
            return;
        };
        let delay = match at_once {
            true => Duration::ZERO,
            false => self.backoff.next(self.session.jitter()).max(*after),
        };
        self.dial_at = Some(now + delay);
    }

    /// Starts a try, with another server than the last time if there are several.
    fn start(&mut self) {
        self.dial_at = None;
        let Some(route) = self.config.routes.get(self.route).cloned() else {
            // There is one: the builder refuses an empty list.
            return;
        };
        self.route = (self.route + 1) % self.config.routes.len();
        tracing::debug!(endpoint = %route.endpoint.name, "connecting");
        let hello = self.session.hello(crate::clock::wall_ms());
        let (tokens, timing) = (self.tokens.clone(), self.config.timing);
        self.dial = Some(Box::pin(open(route, tokens, timing, hello)));
        if self.link.is_none() {
            self.tell.send_replace(State::Connecting);
        }
    }

    async fn opened(&mut self, now: Instant, result: Result<Opened, Cause>) -> Option<EndReason> {
        let opened = match result {
            Ok(opened) => opened,
            Err(cause) => {
                let end = self.failed(now, cause);
                return if end.is_some() {
                    end
                } else {
                    self.go_on(now).await
                };
            }
        };
        // Whatever was connected before is dropped here, without a goodbye.
        self.link = Some(opened.link);
        self.mute = false;
        self.since = now;
        let endpoint = opened.endpoint;
        self.session.opened(now, endpoint.clone(), &opened.welcome);
        self.queue.extend(self.session.take_events());
        self.tell.send_replace(State::Online {
            endpoint,
            device: opened.welcome.device,
            conn: opened.welcome.conn,
        });
        self.go_on(now).await
    }

    fn failed(&mut self, now: Instant, cause: Cause) -> Option<EndReason> {
        tracing::debug!(?cause, "try failed");
        match self.session.failed(now, cause) {
            Verdict::End(reason) => return Some(reason),
            again => self.again(now, &again),
        }
        if self.link.is_none() {
            self.tell.send_replace(State::Waiting);
        }
        None
    }

    fn fetch(&mut self, after: Duration) {
        if matches!(self.tokens, Tokens::Provider(_)) {
            let tokens = self.tokens.clone();
            self.fetch = Some(Box::pin(async move {
                sleep(after).await;
                tokens.get().await
            }));
        }
    }

    fn fetched(&mut self, now: Instant, token: Fetched) -> Option<Signal> {
        match token {
            Ok(token) => self.session.refresh(now, token?),
            Err(error) => {
                tracing::warn!(%error, "no new token");
                self.fetch(self.config.timing.resync_after);
            }
        }
        None
    }

    /// Sends what there is to send. When that fails, the reading side says why.
    async fn flush(&mut self) {
        let limit = self.config.timing.ack_timeout;
        for frame in self.session.take_out() {
            let Some(link) = self.link.as_mut().filter(|_| !self.mute) else {
                return;
            };
            let sent = timeout(limit, link.send(&frame)).await;
            self.mute = !matches!(sent, Ok(Ok(())));
        }
    }
}
