//! A client of few words, over WebSocket. It beats by itself.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

const LIMIT: Duration = Duration::from_secs(20);
const BEAT: Duration = Duration::from_secs(1);

/// Gone without a word when it is dropped.
pub(crate) struct Client {
    say: mpsc::UnboundedSender<Value>,
    heard: mpsc::UnboundedReceiver<Value>,
}

impl Client {
    /// Connects and says hello with what is given besides.
    pub(crate) async fn hello(gateway: SocketAddr, user: &str, more: Value) -> Result<Self> {
        let request = format!("ws://{gateway}/v1/ws").into_client_request()?;
        let tcp = TcpStream::connect(gateway).await?;
        let (mut socket, _) = client_async(request, tcp).await?;
        let (say, mut to_say) = mpsc::unbounded_channel::<Value>();
        let (hears, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut beat = interval(BEAT);
            beat.tick().await;
            loop {
                let frame = tokio::select! {
                    frame = to_say.recv() => match frame {
                        Some(frame) => frame,
                        None => return,
                    },
                    _ = beat.tick() => json!({"type": "heartbeat"}),
                    message = socket.next() => match message {
                        Some(Ok(Message::Text(text))) => {
                            let frame = serde_json::from_str(&text).unwrap_or_default();
                            if hears.send(frame).is_err() {
                                return;
                            }
                            continue;
                        }
                        Some(Ok(_)) => continue,
                        _ => return,
                    },
                };
                if socket
                    .send(Message::Text(frame.to_string().into()))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        let mut client = Self { say, heard };
        let mut hello = json!({"type": "hello", "token": format!("dev:acme:{user}")});
        merge(&mut hello, more);
        client.say(hello)?;
        client.hear("welcome").await?;
        Ok(client)
    }

    pub(crate) fn say(&mut self, frame: Value) -> Result<()> {
        self.say.send(frame).context("closed")
    }

    /// Waits for a frame of this type.
    pub(crate) async fn hear(&mut self, kind: &str) -> Result<Value> {
        self.hear_one(|frame| frame["type"] == kind)
            .await
            .with_context(|| format!("no {kind}"))
    }

    /// Waits for the answer to what was said with this `ref`.
    pub(crate) async fn answer(&mut self, r#ref: &str) -> Result<Value> {
        self.hear_one(|frame| frame["ref"] == r#ref).await
    }

    /// Waits for a frame like this.
    pub(crate) async fn hear_one(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut others = Vec::new();
        let found = async {
            loop {
                let frame = self.heard.recv().await.context("closed")?;
                ensure!(frame["type"] != "error", "{frame}");
                if wanted(&frame) {
                    return Ok(frame);
                }
                if frame["type"] != "ack" {
                    others.push(frame.to_string());
                }
            }
        };
        let found = timeout(LIMIT, found).await;
        found.with_context(|| format!("not in time, but: {others:?}"))?
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// Somebody joins in a diff.
pub(crate) fn joins(user: &str) -> impl Fn(&Value) -> bool {
    let user = user.to_owned();
    move |frame| {
        let joins = frame["joins"].as_array();
        let here = |j: &Value| j["user"] == user.as_str();
        frame["type"] == "presence_diff" && joins.is_some_and(|joins| joins.iter().any(here))
    }
}
