//! `watch`: who comes and goes in a topic, without being there: over Server-Sent Events.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use adsum_client::Topic;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use hyper::Method;
use serde_json::Value;

use super::{
    super::{
        Output,
        args::Server,
        ask::{Ask, segment},
        paint::Paint,
    },
    events::Events,
    lines,
};
use crate::print;

/// Pauses between two tries: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// How much to tell.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeWord {
    /// Every diff.
    Members,
    /// One diff a second.
    Interval,
    /// The count, and a sample.
    Count,
}

/// See who comes and goes.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// room:<id>, user:<id> or tenant; a word alone is a room.
    topic: String,
    /// How much to be told.
    #[arg(long, value_enum, default_value = "members")]
    mode: ModeWord,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    output: Output,
}

impl Watch {
    /// Looks until Ctrl-C.
    ///
    /// # Errors
    /// When nobody answers at first, or it may not be looked at.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        tokio::select! {
            looked = self.look() => looked,
            stop = tokio::signal::ctrl_c() => {
                stop.context("Ctrl-C can't be heard")?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    async fn look(&self) -> Result<ExitCode> {
        let topic = topic(&self.topic)?;
        let ask = Ask::public(&self.server, self.server.onlooker())?;
        let mode = self.mode.to_possible_value();
        let mode = mode.map_or_else(String::new, |mode| format!("&mode={}", mode.get_name()));
        let path = format!("/v1/events?topic={}{mode}", segment(&topic.to_string()));
        let mut screen = Screen::new(self.output.json);
        let mut events = Events::new(ask.stream(Method::GET, &path).await?);
        loop {
            if let Ok(Some(frame)) = events.next().await {
                screen.show(&frame);
                continue;
            }
            screen.note("the connection is lost; trying again");
            let mut pause = PAUSES.0;
            events = loop {
                tokio::time::sleep(pause).await;
                match ask.stream(Method::GET, &path).await {
                    Ok(body) => break Events::new(body),
                    Err(_) => pause = (2 * pause).min(PAUSES.1),
                }
            };
            screen.note("connected again");
        }
    }
}

fn topic(text: &str) -> Result<Topic> {
    match text.contains(':') || text == "tenant" {
        true => text.parse(),
        false => format!("room:{text}").parse(),
    }
    .with_context(|| format!("{text:?} can't be watched"))
}

/// What is on the terminal, and what is known: a state is told as the difference to it.
struct Screen {
    json: bool,
    paint: Paint,
    known: BTreeMap<String, Value>,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self {
            json,
            paint: Paint::stdout(),
            known: BTreeMap::new(),
        }
    }

    fn show(&mut self, frame: &Value) {
        if self.json {
            return print(&frame.to_string());
        }
        for line in self.lines(frame) {
            print(&line);
        }
    }

    /// For people; nothing for programs.
    fn note(&self, text: &str) {
        if !self.json {
            print(&self.paint.dim(text));
        }
    }

    fn lines(&mut self, frame: &Value) -> Vec<String> {
        match frame["type"].as_str() {
            Some("presence_state") => self.state(frame),
            Some("presence_diff") => self.diff(frame),
            Some("error") => {
                let said = frame["message"].as_str().unwrap_or_default();
                vec![self.paint.red(said)]
            }
            _ => Vec::new(),
        }
    }

    fn state(&mut self, frame: &Value) -> Vec<String> {
        if frame["unchanged"] == true {
            return Vec::new();
        }
        if frame["mode"] == "count" {
            self.known.clear();
            let count = frame["count"].as_u64().unwrap_or(0);
            return vec![lines::count(count, self.paint)];
        }
        let members: Vec<_> = list(frame, "members").collect();
        let mut told = Vec::new();
        // Nobody is missed before all of the cluster has answered.
        if frame["complete"] != false {
            let is_there = |user: &str| members.iter().any(|m| m["user"] == user);
            let gone: Vec<_> = self
                .known
                .keys()
                .filter(|u| !is_there(u))
                .cloned()
                .collect();
            for user in gone {
                self.known.remove(&user);
                told.push(lines::left(
                    &serde_json::json!({ "user": user }),
                    self.paint,
                ));
            }
        }
        told.extend(members.into_iter().filter_map(|item| self.there(item)));
        told
    }

    fn diff(&mut self, frame: &Value) -> Vec<String> {
        let mut told = Vec::new();
        for leave in list(frame, "leaves") {
            self.known
                .remove(leave["user"].as_str().unwrap_or_default());
            told.push(lines::left(leave, self.paint));
        }
        for item in list(frame, "joins").chain(list(frame, "updates")) {
            told.extend(self.there(item));
        }
        match (told.is_empty(), frame["count"].as_u64()) {
            (true, Some(count)) => vec![lines::count(count, self.paint)],
            _ => told,
        }
    }

    fn there(&mut self, item: &Value) -> Option<String> {
        let user = item["user"].as_str()?.to_owned();
        let before = self.known.insert(user, item.clone());
        match before {
            None => Some(lines::joined(item, self.paint)),
            Some(before) if before == *item => None,
            Some(_) => Some(lines::updated(item, self.paint)),
        }
    }
}

fn list<'a>(frame: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    frame[key].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_word_alone_is_a_room() {
        assert_eq!(topic("lobby").unwrap().to_string(), "room:lobby");
        assert_eq!(topic("user:ann").unwrap().to_string(), "user:ann");
        assert_eq!(topic("tenant").unwrap(), Topic::Tenant);
        let said = format!("{:#}", topic("house:x").unwrap_err());
        assert!(said.contains("room:<id>"), "{said}");
    }

    #[test]
    fn a_state_is_told_as_the_difference() {
        let mut screen = Screen::new(false);
        let item = |user: &str, v: &str| json!({"user": user, "status": "online", "v": v});
        let state = |members: &[Value], complete: bool| json!({"type": "presence_state", "members": members, "complete": complete});
        let told = screen.lines(&state(&[item("ann", "1"), item("bob", "1")], true));
        assert_eq!(told, ["+ ann online", "+ bob online"]);
        let told = screen.lines(
            &json!({"type": "presence_diff", "leaves": [{"user": "bob", "reason": "leave"}]}),
        );
        assert_eq!(told, ["- bob said goodbye"]);
        let told = screen.lines(&state(&[item("eve", "1")], false));
        assert_eq!(told, ["+ eve online"]);
        let told = screen.lines(&state(&[item("eve", "2")], true));
        assert_eq!(told, ["- ann is gone", "~ eve online"]);
    }
}
