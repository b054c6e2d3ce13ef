//! A walk along every read and push path of the API, with the eyes of everybody who could look:
//! of those who may not be seen there is no trace, counts included, byte for byte as if they had
//! never existed; those who may see do see. A path that is not in the tables fails the walk.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use adsum_client::{Manual, Mode};
use adsum_proto::client::{
    FILE_DESCRIPTOR_SET,
    frame::{Hello, ServerBody, ServerFrame, Watch},
    v1,
};
use adsum_tests::eventually;
use anyhow::{Context, Result, ensure};
use prost::Message;
use serde_json::{Value, json};

use crate::{
    beats::Beater,
    http::Http,
    raw::{Heard, Raw, hello},
    stage::{Ends, Plan, Stage, Wire, grpc, with_token},
    watcher::topic,
    world::{Side, World},
};

/// What a path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Tells of others, once: walked.
    Reads,
    /// Tells of others, again and again: walked.
    Pushes,
    /// Tells the caller's own settings, or about the API.
    Own,
    /// Tells nothing but that it was done.
    Writes,
}
use Does::{Own, Pushes, Reads, Writes};

const HTTP: [(&str, &str, Does); 23] = [
    ("post", "/v1/heartbeat", Writes),
    ("delete", "/v1/sessions/{device}", Writes),
    ("get", "/v1/users/{user}", Reads),
    ("post", "/v1/users:batch", Reads),
    ("get", "/v1/users/{user}/last_seen", Reads),
    ("post", "/v1/last_seen:batch", Reads),
    ("get", "/v1/rooms/{room}", Reads),
    ("get", "/v1/rooms/{room}/count", Reads),
    ("get", "/v1/tenant/members", Reads),
    ("get", "/v1/tenant/count", Reads),
    ("get", "/v1/me/status", Own),
    ("put", "/v1/me/status", Writes),
    ("get", "/v1/me/visibility", Own),
    ("put", "/v1/me/visibility", Writes),
    ("get", "/v1/me/contacts", Own),
    ("put", "/v1/me/contacts", Writes),
    ("put", "/v1/users/{user}/status", Writes),
    ("put", "/v1/users/{user}/visibility", Writes),
    ("put", "/v1/users/{user}/contacts", Writes),
    // By services and by the user alone; how many were closed is what was done.
    ("delete", "/v1/users/{user}/sessions", Writes),
    ("delete", "/v1/users/{user}/sessions/{device}", Writes),
    ("get", "/v1/events", Pushes),
    ("get", "/v1/openapi.json", Own),
];

const GRPC: [(&str, Does); 12] = [
    ("Connect", Pushes),
    ("Watch", Pushes),
    ("Get", Reads),
    ("GetMany", Reads),
    ("Members", Reads),
    ("Count", Reads),
    ("LastSeen", Reads),
    ("SetStatus", Writes),
    ("SetVisibility", Writes),
    ("SetContacts", Writes),
    ("Heartbeat", Writes),
    ("Disconnect", Writes),
];

/// What a connection can be told; the two that tell of others are walked.
const FRAMES: [&str; 7] = [
    "welcome",
    "ack",
    "presence_state",
    "presence_diff",
    "reconnect",
    "error",
    "expiring",
];

/// Those who hide, and one who never was. Names of one length, so that bytes can be compared.
const HIDDEN: [&str; 3] = ["ivy", "cor", "ned"];
const NEVER: &str = "nix";

/// Somebody who looks.
struct Eye {
    name: &'static str,
    user: Option<&'static str>,
    token: String,
}

impl Eye {
    fn all(stage: &Stage) -> Result<Vec<Self>> {
        let user = |name, user: &'static str| {
            let token = stage.token(user)?;
            let user = Some(user);
            anyhow::Ok(Self { name, user, token })
        };
        let service = |name, token| Self {
            name,
            user: None,
            token,
        };
        Ok(vec![
            user("a stranger", "u-sam")?,
            user("a contact", "u-con")?,
            user("the invisible", "u-ivy")?,
            user("who is for contacts", "u-cor")?,
            user("who is for nobody", "u-ned")?,
            service("a service", stage.service_token()?),
            service("a service that sees all", stage.see_all_token()?),
        ])
    }

    fn sees(&self, who: &str) -> bool {
        let own = self.user.is_some_and(|user| user.ends_with(who));
        let all = self.name == "a service that sees all";
        all || own || (who == "cor" && self.user == Some("u-con"))
    }
}

