//! Where one scenario plays: a tenant of its own, and one way to act and to watch.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_client::{
    Activity, Client, DeviceId, Encoding, Freeze, Kind, Manual, Meta, Mode, RoomId, Timing,
    Transport,
};
use adsum_gateway::auth::NewClaims;
use adsum_proto::client::{presence_client::PresenceClient, v1};
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::AbortHandle, time::timeout};
use tonic::{Request, transport::Channel};

use crate::{
    beats::Beater,
    http::Http,
    raw::channel,
    watcher::{LIMIT, Watcher, topic},
    world::{Side, World, claims, service, signed},
};

/// How a scenario is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wire {
    /// A WebSocket with JSON on both sides.
    Json,
    /// A WebSocket with protobuf on both sides.
    Proto,
    /// gRPC streams on both sides.
    Grpc,
    /// HTTP heartbeats, watched by Server-Sent Events.
    Sse,
    /// gRPC heartbeats, watched by gRPC `Watch`.
    Watch,
}

impl Wire {
    pub(crate) const CONNECTIONS: [Self; 3] = [Self::Json, Self::Proto, Self::Grpc];
    pub(crate) const ALL: [Self; 5] = [Self::Json, Self::Proto, Self::Grpc, Self::Sse, Self::Watch];

    /// In the name of a tenant.
    pub(crate) const fn ending(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Proto => "proto",
            Self::Grpc => "grpc",
            Self::Sse => "sse",
            Self::Watch => "watch",
        }
    }

    /// What a connection speaks; those without one have a WebSocket where they need one.
    pub(crate) const fn transport(self) -> Transport {
        match self {
            Self::Proto => Transport::WebSocket(Encoding::Protobuf),
            Self::Grpc => Transport::Grpc,
            Self::Json | Self::Sse | Self::Watch => Transport::WebSocket(Encoding::Json),
        }
    }

    pub(crate) const fn beats(self) -> bool {
        matches!(self, Self::Sse | Self::Watch)
    }
}

/// What somebody's session is to be.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) user: String,
    pub(crate) device: String,
    pub(crate) kind: String,
    pub(crate) rooms: Vec<String>,
    pub(crate) meta: Option<String>,
    pub(crate) status: Option<Manual>,
    pub(crate) linger: Option<Duration>,
    pub(crate) sides: Vec<Side>,
}

impl Plan {
    pub(crate) fn of(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            device: "laptop".to_owned(),
            kind: "web".to_owned(),
            rooms: Vec::new(),
            meta: None,
            status: None,
            linger: None,
            sides: vec![Side::A],
        }
    }

    pub(crate) fn device(mut self, device: &str, kind: &str) -> Self {
        (self.device, self.kind) = (device.to_owned(), kind.to_owned());
        self
    }

    pub(crate) fn room(mut self, room: &str) -> Self {
        self.rooms.push(room.to_owned());
        self
    }

    pub(crate) fn meta(mut self, meta: &str) -> Self {
        self.meta = Some(meta.to_owned());
        self
    }

    pub(crate) fn status(mut self, status: Manual) -> Self {
        self.status = Some(status);
        self
    }

    pub(crate) fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    pub(crate) fn at(mut self, side: Side) -> Self {
        self.sides = vec![side];
        self
    }
}

pub(crate) fn meta(text: &str) -> Result<Meta> {
    Meta::new(text.to_owned(), 2048).map_err(|e| anyhow!("{text}: {e:?}"))
}

pub(crate) fn room(text: &str) -> Result<RoomId> {
    Ok(RoomId::new(text)?)
}

/// Generous where machines are slow, quick where only tests wait.
pub(crate) fn timing() -> Timing {
    Timing {
        backoff_min: Duration::from_millis(50),
        backoff_max: Duration::from_secs(1),
        resync_after: Duration::from_millis(500),
        ..Timing::default()
    }
}

pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    pub(crate) wire: Wire,
    pub(crate) tenant: String,
    conn: AtomicU64,
}

impl Stage {
    pub(crate) fn new(world: Arc<World>, scenario: &str, wire: Wire) -> Self {
        let tenant = format!("{scenario}-{}", wire.ending());
        Self {
            world,
            wire,
            tenant,
            conn: AtomicU64::new(crate::world::now_ms()),
        }
    }

    pub(crate) fn address(&self, side: Side) -> SocketAddr {
        self.world.address(side)
    }

    pub(crate) fn endpoint(&self, side: Side) -> String {
        format!("ws://{}", self.address(side))
    }

