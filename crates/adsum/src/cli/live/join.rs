//! `join`: be present in a room, from a terminal.

use std::{process::ExitCode, time::Duration};

use adsum_client::{Client, EndReason, Event, Kind, Mode, RoomId, Tls, Topic};
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use super::{
    super::{Output, args::Server, paint::Paint},
    lines,
};
use crate::print;

/// What somebody waits before they are told that nobody answers.
const PATIENCE: Duration = Duration::from_secs(3);

/// Be present in a room.
#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The room.
    room: String,
    /// What sort of device to be.
    #[arg(long, default_value = "terminal")]
    kind: String,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    output: Output,
}

impl Join {
    /// Stays until Ctrl-C, and says goodbye.
    ///
    /// # Errors
    /// When the server turns it away.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let room = RoomId::new(self.room.as_str()).context("the room")?;
        let mut builder = Client::builder()
            .endpoint(self.server.server.as_str())
            .token(self.server.token())
            .kind(Kind::new(self.kind.as_str()).context("--kind")?)
            .room(room.clone())
            .watch(Topic::Room(room), Mode::Members);
        if let Some(pem) = self.server.ca_pem()? {
            builder = builder.tls(Tls::ca_pem(pem).context("--ca")?);
        }
        let (client, mut events) = builder.spawn().context("--server")?;
        let mut screen = Screen::new(self.output.json);
        let slow = tokio::time::sleep(PATIENCE);
        tokio::pin!(slow);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Event::Ended(reason)) => return ended(&reason),
                    Some(event) => screen.show(&event),
                    None => return Ok(ExitCode::SUCCESS),
                },
                () = &mut slow, if !screen.connected => {
                    screen.note(&format!(
                        "no server answers at {} yet; is it running? `adsum serve --dev` starts one",
                        self.server.server
                    ));
                    slow.as_mut().reset(tokio::time::Instant::now() + 10 * PATIENCE);
                }
                () = tokio::time::sleep(PATIENCE / 10), if screen.lost == Lost::Now => {
                    screen.note("the connection is lost; trying again");
                    screen.lost = Lost::Said;
                }
                stop = tokio::signal::ctrl_c() => {
                    stop.context("Ctrl-C can't be heard")?;
                    if screen.connected {
                        // Who is not there any more for the server needs no goodbye.
                        let _ = client.leave().await;
                        screen.note("goodbye");
                    }
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

fn ended(reason: &EndReason) -> Result<ExitCode> {
    match reason {
        EndReason::Left | EndReason::ClosedByApp => Ok(ExitCode::SUCCESS),
        EndReason::Unauthorized(_) | EndReason::TokenExpired => anyhow::bail!(
            "{reason}; give one with --token or ADSUM_TOKEN (`adsum token` mints one), or start the \
             server with --dev"
        ),
        reason => anyhow::bail!("{reason}"),
    }
}

/// What is on the terminal.
struct Screen {
    json: bool,
    paint: Paint,
    connected: bool,
    /// The first picture has been shown: changes are told from now on.
    shown: bool,
    lost: Lost,
}

/// Whether there was a connection, and is none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    No,
    /// Just now: it may be over for good, which is said better then.
    Now,
    Said,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self {
            json,
            paint: Paint::stdout(),
            connected: false,
            shown: false,
            lost: Lost::No,
        }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Connected { user, device, .. } => {
                let back = std::mem::replace(&mut self.lost, Lost::No) == Lost::Said;
                let first = !std::mem::replace(&mut self.connected, true);
                match (self.json, first) {
                    (true, _) => {
                        self.object(json!({"event": "connected", "user": user, "device": device}))
                    }
                    (false, true) => self.note(&format!(
                        "you are {user}, on device {device}; Ctrl-C says goodbye"
                    )),
                    (false, false) if back => self.note("connected again"),
                    (false, false) => {}
                }
            }
            Event::Disconnected => {
                self.lost = Lost::Now;
            }
            Event::Joined { item, .. } => self.line("joined", &value(item), lines::joined),
            Event::Updated { item, .. } => self.line("updated", &value(item), lines::updated),
            Event::Left { left, .. } => {
                let leave = json!({"user": left.user, "reason": left.reason});
                self.line("left", &leave, lines::left);
            }
            Event::Count { count, .. } if self.json => {
                self.object(json!({"event": "count", "count": count}));
            }
            Event::Stale { stale, .. } if self.json => {
                self.object(json!({"event": "stale", "stale": stale}));
            }
            Event::Stale { stale: true, .. } => {
                self.note("a part of the cluster can't be heard: some may be shown as they were");
            }
            Event::Stale { stale: false, .. } => {
                self.note("all of the cluster can be heard again");
            }
            Event::Synced { complete, mode, .. } => {
                self.shown = true;
                if *mode == Mode::Count {
                    self.note("the room is large: only its count is told");
                }
                if !complete {
                    self.note("a part of the cluster has not answered: more may follow");
                }
            }
            Event::Expiring { left } => {
                self.note(&format!("the token ends in {} s", left.as_secs()));
            }
            Event::Error(problem) => self.note(&format!("{} ({})", problem.message, problem.code)),
            _ => {}
        }
    }

    fn line(&self, event: &str, item: &Value, line: fn(&Value, Paint) -> String) {
        if self.json {
            let mut object = item.clone();
            object["event"] = json!(event);
            self.object(object);
        } else {
            print(&line(item, self.paint));
        }
    }

    fn object(&self, object: Value) {
        print(&object.to_string());
    }

    /// For people; nothing for programs.
    fn note(&self, text: &str) {
        if !self.json {
            print(&self.paint.dim(text));
        }
    }
}

fn value(item: &adsum_client::Item) -> Value {
    let meta = item.meta.as_ref();
    let meta = meta.and_then(|meta| serde_json::from_str::<Value>(meta.as_str()).ok());
    let devices: Vec<_> = item.devices.iter().map(Kind::as_str).collect();
    let mut object = json!({
        "user": item.user, "status": item.status.as_str(), "devices": devices, "since": item.since,
    });
    if let Some(meta) = meta {
        object["meta"] = meta;
    }
    object
}
