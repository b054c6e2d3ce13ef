//! `smoke`: is the service there for a client? Somebody joins a room, a watcher of the room sees
//! them come, and sees them go. What `helm test` runs.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use adsum_client::{Client, Event, Mode, RoomId, Tls, Topic, UserId};
use adsum_gateway::auth::{NewClaims, Role, mint};
use anyhow::{Context, Result, bail};
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout_at};

use super::{
    Output,
    args::Server,
    ask::{Ask, segment},
    live::Events,
};
use crate::{clock, print};

/// Between two tries to get in: a service that has just been installed may still come up.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a minted token is good for.
const TOKEN_SECONDS: u64 = 300;

/// Join, be seen, leave.
#[derive(Debug, Args)]
pub(crate) struct Smoke {
    #[command(flatten)]
    server: Server,
    /// The room; a token given must allow to join and to watch it.
    #[arg(long, default_value = "adsum-smoke")]
    room: String,
    /// A file with the server's HS256 secret, to mint a token with instead of giving one.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    key: Option<PathBuf>,
    /// What the server calls that key.
    #[arg(long, requires = "key")]
    kid: Option<String>,
    /// Whom the minted token is for, if the server asks (auth.audience).
    #[arg(long, requires = "key")]
    audience: Option<String>,
    /// Who made it, if the server asks (auth.issuer).
    #[arg(long, requires = "key")]
    issuer: Option<String>,
    /// How long it may take, all in all.
    #[arg(long, default_value_t = 60_000, value_name = "MS")]
    within_ms: u64,
    #[command(flatten)]
    output: Output,
}

impl Smoke {
    /// Succeeds when the watcher was told of both.
    ///
    /// # Errors
    /// Says which step did not happen.
    pub(super) async fn run(self) -> Result<()> {
        let room = RoomId::new(self.room.as_str()).context("--room")?;
        let token = self.token()?;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(self.within_ms);
        let mut watcher = self.watch(&room, &token, deadline).await?;
        let begun = Instant::now();
        let mut builder = Client::builder()
            .endpoint(self.server.server.as_str())
            .token(token)
            .room(room.clone())
            .watch(Topic::Room(room), Mode::Members);
        if let Some(pem) = self.server.ca_pem()? {
            builder = builder.tls(Tls::ca_pem(pem).context("--ca")?);
        }
        let (client, mut events) = timeout_at(deadline, builder.connect())
            .await
            .context("the room could not be joined in time")?
            .context("the room can't be joined")?;
        let user = timeout_at(deadline, who(&mut events)).await??;
        let joined = watcher.sees("joins", user.as_str(), deadline).await;
        joined.context("the watcher was not told of the join")?;
        let (join, begun) = (begun.elapsed(), Instant::now());
        client.leave().await.context("no goodbye")?;
        let left = watcher.sees("leaves", user.as_str(), deadline).await;
        left.context("the watcher was not told of the leave")?;
        let leave = begun.elapsed();
        if self.output.json {
            let (join, leave) = (join.as_millis(), leave.as_millis());
            print(&json!({"ok": true, "join_ms": join, "leave_ms": leave}).to_string());
        } else {
            print(&format!(
                "joined and seen after {join:.0?}, left and seen after {leave:.0?}"
            ));
        }
        Ok(())
    }

    async fn watch(
        &self,
        room: &RoomId,
        token: &str,
        deadline: tokio::time::Instant,
    ) -> Result<Watcher> {
        let ask = Ask::public(&self.server, token.to_owned())?;
        let topic = Topic::Room(room.clone()).to_string();
        let path = format!("/v1/events?topic={}", segment(&topic));
        loop {
            match ask.stream(Method::GET, &path).await {
                Ok(body) => {
                    return Ok(Watcher {
                        events: Events::new(body),
                    });
                }
                Err(error) if tokio::time::Instant::now() + AGAIN >= deadline => {
                    return Err(error.context("the room can't be watched"));
                }
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    /// The one given, or one of its own: a new user every time, so that two runs don't meet.
    fn token(&self) -> Result<String> {
        let Some(key) = &self.key else {
            return Ok(self.server.token());
        };
        let secret = std::fs::read(key)
            .with_context(|| format!("--key: {} can't be read", key.display()))?;
        let now = clock::now_ms();
        let claims = NewClaims {
            sub: Some(format!("smoke-{now}")),
            tenant: self.server.tenant().to_owned(),
            role: Role::User,
            rooms: Some(vec![self.room.clone()]),
            join: None,
            watch: None,
            see: None,
            aud: self.audience.clone(),
            iss: self.issuer.clone(),
            nbf: None,
            exp: now / 1000 + TOKEN_SECONDS,
        };
        mint(&claims, secret.trim_ascii(), self.kid.as_deref()).context("no token")
    }
}

/// Who this is to the server.
async fn who(events: &mut adsum_client::Events) -> Result<UserId> {
    while let Some(event) = events.next().await {
        if let Event::Connected { user, .. } = event {
            return Ok(user);
        }
    }
    bail!("the connection ended before it said who this is")
}

/// What a watcher of the room is told.
struct Watcher {
    events: Events,
}

impl Watcher {
    /// Waits until this user is among the `joins` or `leaves`, or in a first state.
    async fn sees(&mut self, what: &str, user: &str, deadline: tokio::time::Instant) -> Result<()> {
        loop {
            let frame = timeout_at(deadline, self.events.next())
                .await
                .context("not in time")??;
            let Some(frame) = frame else {
                bail!("the stream of events ended");
            };
            let named = |key: &str| {
                let items = frame[key].as_array().into_iter().flatten();
                items
                    .filter_map(|i: &Value| i["user"].as_str())
                    .any(|u| u == user)
            };
            if named(what) || (what == "joins" && named("members")) {
                return Ok(());
            }
        }
    }
}