    pub(crate) fn claims(&self, user: &str) -> NewClaims {
        claims(&self.tenant, user)
    }

    pub(crate) fn token(&self, user: &str) -> Result<String> {
        signed(&self.claims(user))
    }

    /// Of a service that sees like a stranger.
    pub(crate) fn service_token(&self) -> Result<String> {
        signed(&service(&self.tenant))
    }

    /// Of a service that sees everybody.
    pub(crate) fn see_all_token(&self) -> Result<String> {
        let see = Some("all".to_owned());
        signed(&NewClaims {
            see,
            ..service(&self.tenant)
        })
    }

    pub(crate) fn http(&self, side: Side, token: String) -> Http {
        Http {
            address: self.address(side),
            token: Some(token),
        }
    }

    pub(crate) fn next_conn(&self) -> u64 {
        self.conn.fetch_add(1, Relaxed) + 1
    }

    /// Somebody comes, in the way of this stage.
    pub(crate) async fn arrive(&self, plan: Plan) -> Result<Actor> {
        if self.wire.beats() {
            Ok(Actor::Beats(self.beat(plan).await?))
        } else {
            self.connect(plan).await
        }
    }

    /// Somebody comes with a connection.
    pub(crate) async fn connect(&self, plan: Plan) -> Result<Actor> {
        let (client, _) = self.client(&plan)?.connect().await?;
        let prefs = self.prefs(&plan.user, plan.sides[0])?;
        Ok(Actor::Connected(client, prefs))
    }

    /// Somebody comes with heartbeats, over gRPC or HTTP.
    pub(crate) async fn beat(&self, plan: Plan) -> Result<Beater> {
        let prefs = self.prefs(&plan.user, plan.sides[0])?;
        if let Some(status) = plan.status {
            prefs.set_status(Some(status)).await?;
        }
        Beater::start(self, &plan, prefs).await
    }

    /// A client as planned, not yet connected.
    pub(crate) fn client(&self, plan: &Plan) -> Result<adsum_client::Builder> {
        let mut builder = Client::builder()
            .transport(self.wire.transport())
            .timing(timing())
            .token(self.token(&plan.user)?)
            .device(DeviceId::new(plan.device.as_str())?)
            .kind(Kind::new(plan.kind.as_str()).map_err(|e| anyhow!("{e:?}"))?);
        for side in &plan.sides {
            builder = builder.endpoint(self.endpoint(*side));
        }
        for name in &plan.rooms {
            builder = builder.room(room(name)?);
        }
        if let Some(linger) = plan.linger {
            builder = builder.linger(linger);
        }
        if let Some(text) = &plan.meta {
            builder = builder.meta(meta(text)?);
        }
        if plan.status.is_some() {
            builder = builder.status(plan.status);
        }
        Ok(builder)
    }

    /// Settings of a user, by the requests that go with this wire.
    pub(crate) fn prefs(&self, user: &str, side: Side) -> Result<Prefs> {
        let token = self.token(user)?;
        Ok(Prefs {
            http: self.http(side, token.clone()),
            grpc: matches!(self.wire, Wire::Grpc | Wire::Watch),
        })
    }

    /// Somebody watches from the other side; their first states have come.
    pub(crate) async fn watch(&self, user: &str, topics: &[&str]) -> Result<Watcher> {
        self.watch_at(Side::B, user, topics, Mode::Members).await
    }

    pub(crate) async fn watch_at(
        &self,
        side: Side,
        user: &str,
        topics: &[&str],
        mode: Mode,
    ) -> Result<Watcher> {
        let mut watcher = self.watch_unsynced(side, user, topics, mode).await?;
        for name in topics {
            watcher.synced(name).await?;
        }
        Ok(watcher)
    }

    pub(crate) async fn watch_unsynced(
        &self,
        side: Side,
        user: &str,
        topics: &[&str],
        mode: Mode,
    ) -> Result<Watcher> {
        let token = self.token(user)?;
        match self.wire {
            Wire::Sse => self.sse(side, user, token, topics, mode).await,
            Wire::Watch => self.grpc_watch(side, user, &token, topics, mode).await,
            _ => {
                let plan = Plan::of(user).device("watcher", "web").at(side);
                let mut builder = self.client(&plan)?.event_capacity(100_000);
                for name in topics {
                    builder = builder.watch(topic(name)?, mode);
                }
                let (client, events) = builder.connect().await?;
                Ok(Watcher::of_client(user, client, events))
            }
        }
    }

