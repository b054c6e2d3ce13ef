//! Somebody without a connection, who is there by heartbeats: over HTTP, or over gRPC.

use std::sync::Arc;

use adsum_client::Activity;
use adsum_proto::client::v1;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::interval};

use crate::{
    http::Http,
    stage::{Ends, Plan, Prefs, Stage, Wire, grpc, with_token},
    world::HEARTBEAT,
};

/// Beats until it is stopped or dropped.
pub(crate) struct Beater {
    pub(crate) prefs: Prefs,
    session: Arc<Session>,
    task: Ends,
}

struct Session {
    http: Http,
    grpc: bool,
    /// The body of the next beat. Kept while one is under way: beats of a session are serial.
    body: Mutex<Value>,
}

impl Session {
    async fn beat(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut body = self.body.lock().await;
        change(&mut body);
        if !self.grpc {
            let reply = self.http.post("/v1/heartbeat", &body).await?;
            if reply.status != 200 {
                bail!("{}", reply.code());
            }
            return Ok(());
        }
        let request = v1::HeartbeatRequest {
            beats: vec![message(&body)],
        };
        let token = self.http.token.as_deref().unwrap_or("");
        let mut client = grpc(&self.http).await?;
        let answer = client.heartbeat(with_token(request, token)?).await?;
        let results = answer.into_inner().results;
        match results.into_iter().next().and_then(|result| result.error) {
            Some(error) => bail!("{}", error.code),
            None => Ok(()),
        }
    }
}

/// The same beat as a message.
fn message(body: &Value) -> v1::Beat {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let meta = |value: &Value| (!value.is_null()).then(|| value.to_string());
    let rooms = body["rooms"].as_array().cloned().unwrap_or_default();
    let rooms = rooms.into_iter().map(|room| v1::Join {
        room: text(&room["room"]).unwrap_or_default(),
        meta: meta(&room["meta"]),
    });
    let activity = match body["activity"].as_str() {
        Some("away") => v1::Activity::Away,
        _ => v1::Activity::Online,
    };
    v1::Beat {
        user: None,
        device: text(&body["device"]).unwrap_or_default(),
        conn: body["conn"].as_u64().unwrap_or(0),
        rev: 0,
        kind: text(&body["kind"]),
        activity: activity.into(),
        meta: meta(&body["meta"]),
        rooms: rooms.collect(),
    }
}

fn parsed(meta: Option<&str>) -> Value {
    meta.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

impl Beater {
    pub(crate) async fn start(stage: &Stage, plan: &Plan, prefs: Prefs) -> Result<Self> {
        let rooms: Vec<_> = plan.rooms.iter().map(|r| json!({"room": r})).collect();
        let body = json!({
            "device": plan.device, "conn": stage.next_conn(), "kind": plan.kind,
            "meta": parsed(plan.meta.as_deref()), "rooms": rooms,
        });
        let session = Arc::new(Session {
            http: prefs.http.clone(),
            grpc: stage.wire == Wire::Watch,
            body: Mutex::new(body),
        });
        session.beat(|_| {}).await?;
        let beating = session.clone();
        let task = tokio::spawn(async move {
            let mut tick = interval(HEARTBEAT);
            tick.tick().await;
            loop {
                tick.tick().await;
                // One that is refused is over; what that means is asked by whoever cares.
                if beating.beat(|_| {}).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            prefs,
            session,
            task: Ends(task.abort_handle()),
        })
    }

    /// One beat, now.
    pub(crate) async fn beat(&self) -> Result<()> {
        self.session.beat(|_| {}).await
    }

    /// A new connection of the same device.
    pub(crate) async fn come_back(&self, conn: u64) -> Result<()> {
        self.session.beat(|body| body["conn"] = conn.into()).await
    }

    pub(crate) async fn join(&self, room: &str, meta: Option<&str>) -> Result<()> {
        self.rooms(room, Some(json!({"room": room, "meta": parsed(meta)})))
            .await
    }

    pub(crate) async fn part(&self, room: &str) -> Result<()> {
        self.rooms(room, None).await
    }

    async fn rooms(&self, room: &str, entry: Option<Value>) -> Result<()> {
        let change = |body: &mut Value| {
            let mut rooms = body["rooms"].as_array().cloned().unwrap_or_default();
            rooms.retain(|known| known["room"] != room);
            rooms.extend(entry);
            body["rooms"] = rooms.into();
        };
        self.session.beat(change).await
    }

    pub(crate) async fn set_activity(&self, activity: Activity) -> Result<()> {
        let word = match activity {
            Activity::Online => "online",
            Activity::Away => "away",
        };
        self.session
            .beat(|body| body["activity"] = word.into())
            .await
    }

    pub(crate) async fn set_meta(&self, text: Option<&str>) -> Result<()> {
        self.session.beat(|body| body["meta"] = parsed(text)).await
    }

    pub(crate) fn stop(&self) {
        self.task.0.abort();
    }

    pub(crate) async fn leave(&self) -> Result<()> {
        self.stop();
        let device = self.session.body.lock().await["device"].clone();
        let device = device.as_str().unwrap_or("");
        if self.session.grpc {
            let request = v1::DisconnectRequest {
                user: None,
                device: Some(device.to_owned()),
            };
            let token = self.session.http.token.as_deref().unwrap_or("");
            let mut client = grpc(&self.session.http).await?;
            client.disconnect(with_token(request, token)?).await?;
            return Ok(());
        }
        let path = format!("/v1/sessions/{device}");
        self.session.http.delete(&path).await?.ok()?;
        Ok(())
    }
}
