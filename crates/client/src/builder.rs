//! How a client is set up.

use std::{net::IpAddr, sync::Arc, time::Duration};

use adsum_core::{Activity, DeviceId, Kind, Manual, Meta, RoomId, Topic};
use adsum_proto::client::{
    Encoding,
    frame::{Mode, Patch, Token},
};
use tokio::sync::{mpsc, watch};

use crate::{
    Client, ConfigError, Error, Events, State, Timing, Tls,
    client::Handle,
    driver::Driver,
    endpoint::Endpoint,
    link::Route,
    queue::queue,
    session::{Book, Intent, Numbers, Session},
    tokens::{TokenError, TokenFuture, Tokens},
};

/// What is spoken on the line. One behaviour, whichever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A WebSocket, with frames as JSON or as protobuf.
    WebSocket(Encoding),
    /// A gRPC stream.
    Grpc,
}

/// Everything that a try needs to know.
pub(crate) struct Config {
    pub(crate) routes: Vec<Route>,
    pub(crate) timing: Timing,
}

/// Collects what a client is to be. Made by [`Client::builder`].
#[derive(Clone)]
#[must_use]
pub struct Builder {
    endpoints: Vec<String>,
    transport: Transport,
    tls: Option<Tls>,
    local: Option<IpAddr>,
    tokens: Tokens,
    device: Option<DeviceId>,
    intent: Intent,
    timing: Timing,
    capacity: usize,
    frame_bytes: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            transport: Transport::default(),
            tls: None,
            local: None,
            tokens: Tokens::None,
            device: None,
            intent: Intent::default(),
            timing: Timing::default(),
            capacity: 1024,
            frame_bytes: 64 * 1024 * 1024,
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("endpoints", &self.endpoints)
            .field("transport", &self.transport)
            .field("device", &self.device)
            .field("intent", &self.intent)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Adds a server: `ws://`, `wss://`, `http://` or `https://`. The scheme says whether there
    /// is TLS, and nothing else. With several, a random one is tried first and the next one at
    /// each reconnect.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoints.push(endpoint.into());
        self
    }

    /// Adds servers.
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.endpoints.extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// What to speak; a WebSocket with JSON by default.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// How to trust servers; the common public authorities by default.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Connects from this address of the machine.
    pub fn local_address(mut self, address: IpAddr) -> Self {
        self.local = Some(address);
        self
    }

    /// One token for ever. When it ends, so does the client.
    pub fn token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.tokens = Tokens::Fixed(Token::new(token));
        self
    }

    /// Gets tokens: one for each connection, and one in place when the server says that the last
    /// one ends.
    pub fn token_provider<F, R>(mut self, provider: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, TokenError>> + Send + 'static,
    {
        let provider = move || -> TokenFuture {
            let token = provider();
            Box::pin(async move { token.await.map(Token::new) })
        };
        self.tokens = Tokens::Provider(Arc::new(provider));
        self
    }

    /// Which device of the user this is. By default the server makes one up, and the client
    /// keeps it as long as it lives.
    pub fn device(mut self, device: DeviceId) -> Self {
        self.device = Some(device);
        self
    }

    /// What sort of device; `other` by default.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.intent.kind = kind;
        self
    }

    /// What the device reports at first.
    pub fn activity(mut self, activity: Activity) -> Self {
        self.intent.activity = activity;
        self
    }

    /// Sets the user's manual status, or clears it, with the first connection. Not again later:
    /// another device may have changed it since.
    pub fn status(mut self, status: Option<Manual>) -> Self {
        self.intent.status = status.map_or(Patch::Clear, Patch::Set);
        self
    }

    /// About the session.
    pub fn meta(mut self, meta: Meta) -> Self {
        self.intent.meta = Some(meta);
        self
    }

    /// How long nobody is told when a connection breaks, if that is less than what the server has
    /// set for the tenant. A client that is back by then was never away.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.intent.linger_ms = Some(u64::try_from(linger.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// A room to be in.
    pub fn room(mut self, room: RoomId) -> Self {
        self.intent.rooms.insert(room, None);
        self
    }

    /// A room to be in, with a `meta` there.
    pub fn room_with(mut self, room: RoomId, meta: Meta) -> Self {
        self.intent.rooms.insert(room, Some(meta));
        self
    }

    /// A topic to watch.
    pub fn watch(mut self, topic: Topic, mode: Mode) -> Self {
        self.intent.watches.insert(topic, mode);
        self
    }

    /// Everything about time.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// So many events wait for the app as they are; beyond that they are folded. 1,024 by default.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// The largest frame that is taken from a server; 64 MiB by default.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.frame_bytes = bytes;
        self
    }

    /// Starts the client; it connects by itself and stays connected. Needs a tokio runtime.
    ///
    /// # Errors
    /// When it can't be built like this.
    pub fn spawn(self) -> Result<(Client, Events), ConfigError> {
        let config = Config {
            routes: self.routes()?,
            timing: self.timing,
        };
        let book = Arc::new(Book::default());
        let session = Session::new(
            self.timing,
            self.intent,
            Numbers::new(self.device),
            book.clone(),
            matches!(self.tokens, Tokens::Provider(_)),
            rand::random(),
        );
        let (queue, events) = queue(self.capacity);
        let (commands, orders) = mpsc::channel(32);
        let (tell, state) = watch::channel(State::Connecting);
        let driver = Driver::new(config, self.tokens, session, queue, orders, tell);
        tokio::spawn(driver.run());
        let handle = Handle {
            commands,
            state,
            book,
        };
        Ok((Client::new(handle), events))
    }

    /// Starts the client and waits until it is connected.
    ///
    /// # Errors
    /// When it can't be built like this, or was turned away for good. While no server answers,
    /// it keeps trying.
    pub async fn connect(self) -> Result<(Client, Events), ConnectError> {
        let (client, events) = self.spawn()?;
        client.online().await?;
        Ok((client, events))
    }

    fn routes(&self) -> Result<Vec<Route>, ConfigError> {
        if self.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoint);
        }
        let endpoints = self.endpoints.iter().map(|e| e.parse::<Endpoint>());
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let tls = match &self.tls {
            Some(tls) => Some(tls.clone()),
            None if endpoints.iter().any(|e| e.secure) => Some(Tls::public()?),
            None => None,
        };
        let route = |endpoint| Route {
            endpoint,
            transport: self.transport,
            tls: tls.clone(),
            local: self.local,
            frame_bytes: self.frame_bytes,
        };
        Ok(endpoints.into_iter().map(route).collect())
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// It can't be built like this.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It was turned away.
    #[error(transparent)]
    Client(#[from] Error),
}