    pub(crate) async fn sse(
        &self,
        side: Side,
        user: &str,
        token: String,
        topics: &[&str],
        mode: Mode,
    ) -> Result<Watcher> {
        let mut query = format!("mode={}", mode.as_str());
        topics
            .iter()
            .for_each(|name| query += &format!("&topic={name}"));
        let mut events = self.http(side, token).events(&query).await?;
        let (sender, frames) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if sender.send(event.frame()).is_err() {
                    return;
                }
            }
        });
        Ok(Watcher::of_frames(user, frames))
    }

    pub(crate) async fn grpc_watch(
        &self,
        side: Side,
        user: &str,
        token: &str,
        topics: &[&str],
        mode: Mode,
    ) -> Result<Watcher> {
        let mut client = PresenceClient::new(channel(self.address(side)).await?);
        let mode = match mode {
            Mode::Members => v1::Mode::Members,
            Mode::Interval => v1::Mode::Interval,
            Mode::Count => v1::Mode::Count,
        };
        let topics = topics.iter().map(|name| v1::Watch {
            topic: (*name).to_owned(),
            mode: mode.into(),
            digest: None,
        });
        let topics = topics.collect();
        let request = with_token(v1::WatchRequest { topics }, token)?;
        let mut stream = client.watch(request).await?.into_inner();
        let (sender, frames) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(frame)) = stream.message().await {
                let frame = frame.read().map_err(|e| anyhow!("{e:?}"));
                if sender.send(frame).is_err() {
                    return;
                }
            }
        });
        Ok(Watcher::of_frames(user, frames))
    }

    /// Closes all sessions of a user, as a service, from the other side.
    pub(crate) async fn kick(&self, user: &str) -> Result<u64> {
        let http = self.http(Side::B, self.service_token()?);
        if matches!(self.wire, Wire::Grpc | Wire::Watch) {
            let request = v1::DisconnectRequest {
                user: Some(user.to_owned()),
                device: None,
            };
            let mut client = grpc(&http).await?;
            let request = with_token(request, &self.service_token()?)?;
            return Ok(client.disconnect(request).await?.into_inner().closed.into());
        }
        let path = format!("/v1/users/{user}/sessions");
        let closed = http.delete(&path).await?.ok()?.json()?;
        closed["closed"].as_u64().context("no number")
    }

    /// Somebody new in a room: whatever was to be told before has been told by then.
    pub(crate) async fn mark(&self, watcher: &mut Watcher, name: &str) -> Result<()> {
        let user = format!("mark-{}", self.next_conn());
        let into = name.strip_prefix("room:").context("marks are for rooms")?;
        let body = json!({"beats": [self.beat_body(&user, Some(into))]});
        self.beats(&body).await?;
        watcher.joined(name, &user).await?;
        Ok(())
    }

    /// Heartbeats by a service, for many.
    pub(crate) async fn beats(&self, body: &Value) -> Result<()> {
        let http = self.http(Side::A, self.service_token()?);
        let reply = http.post("/v1/heartbeat", body).await?.ok()?.json()?;
        let results = reply["results"].as_array().context("no results")?;
        let wrong = results.iter().find(|result| result.get("error").is_some());
        ensure!(wrong.is_none(), "{wrong:?}");
        Ok(())
    }

    pub(crate) fn beat_body(&self, user: &str, room: Option<&str>) -> Value {
        let rooms: Vec<_> = room.into_iter().collect();
        json!({"user": user, "device": "d", "conn": 1, "kind": "web", "rooms": rooms})
    }
}

pub(crate) fn with_token<T>(message: T, token: &str) -> Result<Request<T>> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse()?;
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}

pub(crate) async fn grpc(http: &Http) -> Result<PresenceClient<Channel>> {
    Ok(PresenceClient::new(channel(http.address).await?))
}

/// Settings of one user.
#[derive(Debug, Clone)]
pub(crate) struct Prefs {
    pub(crate) http: Http,
    grpc: bool,
}

impl Prefs {
    fn request<T>(&self, message: T) -> Result<Request<T>> {
        with_token(message, self.http.token.as_deref().unwrap_or(""))
    }