/// As if it were about anybody.
fn anybody(text: &str, who: &str) -> String {
    text.replace(who, "xyz")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leaves_a_trace_in_one_process() -> Result<()> {
    walk(Arc::new(World::embedded("privacy").await?)).await
}

/// The walk, on any world.
pub(crate) async fn walk(world: Arc<World>) -> Result<()> {
    let stage = Stage::new(world, "privacy", Wire::Json);
    every_path_is_listed(&stage).await?;
    let eyes = Eye::all(&stage)?;
    let (pat, hidden) = people(&stage).await?;
    // Somebody watches throughout, so that every picture is whole before it is compared.
    let warm = Stream::open(&stage, &eyes[6], Kind::Sse, Mode::Members).await?;
    warm.until("everybody is there", |told| {
        let seen = |who: &&str| {
            told.iter()
                .any(|(_, text)| text.contains(&format!("u-{who}")))
        };
        HIDDEN.iter().all(seen) && told.len() >= TOPICS
    })
    .await?;
    reads(&stage, &eyes, true).await?;
    pushes(&stage, &eyes, &pat, hidden).await?;
    reads(&stage, &eyes, false).await?;
    stage.world.check()
}

/// The tables are what the API says of itself.
async fn every_path_is_listed(stage: &Stage) -> Result<()> {
    let http = stage.http(Side::A, stage.token("u-sam")?);
    let document = http.get("/v1/openapi.json").await?.ok()?.json()?;
    let paths = document["paths"].as_object().context("no paths")?;
    let methods = ["get", "put", "post", "delete", "patch", "head", "options"];
    let mut there = BTreeSet::new();
    for (path, item) in paths {
        let item = item.as_object().context("no methods")?;
        let used = methods.iter().filter(|m| item.contains_key(**m));
        there.extend(used.map(|method| ((*method).to_owned(), path.clone())));
    }
    let listed = HTTP
        .iter()
        .map(|(m, p, _)| ((*m).to_owned(), (*p).to_owned()));
    let listed: BTreeSet<_> = listed.collect();
    ensure!(
        there == listed,
        "walk what is new: {:?}",
        there.symmetric_difference(&listed).collect::<Vec<_>>()
    );
    let file = &FileSet::decode(FILE_DESCRIPTOR_SET)?.files;
    let services = file.iter().flat_map(|file| &file.services);
    let methods = services
        .flat_map(|service| &service.methods)
        .map(|m| m.name.as_str());
    let listed: BTreeSet<_> = GRPC.iter().map(|(name, _)| *name).collect();
    let there: BTreeSet<_> = methods.collect();
    ensure!(
        there == listed,
        "walk what is new: {:?}",
        there.symmetric_difference(&listed).collect::<Vec<_>>()
    );
    let mut messages = file.iter().flat_map(|file| &file.messages);
    let frame = messages.find(|message| message.name == "ServerFrame");
    let fields = &frame.context("no ServerFrame")?.fields;
    let there: BTreeSet<_> = fields.iter().map(|f| f.name.as_str()).collect();
    let listed: BTreeSet<_> = FRAMES.into_iter().chain(["ref"]).collect();
    ensure!(
        there == listed,
        "walk what is new: {:?}",
        there.symmetric_difference(&listed).collect::<Vec<_>>()
    );
    Ok(())
}

/// One whom everybody sees, in every room; and those who hide, each in a room of their own.
async fn people(stage: &Stage) -> Result<(Beater, Vec<(&'static str, Beater)>)> {
    let mut plan = Plan::of("u-pat");
    for who in HIDDEN.into_iter().chain([NEVER]) {
        plan = plan.room(&format!("r-{who}"));
    }
    let pat = stage.beat(plan).await?;
    stage
        .prefs("u-cor", Side::A)?
        .set_contacts(&["u-con"])
        .await?;
    stage
        .prefs("u-cor", Side::A)?
        .set_visibility("contacts")
        .await?;
    stage
        .prefs("u-ned", Side::A)?
        .set_visibility("nobody")
        .await?;
    let mut hidden = Vec::new();
    for who in HIDDEN {
        let mut plan = Plan::of(&format!("u-{who}")).room(&format!("r-{who}"));
        if who == "ivy" {
            plan = plan.status(Manual::Invisible);
        }
        hidden.push((who, stage.beat(plan).await?));
    }
    Ok((pat, hidden))
}

/// One way to ask.
struct Asked {
    path: &'static str,
    /// Of one person by name, of a room, or of all.
    text: String,
    /// What those see who may: the person. Not so in numbers.
    names: bool,
}

/// Asks in every way there is about this name.
async fn ask(stage: &Stage, eye: &Eye, who: &str, here: bool) -> Result<Vec<Asked>> {
    let http = stage.http(Side::B, eye.token.clone());
    let (user, room) = (format!("u-{who}"), format!("r-{who}"));
    let users = json!({"users": [user]});
    let mut asked = Vec::new();
    let mut add = |path, text: String, names| asked.push(Asked { path, text, names });
    add(
        "get /v1/users/{user}",
        whole(&http, &format!("/v1/users/{user}")).await?,
        here,
    );
    let seen = format!("/v1/users/{user}/last_seen");
    add(
        "get /v1/users/{user}/last_seen",
        whole(&http, &seen).await?,
        false,
    );
    let reply = http.post("/v1/users:batch", &users).await?.ok()?;
    add("post /v1/users:batch", reply.text(), here);
    let reply = http.post("/v1/last_seen:batch", &users).await?.ok()?;
    add("post /v1/last_seen:batch", reply.text(), false);
    add(
        "get /v1/rooms/{room}",
        whole(&http, &format!("/v1/rooms/{room}")).await?,
        here,
    );
    let count = format!("/v1/rooms/{room}/count");
    add(
        "get /v1/rooms/{room}/count",
        whole(&http, &count).await?,
        false,
    );
    let mut client = grpc(&http).await?;
    let token = &eye.token;
    let request = v1::GetRequest { user: user.clone() };
    let answer = client.get(with_token(request, token)?).await?.into_inner();
    add("Get", format!("{answer:?}"), here);
    let users = vec![user.clone()];
    let request = v1::GetManyRequest {
        users: users.clone(),
    };
    let answer = client
        .get_many(with_token(request, token)?)
        .await?
        .into_inner();
    add("GetMany", format!("{answer:?}"), here);
    let request = v1::LastSeenRequest { users };
    let answer = client
        .last_seen(with_token(request, token)?)
        .await?
        .into_inner();
    add("LastSeen", format!("{answer:?}"), false);
    let topic = format!("room:{room}");
    let request = v1::MembersRequest {
        topic: topic.clone(),
        page_size: 0,
        page_token: String::new(),
    };
    let answer = client
        .members(with_token(request, token)?)
        .await?
        .into_inner();
    add("Members", format!("{answer:?}"), here);
    let request = v1::CountRequest { topic };
    let answer = client
        .count(with_token(request, token)?)
        .await?
        .into_inner();
    add("Count", format!("{answer:?}"), false);
    Ok(asked)
}

async fn whole(http: &Http, path: &str) -> Result<String> {
    Ok(http.get(path).await?.ok()?.text())
}

/// While they are there, and after they have left.
async fn reads(stage: &Stage, eyes: &[Eye], here: bool) -> Result<()> {
    let mut walked = BTreeSet::new();
    for eye in eyes {
        let never = ask(stage, eye, NEVER, here).await?;
        for who in HIDDEN {
            for (found, never) in ask(stage, eye, who, here).await?.iter().zip(&never) {
                walked.insert(found.path);
                let name = eye.name;
                let (text, nobody) = (anybody(&found.text, who), anybody(&never.text, NEVER));
                let at = format!("{}: {name} about {who}: {}", found.path, found.text);
                if found.names && eye.sees(who) {
                    ensure!(
                        text != nobody && !text.contains("offline"),
                        "sees nobody: {at}"
                    );
                } else if here || !eye.sees(who) {
                    ensure!(text == nobody, "a trace, not {nobody}: {at}");
                } else if found.path.contains("ast_seen") || found.path == "LastSeen" {
                    // Who was always invisible has not been seen, not even by those who could.
                    let told = text != nobody;
                    ensure!(told || who == "ivy", "no last seen: {at}");
                }
            }
        }
        tenant(stage, eye, here, &mut walked).await?;
    }
    let listed = HTTP.iter().filter(|(_, _, does)| *does == Reads);
    let listed = listed.map(|(method, path, _)| format!("{method} {path}"));
    let of_grpc = GRPC.iter().filter(|(_, does)| *does == Reads);
    let listed = listed.chain(of_grpc.map(|(name, _)| (*name).to_owned()));
    for path in listed {
        ensure!(walked.contains(path.as_str()), "{path} was not walked");
    }
    Ok(())
}

/// The tenant as a whole: there is no other to compare it with.
async fn tenant(
    stage: &Stage,
    eye: &Eye,
    here: bool,
    walked: &mut BTreeSet<&'static str>,
) -> Result<()> {
    let http = stage.http(Side::B, eye.token.clone());
    let members = http.get("/v1/tenant/members").await?.ok()?.json()?;
    let users = |list: &Value| -> Vec<String> {
        let list = list.as_array().cloned().unwrap_or_default().into_iter();
        list.map(|item| item["user"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    let seen = HIDDEN.iter().filter(|who| here && eye.sees(who));
    let mut right: Vec<_> = seen.map(|who| format!("u-{who}")).collect();
    right.push("u-pat".to_owned());
    right.sort();
    let found = users(&members["members"]);
    ensure!(
        found == right,
        "{} finds {found:?}, not {right:?}",
        eye.name
    );
    let count = http.get("/v1/tenant/count").await?.ok()?.json()?;
    ensure!(count["count"] == 1, "{}: {count}", eye.name);
    let mut client = grpc(&http).await?;
    let topic = "tenant".to_owned();
    let request = v1::MembersRequest {
        topic: topic.clone(),
        page_size: 0,
        page_token: String::new(),
    };
    let answer = client
        .members(with_token(request, &eye.token)?)
        .await?
        .into_inner();
    let found: Vec<_> = answer.members.into_iter().map(|item| item.user).collect();
    ensure!(
        found == right,
        "{} finds {found:?}, not {right:?}",
        eye.name
    );
    let request = v1::CountRequest { topic };
    let answer = client
        .count(with_token(request, &eye.token)?)
        .await?
        .into_inner();
    ensure!(answer.count == 1, "{}: {answer:?}", eye.name);
    walked.extend(["get /v1/tenant/members", "get /v1/tenant/count"]);
    Ok(())
}

/// How somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connected(Wire),
    Sse,
    Watch,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Sse,
        Self::Watch,
        Self::Connected(Wire::Json),
        Self::Connected(Wire::Proto),
        Self::Connected(Wire::Grpc),
    ];
}

/// Rooms and users of the four, and the tenant.
const TOPICS: usize = 9;

fn topics() -> Vec<String> {
    let four = HIDDEN.into_iter().chain([NEVER]);
    let topics = four.flat_map(|who| [format!("room:r-{who}"), format!("user:u-{who}")]);
    topics.chain(["tenant".to_owned()]).collect()
}

/// All that one of them was told, by topic.
struct Stream {
    told: Arc<Mutex<Vec<(String, String)>>>,
    _task: Ends,
}

fn of_topic(frame: &ServerFrame) -> Option<String> {
    match &frame.body {
        ServerBody::PresenceState(state) => Some(state.topic.to_string()),
        ServerBody::PresenceDiff(diff) => Some(diff.topic.to_string()),
        _ => None,
    }
}

impl Stream {
    async fn open(stage: &Stage, eye: &Eye, kind: Kind, mode: Mode) -> Result<Self> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let book = told.clone();
        let keep = move |frame: &ServerFrame, text: String| {
            if let Some(topic) = of_topic(frame) {
                let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
                book.push((topic, text));
            }
        };
        let http = stage.http(Side::B, eye.token.clone());
        let task = match kind {
            Kind::Sse => {
                let mut query = format!("mode={}", mode.as_str());
                topics()
                    .iter()
                    .for_each(|name| query += &format!("&topic={name}"));
                let mut events = http.events(&query).await?;
                tokio::spawn(async move {
                    while let Some(event) = events.recv().await {
                        if let Ok(frame) = event.frame() {
                            // Its bytes as they came.
                            keep(&frame, event.data);
                        }
                    }
                })
            }
            Kind::Watch => {
                let mode = match mode {
                    Mode::Count => v1::Mode::Count,
                    _ => v1::Mode::Members,
                };
                let topics = topics().into_iter().map(|topic| v1::Watch {
                    topic,
                    mode: mode.into(),
                    digest: None,
                });
                let topics = topics.collect();
                let request = with_token(v1::WatchRequest { topics }, &eye.token)?;
                let mut stream = grpc(&http).await?.watch(request).await?.into_inner();
                tokio::spawn(async move {
                    while let Ok(Some(frame)) = stream.message().await {
                        if let Ok(frame) = frame.read() {
                            keep(&frame, format!("{frame:?}"));
                        }
                    }
                })
            }
            Kind::Connected(wire) => {
                let names = topics();
                let watch = names.iter().map(|name| {
                    Ok(Watch {
                        topic: topic(name)?,
                        mode,
                        digest: None,
                    })
                });
                let wish = Hello {
                    watch: watch.collect::<Result<_>>()?,
                    ..hello(&eye.token)
                };
                let mut raw = Raw::welcomed(wire, stage.address(Side::B), wish).await?;
                tokio::spawn(async move {
                    while let Ok(heard) = raw.hear_beating(Duration::from_secs(1)).await {
                        match heard {
                            Some(Heard::Frame(frame)) => keep(&frame, format!("{frame:?}")),
                            Some(Heard::Closed(_)) => return,
                            None => {}
                        }
                    }
                })
            }
        };
        let _task = Ends(task.abort_handle());
        Ok(Self { told, _task })
    }

    fn told(&self) -> Vec<(String, String)> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }

    async fn until(&self, what: &str, right: impl Fn(&[(String, String)]) -> bool) -> Result<()> {
        eventually(what, Duration::from_secs(20), || {
            let told = self.told();
            let ok = right(&told);
            async move {
                let last: Vec<_> = told.iter().rev().take(3).collect();
                ensure!(ok, "{} frames, the last of them {last:?}", told.len());
                Ok(())
            }
        })
        .await
    }
}

/// What everybody is told while the hidden ones change and go.
async fn pushes(
    stage: &Stage,
    eyes: &[Eye],
    pat: &Beater,
    hidden: Vec<(&'static str, Beater)>,
) -> Result<()> {
    let mut streams = Vec::new();
    for eye in eyes {
        for kind in Kind::ALL {
            if eye.user.is_none() && matches!(kind, Kind::Connected(_)) {
                // Nobody can be present with the token of a service.
                continue;
            }
            for mode in [Mode::Members, Mode::Count] {
                let opened = Stream::open(stage, eye, kind, mode).await;
                let opened = opened.with_context(|| format!("{} over {kind:?}", eye.name))?;
                streams.push((eye, kind, mode, opened));
            }
        }
    }
    for (eye, kind, mode, stream) in &streams {
        let what = format!("the states of {} over {kind:?} in {mode:?}", eye.name);
        stream.until(&what, |told| told.len() >= TOPICS).await?;
    }
    for (who, beater) in hidden {
        beater.set_meta(Some(r#"{"hidden":true}"#)).await?;
        beater.part(&format!("r-{who}")).await?;
        beater.join(&format!("r-{who}"), None).await?;
        beater.leave().await?;
    }
    pat.set_meta(Some(r#"{"mark":1}"#)).await?;
    for (eye, kind, mode, stream) in &streams {
        let at = format!("{} over {kind:?} in {mode:?}", eye.name);
        if *mode == Mode::Members {
            let marked = |told: &[(String, String)]| {
                let marks = told.iter().filter(|(_, text)| text.contains("mark"));
                marks.count() >= HIDDEN.len() + 2
            };
            stream.until(&format!("{at}: the mark"), marked).await?;
        }
        let told = stream.told();
        let by_topic = |topic: &str| -> String {
            let of = told.iter().filter(|(of, _)| of == topic);
            of.map(|(_, text)| text.as_str())
                .collect::<Vec<_>>()
                .join("\n")
        };
        for who in HIDDEN {
            for name in ["room:r-", "user:u-"] {
                let found = anybody(&by_topic(&format!("{name}{who}")), who);
                let nobody = anybody(&by_topic(&format!("{name}{NEVER}")), NEVER);
                // In a room nothing but its public may be counted; a user's topic has no count.
                let counted = *mode == Mode::Count && name == "room:r-";
                if counted || !eye.sees(who) {
                    ensure!(
                        found == nobody,
                        "{at}: a trace of {who}: {found}\nnot {nobody}"
                    );
                } else if *mode == Mode::Members {
                    let seen = ["\"user\":\"u-xyz\"", "user: \"u-xyz\""];
                    let gone = [
                        "\"leaves\":[{\"user\":\"u-xyz\"",
                        "leaves: [Left { user: \"u-xyz\"",
                    ];
                    let any = |texts: [&str; 2]| texts.iter().any(|text| found.contains(text));
                    ensure!(any(seen), "{at}: {who} is not seen: {found}");
                    ensure!(name == "user:u-" || any(gone), "{at}: {who} stays: {found}");
                }
            }
            if *mode == Mode::Members && !eye.sees(who) {
                let all = by_topic("tenant");
                ensure!(
                    !all.contains(&format!("u-{who}")),
                    "{at}: a trace of {who}: {all}"
                );
            }
        }
    }
    // Whoever watched with a connection says goodbye by breaking it; wait until they are gone.
    drop(streams);
    let http = stage.http(Side::B, stage.see_all_token()?);
    eventually("only one is left", Duration::from_secs(20), || async {
        let all = http.get("/v1/tenant/members").await?.ok()?.json()?;
        let left = all["members"].as_array().map_or(0, Vec::len);
        ensure!(left == 1, "{all}");
        Ok(())
    })
    .await
}

// The little of a file descriptor set that the walk reads.

#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(message, repeated, tag = "1")]
    files: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "4")]
    messages: Vec<Described>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct Described {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    fields: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(message, repeated, tag = "2")]
    methods: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}
