//! What all doors of a gateway share: who may come in, where sessions are held, where topics are
//! watched, and whether the gateway is about to go.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{Conn, IdError, NodeId, RoomId, SessionKey, Topic, hold::Word, store::Store};
use adsum_proto::{
    Check,
    client::{Encoding, frame::ServerBody},
};
use adsum_telemetry::metrics::metrics;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    EdgeError, Settings, SettingsBook, Sight,
    auth::{AuthError, Authenticator, Identity},
    clock,
    connection::{Stranger, Strangers},
    feed::Feed,
    holder::{Ending, Holder, HolderConfig, Tell},
    hub::{Hub, HubConfig},
    limits::Counters,
    outbox::{Bounds, Direct, Outbox},
    registry::Registry,
};

/// Before a shard that had too much to do is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// What the last goodbyes of a drain may take.
const LAST_CLOSES: Duration = Duration::from_secs(2);

/// What an edge is made of.
#[derive(Clone)]
pub struct EdgeParts {
    /// This node.
    pub node: NodeId,
    /// Where sessions live.
    pub store: Arc<dyn Store>,
    /// Where topics come from.
    pub feed: Feed,
    /// Who may come in.
    pub auth: Arc<Authenticator>,
    /// What tenants are held to and promised.
    pub book: Arc<SettingsBook>,
}

/// Times and bounds of a whole edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeConfig {
    /// How sessions are held.
    pub holder: HolderConfig,
    /// How topics are told.
    pub hub: HubConfig,
    /// A client that connects must say hello within this time.
    pub hello_within: Duration,
    /// How long before a token ends its client is told.
    pub expiring: Duration,
    /// Clients are sent away over this time when the gateway drains.
    pub drain_window: Duration,
    /// Answers that may wait for one client that does not read them; more, and it is closed.
    pub outbox_answers: usize,
    /// Entries of one topic that may wait for one client; more, and it gets a fresh state.
    pub outbox_entries: usize,
    /// What is asked of a store that does not answer for so long is answered as taken: it will
    /// be written.
    pub answer_within: Duration,
    /// Users that one request may name.
    pub users_per_request: usize,
    /// The longest page of members.
    pub page: usize,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        Self {
            holder: HolderConfig {
                renew: Duration::from_secs(5),
                calm: Duration::from_secs(10),
                stuck: Duration::from_secs(10),
                gather: Duration::ZERO,
                backlog: 10_000,
            },
            hub: HubConfig::default(),
            hello_within: Duration::from_secs(10),
            expiring: Duration::from_secs(30),
            drain_window: Duration::from_secs(20),
            outbox_answers: 1000,
            outbox_entries: 1000,
            answer_within: Duration::from_secs(2),
            users_per_request: 1000,
            page: 1000,
        }
    }
}

/// Somebody who came in: who they are, what they are held to, and what they may see.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Proved by a token.
    pub identity: Identity,
    /// Of their tenant, as of now.
    pub settings: Arc<Settings>,
    /// Their eyes.
    pub sight: Sight,
}

impl Caller {
    /// Whether a session of theirs may be in the room.
    pub(crate) fn may_join(&self, room: &RoomId) -> Result<(), EdgeError> {
        match self.identity.may_join(room) {
            true => Ok(()),
            false => Err(EdgeError::forbidden(format!(
                "the token does not allow to join room {room}"
            ))),
        }
    }

    /// Whether they may watch or read the topic.
    pub(crate) fn may_watch(&self, topic: &Topic) -> Result<(), EdgeError> {
        match self.identity.may_watch(topic) {
            true => Ok(()),
            false => Err(EdgeError::forbidden(format!(
                "the token does not allow to watch {topic}"
            ))),
        }
    }
}

/// The edge. Clones are the same one.
#[derive(Clone)]
pub struct Edge(Arc<Inner>);

struct Inner {
    parts: EdgeParts,
    config: EdgeConfig,
    holder: Holder,
    hub: Hub,
    registry: Arc<Registry>,
    counters: Arc<Counters>,
    strangers: Strangers,
    outbox_bounds: Arc<Bounds>,
    draining: CancellationToken,
    /// Clients that are served; a drain waits for them.
    connections: TaskTracker,
    tasks: TaskTracker,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edge").finish_non_exhaustive()
    }
}

impl Edge {
    /// Begins to hold sessions and to watch topics. To be called inside a runtime.
    ///
    /// # Errors
    /// When the node's id is too long to make incarnations of it.
    pub fn start(
        parts: EdgeParts,
        config: EdgeConfig,
        tasks: &TaskTracker,
    ) -> Result<Self, IdError> {
        let registry = Arc::new(Registry::default());
        let mail = Arc::clone(&registry);
        let tell: Tell = Arc::new(move |key, conn, word| mail.deliver(&key, conn, word));
        // Wall time: higher than any that this node used before its restart.
        let number = clock::wall_ms();
        let holder = Holder::start(
            Arc::clone(&parts.store),
            &parts.node,
            number,
            config.holder,
            &tell,
            tasks,
        )?;
        let checked = holder.clone();
        let check = move |Check { session, prefs }| {
            let asked = match prefs {
                Some(prefs) => checked.prefer(session, prefs),
                None => checked.check(session),
            };
            // If the shard is too busy: the next renewals notice a close, and a setting is known
            // again with the next open.
            asked.unwrap_or_default();
        };
        parts.feed.on_check(Arc::new(check));
        let feed = parts.feed.clone();
        holder.on_whole(Arc::new(move |shard, change| feed.foresee(shard, &change)));
        let hub = Hub::new(parts.feed.clone(), config.hub, tasks.clone());
        let outbox_bounds = Bounds {
            answers: u32::try_from(config.outbox_answers).unwrap_or(u32::MAX),
            entries: config.outbox_entries,
            peak: AtomicUsize::new(0),
        };
        Ok(Self(Arc::new(Inner {
            parts,
            config,
            holder,
            hub,
            registry,
            counters: Arc::default(),
            strangers: Strangers::default(),
            outbox_bounds: Arc::new(outbox_bounds),
            draining: CancellationToken::new(),
            connections: TaskTracker::new(),
            tasks: tasks.clone(),
        })))
    }