    pub(crate) async fn set_status(&self, status: Option<Manual>) -> Result<()> {
        if self.grpc {
            use v1::set_status_request::Manual as Wish;
            let manual = match status {
                None => Wish::ClearStatus(v1::Clear {}),
                Some(Manual::Away) => Wish::Status(v1::Status::Away.into()),
                Some(Manual::Busy) => Wish::Status(v1::Status::Busy.into()),
                Some(Manual::Dnd) => Wish::Status(v1::Status::Dnd.into()),
                Some(Manual::Invisible) => Wish::Status(v1::Status::Invisible.into()),
            };
            let request = v1::SetStatusRequest {
                user: None,
                manual: Some(manual),
            };
            grpc(&self.http)
                .await?
                .set_status(self.request(request)?)
                .await?;
            return Ok(());
        }
        let status = status.map(|manual| adsum_client::Status::from(manual).to_string());
        let body = json!({"status": status});
        self.http.put("/v1/me/status", &body).await?.ok()?;
        Ok(())
    }

    pub(crate) async fn set_visibility(&self, visibility: &str) -> Result<()> {
        if self.grpc {
            let visibility = match visibility {
                "contacts" => v1::Visibility::Contacts,
                "nobody" => v1::Visibility::Nobody,
                _ => v1::Visibility::Everyone,
            };
            let request = v1::SetVisibilityRequest {
                user: None,
                visibility: visibility.into(),
            };
            grpc(&self.http)
                .await?
                .set_visibility(self.request(request)?)
                .await?;
            return Ok(());
        }
        let body = json!({"visibility": visibility});
        self.http.put("/v1/me/visibility", &body).await?.ok()?;
        Ok(())
    }

    pub(crate) async fn set_contacts(&self, contacts: &[&str]) -> Result<()> {
        if self.grpc {
            let request = v1::SetContactsRequest {
                user: None,
                contacts: contacts.iter().map(|c| (*c).to_owned()).collect(),
            };
            grpc(&self.http)
                .await?
                .set_contacts(self.request(request)?)
                .await?;
            return Ok(());
        }
        let body = json!({"contacts": contacts});
        self.http.put("/v1/me/contacts", &body).await?.ok()?;
        Ok(())
    }
}

/// Somebody who is there, however.
pub(crate) enum Actor {
    Connected(Client, Prefs),
    Beats(Beater),
}

impl Actor {
    pub(crate) fn prefs(&self) -> &Prefs {
        match self {
            Self::Connected(_, prefs) => prefs,
            Self::Beats(beater) => &beater.prefs,
        }
    }

    pub(crate) fn client(&self) -> Result<&Client> {
        match self {
            Self::Connected(client, _) => Ok(client),
            Self::Beats(_) => Err(anyhow!("no connection")),
        }
    }

    pub(crate) async fn join(&self, name: &str, about: Option<&str>) -> Result<()> {
        match self {
            Self::Connected(client, _) => {
                let about = about.map(meta).transpose()?;
                Ok(client.join(room(name)?, about).await?)
            }
            Self::Beats(beater) => beater.join(name, about).await,
        }
    }

    pub(crate) async fn part(&self, name: &str) -> Result<()> {
        match self {
            Self::Connected(client, _) => Ok(client.part(room(name)?).await?),
            Self::Beats(beater) => beater.part(name).await,
        }
    }

    pub(crate) async fn set_activity(&self, activity: Activity) -> Result<()> {
        match self {
            Self::Connected(client, _) => Ok(client.set_activity(activity).await?),
            Self::Beats(beater) => beater.set_activity(activity).await,
        }
    }

    pub(crate) async fn set_meta(&self, text: Option<&str>) -> Result<()> {
        match self {
            Self::Connected(client, _) => Ok(client.set_meta(text.map(meta).transpose()?).await?),
            Self::Beats(beater) => beater.set_meta(text).await,
        }
    }

    pub(crate) async fn set_status(&self, status: Option<Manual>) -> Result<()> {
        match self {
            Self::Connected(client, _) => Ok(client.set_status(status).await?),
            Self::Beats(beater) => beater.prefs.set_status(status).await,
        }
    }

    /// Says goodbye.
    pub(crate) async fn leave(&self) -> Result<()> {
        match self {
            Self::Connected(client, _) => Ok(client.leave().await?),
            Self::Beats(beater) => beater.leave().await,
        }
    }

    /// Says nothing any more, and stays.
    pub(crate) async fn fall_silent(&self) {
        match self {
            Self::Connected(client, _) => client.freeze(Freeze::ALL).await,
            Self::Beats(beater) => beater.stop(),
        }
    }
}

/// Ends a task with its owner.
pub(crate) struct Ends(pub(crate) AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Not longer than a failure takes.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    let done = timeout(LIMIT, future).await;
    done.with_context(|| format!("not in time: {what}"))
}
