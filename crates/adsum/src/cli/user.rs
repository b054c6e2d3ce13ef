//! `user`, `kick` and `purge`: one user, looked at and acted on.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::{
    Internal, Output,
    args::{Server, Tenant},
    ask::{Ask, segment},
    paint::{Paint, ago, printable},
};
use crate::{clock, print};

/// How a user is now.
#[derive(Debug, Args)]
pub(crate) struct User {
    /// The user.
    user: String,
    /// Why they are online, or not: devices, holders, deadlines, shard, owners. Asks the internal
    /// port, and sees everybody.
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    internal: Internal,
    #[command(flatten)]
    output: Output,
}

impl User {
    /// Prints it.
    ///
    /// # Errors
    /// When nothing answers, or it may not be asked.
    pub(super) async fn run(self) -> Result<()> {
        let user = if self.why {
            let tenant = segment(self.server.tenant());
            let path = format!("/admin/users/{tenant}/{}", segment(&self.user));
            Ask::internal(&self.internal).get(&path).await?
        } else {
            let ask = Ask::public(&self.server, self.server.onlooker())?;
            ask.get(&format!("/v1/users/{}", segment(&self.user)))
                .await?
        };
        let paint = Paint::stdout();
        print(&match (self.output.json, self.why) {
            (true, _) => user.to_string(),
            (false, true) => why(&user, paint),
            (false, false) => brief(&user, paint),
        });
        Ok(())
    }
}

/// One line about a person, as the public API tells it.
pub(super) fn brief(user: &Value, paint: Paint) -> String {
    let text = |key: &str| printable(user[key].as_str().unwrap_or_default());
    let mut line = format!(
        "{}  {}",
        paint.bold(&text("user")),
        paint.status(&text("status"))
    );
    let devices = user["devices"].as_array().into_iter().flatten();
    let devices: Vec<_> = devices.filter_map(Value::as_str).map(printable).collect();
    if !devices.is_empty() {
        line += &format!("  {}", devices.join(", "));
    }
    if let Some(since) = user["since"].as_u64() {
        let past = clock::now_ms().saturating_sub(since);
        line += &paint.dim(&format!("  for {}", ago(past)));
    }
    if let Some(seen) = user["last_seen_s"].as_u64() {
        line += &paint.dim(&format!("  last seen {}", adsum_client::ago(seen)));
    }
    line
}

/// All that keeps a user online, in words.
fn why(user: &Value, paint: Paint) -> String {
    let text = |value: &Value| printable(value.as_str().unwrap_or("-"));
    let now = clock::now_ms();
    let mut lines = vec![format!(
        "{} of {} is {}{}",
        paint.bold(&text(&user["user"])),
        text(&user["tenant"]),
        paint.status(&text(&user["status"])),
        if user["settling"] == true {
            ", but the shard settles: absence means nothing yet"
        } else {
            ""
        },
    )];
    if let Some(manual) = user["manual"].as_str() {
        lines.push(format!("  set by hand: {}", paint.status(manual)));
    }
    if user["visibility"] != "everyone" {
        lines.push(format!("  visible to {}", text(&user["visibility"])));
    }
    let sessions: Vec<_> = user["sessions"].as_array().into_iter().flatten().collect();
    if sessions.is_empty() {
        let seen = user["last_seen"].as_u64();
        let seen = seen.map(|at| {
            let seconds = now.saturating_sub(at) / 1000;
            format!("; last seen {}", adsum_client::ago(seconds))
        });
        lines.push(format!("  no device is there{}", seen.unwrap_or_default()));
    }
    for session in sessions {
        lines.extend(session_lines(session, paint, now));
    }
    let names = user["dispatchers"].as_array().into_iter().flatten();
    let names: Vec<_> = names.map(text).collect();
    lines.push(format!(
        "  shard {}: dispatched by {}, reaped by {}",
        user["shard"],
        if names.is_empty() {
            "nobody".to_owned()
        } else {
            names.join(", ")
        },
        user["reaper"]
            .as_str()
            .map_or_else(|| "nobody".to_owned(), printable),
    ));
    lines.join("\n")
}

fn session_lines(session: &Value, paint: Paint, now: u64) -> Vec<String> {
    let text = |key: &str| printable(session[key].as_str().unwrap_or("-"));
    let opened = session["opened_at"].as_u64().unwrap_or(now);
    let held = match session["gateway"].as_str() {
        Some(gateway) => format!("held by {}", printable(gateway)),
        None => "beats over HTTP".to_owned(),
    };
    let deadline = match (
        &session["deadline"]["of"],
        session["deadline"]["left_ms"].as_i64(),
    ) {
        (Value::String(of), Some(left)) if left < 0 => paint.red(&format!("{of} is overdue")),
        (Value::String(of), Some(left)) => {
            format!("{of} has {} left", ago(left.unsigned_abs()))
        }
        _ => paint.yellow("no deadline is known"),
    };
    let mut lines = vec![
        format!(
            "  {} {} {} for {}",
            paint.bold(&text("device")),
            text("kind"),
            paint.status(&text("activity")),
            ago(now.saturating_sub(opened)),
        ),
        format!("    {held}: {deadline}"),
        paint.dim(&format!(
            "    conn {} rev {}",
            session["conn"], session["rev"]
        )),
    ];
    let rooms = session["rooms"].as_array().into_iter().flatten();
    let rooms: Vec<_> = rooms
        .filter_map(|r| r["room"].as_str())
        .map(printable)
        .collect();
    if !rooms.is_empty() {
        lines.push(format!("    in {}", rooms.join(", ")));
    }
    lines
}

/// Close the sessions of a user.
#[derive(Debug, Args)]
pub(crate) struct Kick {
    /// The user.
    user: String,
    /// Only this device.
    #[arg(long)]
    device: Option<String>,
    #[command(flatten)]
    tenant: Tenant,
    #[command(flatten)]
    internal: Internal,
    #[command(flatten)]
    output: Output,
}

impl Kick {
    /// Does it.
    ///
    /// # Errors
    /// When nothing answers there.
    pub(super) async fn run(self) -> Result<()> {
        let mut ask = json!({"tenant": self.tenant.id()?, "user": self.user});
        if let Some(device) = &self.device {
            ask["device"] = json!(device);
        }
        let answer = Ask::internal(&self.internal)
            .post("/admin/kick", &ask)
            .await?;
        let closed = answer["closed"].as_array().map_or(0, Vec::len);
        print(&match (self.output.json, closed) {
            (true, _) => answer.to_string(),
            (false, 0) => "nothing to close: no such session".to_owned(),
            (false, 1) => "1 session closed".to_owned(),
            (false, n) => format!("{n} sessions closed"),
        });
        Ok(())
    }
}

/// Forget a user.
#[derive(Debug, Args)]
pub(crate) struct Purge {
    /// The user.
    user: String,
    #[command(flatten)]
    tenant: Tenant,
    #[command(flatten)]
    internal: Internal,
}

impl Purge {
    /// Does it.
    ///
    /// # Errors
    /// When nothing answers there.
    pub(super) async fn run(self) -> Result<()> {
        let ask = json!({"tenant": self.tenant.id()?, "user": self.user});
        Ask::internal(&self.internal)
            .post("/admin/purge", &ask)
            .await?;
        print("forgotten: sessions, settings, contacts and last seen");
        Ok(())
    }
}
