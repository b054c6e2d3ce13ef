//! A whole gateway in this process, and callers of it.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use adsum_cluster::{LocalCluster, Profile};
use adsum_core::{
    Conn, DeviceId, Incarnation, Kind, Membership as Stay, NodeId, Preference, RoomId, SessionKey,
    Stamp, State, TenantId, Topic, UserId, UserKey,
    membership::{Membership, Role},
    ring::ShardRing,
    store::{Open, Opened, Shard, Store},
};
use adsum_dispatcher::{Dispatcher, DispatcherConfig};
use adsum_proto::client::presence_client::PresenceClient;
use adsum_store::{MemoryStore, Options};
use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{HeaderMap, Method, Request, StatusCode, header},
};
use futures::FutureExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tonic::{service::Routes, transport::Server};
use tower::ServiceExt;

use crate::{
    Edge, EdgeConfig, EdgeParts, EdgeTimes, SettingsBook,
    auth::{AuthConfig, Authenticator, Keys},
    feed::{self, Feed, FeedConfig},
    grpc, http,
    limits::{EdgeLimits, TenantSettings},
    requests::Requests,
};

const SHARDS: Shard = 4;
pub(super) const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// A gateway with all that is behind it.
pub(super) struct World {
    pub(super) edge: Edge,
    pub(super) store: Arc<MemoryStore>,
    pub(super) router: Router,
    pub(super) routes: Routes,
    _dispatcher: Dispatcher,
    _tasks: TaskTracker,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Reply {
    /// The code of a failure.
    pub(super) fn code(&self) -> (u16, &str) {
        let code = self.body["error"]["code"].as_str();
        (self.status.as_u16(), code.unwrap_or("none"))
    }

    /// The body of a success.
    pub(super) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }
}

pub(super) fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub(super) fn key(name: &str) -> UserKey {
    UserKey::new(TenantId::new("acme").unwrap(), user(name))
}

/// The token of a user who may do what users may.
pub(super) fn token(name: &str) -> String {
    claims(json!({"tenant": "acme", "sub": name, "join": ["*"], "watch": ["*"]}))
}

/// The token of a service.
pub(super) fn service() -> String {
    claims(json!({"tenant": "acme", "role": "service", "join": ["*"], "watch": ["*"]}))
}

/// The token of a service that sees everybody.
pub(super) fn all_seeing() -> String {
    claims(json!({
        "tenant": "acme", "role": "service", "see": "all", "join": ["*"], "watch": ["*"]
    }))
}

