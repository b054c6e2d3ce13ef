//! As much of Socket.IO 4 over WebSocket as its clients of `bench/socketio` need, so that the same
//! generator measures both.

use serde_json::json;

use crate::speech::{Heard, Hello, Line};

/// Where its servers listen.
pub(crate) const PATH: &str = "/socket.io/?EIO=4&transport=websocket";
/// A sign of life, with an answer.
pub(crate) const BEAT: &str = "420[\"beat\"]";
/// Between two of them.
const BEAT_MS: u64 = 15_000;

/// Connects to the namespace. The user is the last part of the token.
pub(crate) fn hello(token: &str, hello: &Hello) -> Vec<u8> {
    let user = token.rsplit(':').next();
    let auth = json!({ "user": user, "rooms": hello.rooms });
    format!("40{auth}").into_bytes()
}

pub(crate) fn event(name: &str, word: &str) -> Vec<u8> {
    format!("42{}", json!([name, word])).into_bytes()
}

pub(crate) fn hear(frame: &[u8], mut lines: impl FnMut(Line<'_>)) -> Result<Heard, String> {
    let text = std::str::from_utf8(frame).map_err(|e| e.to_string())?;
    let Some((kind, rest)) = text.split_at_checked(2) else {
        return Ok(if text == "2" {
            Heard::Ping("3")
        } else {
            Heard::Other
        });
    };
    Ok(match kind {
        "40" => Heard::Welcome {
            heartbeat_ms: BEAT_MS,
        },
        "43" => Heard::Ack,
        "44" => Heard::Error(rest.to_owned()),
        "42" => return event_heard(rest, &mut lines),
        _ => Heard::Other,
    })
}

fn event_heard(text: &str, lines: &mut impl FnMut(Line<'_>)) -> Result<Heard, String> {
    // Most are these two, and their users have nothing to unescape.
    for (head, line) in [
        ("[\"join\",\"", Line::Join as fn(_) -> _),
        ("[\"leave\",\"", Line::Leave),
    ] {
        if let Some(user) = text
            .strip_prefix(head)
            .and_then(|rest| rest.strip_suffix("\"]"))
        {
            lines(line(user));
            return Ok(Heard::Diff);
        }
    }
    let event: Vec<serde_json::Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    Ok(match event.first().and_then(|name| name.as_str()) {
        Some("state") => Heard::State {
            members: event.get(2).and_then(|m| m.as_array()).map_or(0, Vec::len),
            complete: true,
        },
        _ => Heard::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_understood() {
        let heard = |text: &str| {
            let mut seen = Vec::new();
            let heard = hear(text.as_bytes(), |line| seen.push(format!("{line:?}")));
            (heard.unwrap(), seen)
        };
        assert_eq!(heard("2").0, Heard::Ping("3"));
        assert_eq!(heard("0{\"sid\":\"a\"}").0, Heard::Other);
        assert_eq!(
            heard("40{\"sid\":\"a\"}").0,
            Heard::Welcome {
                heartbeat_ms: BEAT_MS
            }
        );
        assert_eq!(heard("430[]").0, Heard::Ack);
        let state = Heard::State {
            members: 2,
            complete: true,
        };
        assert_eq!(heard("42[\"state\",\"r0\",[\"a\",\"b\"]]").0, state);
        let (diff, lines) = heard("42[\"leave\",\"x1\"]");
        assert_eq!(
            (diff, lines),
            (Heard::Diff, vec!["Leave(\"x1\")".to_owned()])
        );
    }
}