    /// Who is calling. `peer` is the other end of the connection itself.
    ///
    /// # Errors
    /// When the token is missing or not good.
    pub fn caller(&self, token: Option<&str>, peer: IpAddr) -> Result<Caller, EdgeError> {
        let now = clock::wall_ms();
        let token = token.ok_or(AuthError::Missing);
        let identity = token.and_then(|token| self.0.parts.auth.authenticate(token, peer, now));
        let identity = identity.inspect_err(|error| {
            metrics().auth_failures.of(error.into()).one();
        })?;
        let (settings, sight) = (self.book().of(&identity.tenant), Sight::of(&identity));
        Ok(Caller {
            identity,
            settings,
            sight,
        })
    }

    /// Where sessions live.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.parts.store
    }

    /// Where topics come from.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.0.parts.feed
    }

    /// What tenants are held to and promised.
    #[must_use]
    pub fn book(&self) -> &Arc<SettingsBook> {
        &self.0.parts.book
    }

    /// Times and bounds.
    #[must_use]
    pub fn config(&self) -> &EdgeConfig {
        &self.0.config
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.0.parts.node
    }

    /// Connections by node, tenant and user.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.0.counters
    }

    /// Counts a connection until it has said hello.
    pub(crate) fn stranger(&self, outbox: &Arc<Outbox>) -> Stranger {
        let known = self.counters().connections();
        let limit = self.book().node().limits.connections_per_node;
        self.0.strangers.enter(outbox, known, limit)
    }

    /// Cancelled when the gateway begins to drain.
    #[must_use]
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// Refuses newcomers once the gateway begins to drain.
    ///
    /// # Errors
    /// When it does.
    pub(crate) fn open(&self) -> Result<(), EdgeError> {
        match self.0.draining.is_cancelled() {
            true => Err(EdgeError::unavailable(
                "this gateway goes away; try another",
            )),
            false => Ok(()),
        }
    }

    /// Asks a client to come back elsewhere, at some time within the drain window.
    pub(crate) fn reconnect(&self) -> (ServerBody, Duration) {
        let window = self.0.config.drain_window;
        let spread = u64::try_from(window.as_millis()).unwrap_or(u64::MAX).max(1);
        let after_ms = rand::random_range(0..spread);
        let body = ServerBody::Reconnect { after_ms };
        (body, Duration::from_millis(after_ms))
    }

    /// An empty outbox, of a connection that can be written to directly or not.
    pub(crate) fn outbox(
        &self,
        encoding: Encoding,
        direct: Option<Arc<dyn Direct>>,
    ) -> Arc<Outbox> {
        Outbox::new(encoding, Arc::clone(&self.0.outbox_bounds), direct)
    }

    /// The most entries that ever waited for one client, of at most how many.
    #[must_use]
    pub fn outbox_peak(&self) -> (usize, usize) {
        let bounds = &self.0.outbox_bounds;
        (bounds.peak.load(Relaxed), bounds.together())
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.0.holder
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.0.connections
    }

    /// Sessions that are connected here.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.0.registry.len()
    }

    /// Topics that are watched through this gateway.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.0.hub.topics()
    }

    /// Ends a session in the store. A shard that has too much to do is asked again: a session
    /// that nobody ends would be held for ever.
    pub(crate) fn end(&self, key: SessionKey, conn: Conn, ending: Ending) {
        let holder = self.0.holder.clone();
        if holder.end_as(key.clone(), conn, ending.clone()).is_ok() {
            return;
        }
        let registry = Arc::clone(&self.0.registry);
        self.0.tasks.spawn(async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let back = registry.has(&key, conn);
                if back || holder.end_as(key.clone(), conn, ending.clone()).is_ok() {
                    return;
                }
            }
        });
    }

    /// Sends all clients away over the drain window, and leaves a deadline behind by which they
    /// have to turn up elsewhere. Returns when all are gone, or when the window has passed.
    pub async fn drain(&self) {
        let config = self.config();
        self.0.draining.cancel();
        self.0.registry.tell_all(&Word::Away);
        let linger = self.book().longest_linger();
        self.0.holder.drain(config.drain_window + linger).await;
        self.0.connections.close();
        let gone = self.0.connections.wait();
        let _ = tokio::time::timeout(config.drain_window + LAST_CLOSES, gone).await;
    }
}