pub(super) fn claims(claims: Value) -> String {
    claims.to_string()
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(EdgeLimits::default(), EdgeConfig::default())
    }

    pub(super) fn with(limits: EdgeLimits, config: EdgeConfig) -> Self {
        Self::build(limits, config, EdgeTimes::default())
    }

    pub(super) fn build(limits: EdgeLimits, config: EdgeConfig, times: EdgeTimes) -> Self {
        let options = Options {
            shards: SHARDS,
            ..Options::default()
        };
        let store = Arc::new(MemoryStore::embedded(options));
        // As a reaper does; a shard that was never born settles.
        for shard in 0..SHARDS {
            store.claim(shard).now_or_never().unwrap().unwrap();
        }
        let (feed, dispatcher, tasks) = feed(&store);
        let auth = AuthConfig::default();
        let keys = Arc::new(Keys::load(&auth).unwrap());
        let strict = TenantSettings {
            message_burst: Some(3),
            messages_per_second: Some(1),
            ..TenantSettings::default()
        };
        let tenants = HashMap::from([(TenantId::new("strict").unwrap(), strict)]);
        let parts = EdgeParts {
            node: NodeId::new("gw-1").unwrap(),
            store: store.clone(),
            feed,
            auth: Arc::new(Authenticator::new(keys, &auth, true).unwrap()),
            book: Arc::new(SettingsBook::new(limits, times, &tenants).unwrap()),
        };
        let edge = Edge::start(parts, config, &tasks).unwrap();
        let requests = Requests::from(edge.clone());
        Self {
            router: http::router(requests.clone()),
            routes: grpc::routes(requests),
            edge,
            store,
            _dispatcher: dispatcher,
            _tasks: tasks,
        }
    }

    /// One request, as it is.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Reply {
        request.extensions_mut().insert(ConnectInfo(PEER));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = match body.len() {
            0 => Value::Null,
            _ => serde_json::from_slice(&body).unwrap(),
        };
        Reply {
            status,
            headers,
            body,
        }
    }

    async fn call(&self, method: Method, token: &str, path: &str, body: Option<Value>) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(format!("/v1{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = match body {
            Some(body) => request
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        self.send(request.unwrap()).await
    }

    pub(super) async fn get(&self, token: &str, path: &str) -> Reply {
        self.call(Method::GET, token, path, None).await
    }

    pub(super) async fn delete(&self, token: &str, path: &str) -> Reply {
        self.call(Method::DELETE, token, path, None).await
    }

    pub(super) async fn put(&self, token: &str, path: &str, body: Value) -> Reply {
        self.call(Method::PUT, token, path, Some(body)).await
    }

    pub(super) async fn post(&self, token: &str, path: &str, body: Value) -> Reply {
        self.call(Method::POST, token, path, Some(body)).await
    }

    pub(super) fn grpc(&self) -> PresenceClient<Routes> {
        PresenceClient::new(self.routes.clone())
    }

    /// A session held by a gateway, in a room.
    pub(super) async fn open(&self, name: &str, device: &str, room: &str) {
        let rooms = [(RoomId::new(room).unwrap(), Stay::default())];
        let holder = Incarnation::of(&NodeId::new("gw-9").unwrap(), 7).unwrap();
        let open = Open {
            key: SessionKey::new(key(name), DeviceId::new(device).unwrap()),
            holder,
            stamp: Stamp {
                conn: Conn::new(5).unwrap(),
                rev: 1,
            },
            state: State {
                kind: Kind::new("web").unwrap(),
                rooms: rooms.into_iter().collect(),
                ..State::default()
            },
            opened_at: 0,
            prefs: None,
            origin: None,
        };
        let opened = self.store.open(open).await.unwrap().value;
        assert!(matches!(opened, Opened::Ok { .. }));
    }

    pub(super) async fn prefer(&self, name: &str, preference: Preference) {
        let requests = Requests::from(self.edge.clone());
        requests.prefer(&key(name), &preference).await.unwrap();
    }

    /// Waits until the topic has so many, seen or not: the feed is a little behind the store.
    pub(super) async fn until(&self, topic: &str, there: impl Fn(&feed::Picture) -> bool) {
        let topic: Topic = topic.parse().unwrap();
        let mut watch = self
            .edge
            .feed()
            .watch(TenantId::new("acme").unwrap(), topic);
        watch.ready().await;
        for _ in 0..400 {
            if there(&watch.snapshot()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {:?}", watch.snapshot());
    }
}

fn feed(store: &Arc<MemoryStore>) -> (Feed, Dispatcher, TaskTracker) {
    let profile = Profile {
        name: "one".to_owned(),
        roles: vec![Role::Gateway, Role::Dispatcher],
        ..Profile::default()
    };
    let membership: Arc<dyn Membership> = Arc::new(LocalCluster::new().join(profile).unwrap());
    let config = DispatcherConfig {
        poll: Duration::from_millis(50),
        ..DispatcherConfig::default()
    };
    let dispatcher = Dispatcher::start(Arc::new(store.handle()), membership.clone(), config);
    let (dial, pipes) = mpsc::channel(16);
    let connector = feed::memory(move |_| {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let full = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        dial.try_send(Ok::<_, io::Error>(theirs)).map_err(full)?;
        Ok(ours)
    });
    let served = Server::builder()
        .add_service(dispatcher.feed())
        .serve_with_incoming(ReceiverStream::new(pipes));
    let tasks = TaskTracker::new();
    tasks.spawn(served);
    let observer = store.handle();
    let feed = Feed::start(
        FeedConfig::new("adsum", 1, SHARDS),
        ShardRing::new(SHARDS),
        membership,
        connector,
        Arc::new(move |shard, epoch| observer.observe(shard, epoch)),
    );
    (feed.unwrap(), dispatcher, tasks)
}

/// Not in step with others, and never later than asked for.
pub(super) fn assert_spread(heartbeat_ms: u64) {
    assert!((13_501..=15_000).contains(&heartbeat_ms), "{heartbeat_ms}");
}
