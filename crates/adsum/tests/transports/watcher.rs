//! Somebody who watches, over any transport, and is told the same everywhere. Events are kept by
//! topic: within a topic their order counts, and nothing may come that was not expected.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use adsum_client::{Client, Event, Events, Item, Left, Mode, Reason, Topic, UserId};
use adsum_proto::client::{
    check,
    frame::{PresenceDiff, PresenceState, ServerBody, ServerFrame},
};
use anyhow::{Context, Result, bail, ensure};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// Far above what anything here takes: only a failure waits so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(25);

pub(crate) fn topic(text: &str) -> Result<Topic> {
    check::topic(text).map_err(|fault| anyhow::anyhow!("{text}: {fault:?}"))
}

enum Source {
    Client(Events),
    Frames(mpsc::UnboundedReceiver<Result<ServerFrame>>, Rosters),
}

/// Somebody who watches.
pub(crate) struct Watcher {
    /// Of those with a connection.
    pub(crate) client: Option<Client>,
    source: Source,
    user: String,
    /// Joins, updates and leaves that nobody has asked for yet.
    waiting: HashMap<Topic, VecDeque<Event>>,
    syncs: HashMap<Topic, VecDeque<(Mode, bool)>>,
    counts: HashMap<Topic, VecDeque<u64>>,
    others: VecDeque<Event>,
    over: bool,
}

impl Watcher {
    pub(crate) fn of_client(user: &str, client: Client, events: Events) -> Self {
        Self::new(user, Some(client), Source::Client(events))
    }

    pub(crate) fn of_frames(
        user: &str,
        frames: mpsc::UnboundedReceiver<Result<ServerFrame>>,
    ) -> Self {
        Self::new(user, None, Source::Frames(frames, Rosters::default()))
    }

    fn new(user: &str, client: Option<Client>, source: Source) -> Self {
        Self {
            client,
            source,
            user: user.to_owned(),
            waiting: HashMap::new(),
            syncs: HashMap::new(),
            counts: HashMap::new(),
            others: VecDeque::new(),
            over: false,
        }
    }

    async fn take(&mut self, by: Instant) -> Result<()> {
        ensure!(!self.over, "{} watches no more", self.user);
        let events = match &mut self.source {
            Source::Client(events) => {
                let event = timeout_at(by, events.next())
                    .await
                    .context("nothing came")?;
                self.over = event.is_none();
                event.into_iter().collect()
            }
            Source::Frames(frames, rosters) => {
                match timeout_at(by, frames.recv())
                    .await
                    .context("nothing came")?
                {
                    Some(frame) => rosters.events(frame?)?,
                    None => {
                        self.over = true;
                        Vec::new()
                    }
                }
            }
        };
        events.into_iter().for_each(|event| self.keep(event));
        Ok(())
    }

    fn keep(&mut self, event: Event) {
        match &event {
            Event::Joined { topic, item } | Event::Updated { topic, item } => {
                // Whoever watches with a connection is in the tenant, too.
                if item.user.as_str() != self.user {
                    self.waiting
                        .entry(topic.clone())
                        .or_default()
                        .push_back(event);
                }
            }
            Event::Left { topic, left } => {
                if left.user.as_str() != self.user {
                    self.waiting
                        .entry(topic.clone())
                        .or_default()
                        .push_back(event);
                }
            }
            Event::Synced {
                topic,
                mode,
                resumed,
                ..
            } => {
                let syncs = self.syncs.entry(topic.clone()).or_default();
                syncs.push_back((*mode, *resumed));
            }
            Event::Count { topic, count } => {
                self.counts
                    .entry(topic.clone())
                    .or_default()
                    .push_back(*count);
            }
            _ => self.others.push_back(event),
        }
    }

    /// What happens next in a topic.
    pub(crate) async fn next(&mut self, topic: &Topic) -> Result<Event> {
        let by = Instant::now() + LIMIT;
        loop {
            if let Some(event) = self.waiting.get_mut(topic).and_then(VecDeque::pop_front) {
                return Ok(event);
            }
            let took = self.take(by).await;
            took.with_context(|| format!("{} waited for news of {topic}", self.user))?;
        }
    }

    /// The first state has come, or another one.
    pub(crate) async fn synced(&mut self, name: &str) -> Result<(Mode, bool)> {
        let topic = topic(name)?;
        let by = Instant::now() + LIMIT;
        loop {
            if let Some(sync) = self.syncs.get_mut(&topic).and_then(VecDeque::pop_front) {
                return Ok(sync);
            }
            let took = self.take(by).await;
            took.with_context(|| format!("{} waited for the state of {name}", self.user))?;
        }
    }

    /// Waits until a topic is told in this mode.
    pub(crate) async fn mode(&mut self, name: &str, mode: Mode) -> Result<()> {
        while self.synced(name).await?.0 != mode {}
        Ok(())
    }

    /// Waits until a topic has this count.
    pub(crate) async fn counted(&mut self, name: &str, count: u64) -> Result<()> {
        let topic = topic(name)?;
        let by = Instant::now() + LIMIT;
        let mut last = None;
        loop {
            while let Some(told) = self.counts.get_mut(&topic).and_then(VecDeque::pop_front) {
                last = Some(told);
                if told == count {
                    return Ok(());
                }
            }
            let took = self.take(by).await;
            took.with_context(|| format!("waited for {count} in {name}, were told {last:?}"))?;
        }
    }

    /// The next thing in the topic is that this user comes.
    pub(crate) async fn joined(&mut self, name: &str, user: &str) -> Result<Arc<Item>> {
        match self.next(&topic(name)?).await? {
            Event::Joined { item, .. } if item.user.as_str() == user => Ok(item),
            other => bail!("{name}: {user} was to join, and then came {other:?}"),
        }
    }

    /// The next thing in the topic is that this user changes.
    pub(crate) async fn updated(&mut self, name: &str, user: &str) -> Result<Arc<Item>> {
        match self.next(&topic(name)?).await? {
            Event::Updated { item, .. } if item.user.as_str() == user => Ok(item),
            other => bail!("{name}: {user} was to change, and then came {other:?}"),
        }
    }

    /// The next thing in the topic is that this user leaves, for this reason.
    pub(crate) async fn left(
        &mut self,
        name: &str,
        user: &str,
        reason: impl Into<Option<Reason>>,
    ) -> Result<Arc<Left>> {
        let reason = reason.into();
        match self.next(&topic(name)?).await? {
            Event::Left { left, .. } if left.user.as_str() == user => {
                ensure!(left.reason == reason, "not {reason:?}: {left:?}");
                Ok(left)
            }
            other => bail!("{name}: {user} was to leave, and then came {other:?}"),
        }
    }

    /// The next thing that is about no topic.
    pub(crate) async fn other(&mut self) -> Result<Event> {
        let by = Instant::now() + LIMIT;
        loop {
            if let Some(event) = self.others.pop_front() {
                return Ok(event);
            }
            self.take(by).await?;
        }
    }

    /// Waits until it is over; answers how the server explained it.
    pub(crate) async fn ended(&mut self) -> Result<Vec<Event>> {
        let by = Instant::now() + LIMIT;
        while !self.over {
            self.take(by).await?;
        }
        Ok(self.others.drain(..).collect())
    }

    /// Applies all that happens in a topic until it looks as it should. Nobody may come twice or
    /// leave without having come.
    pub(crate) async fn converge(
        &mut self,
        name: &str,
        known: &mut BTreeMap<UserId, Arc<Item>>,
        right: impl Fn(&BTreeMap<UserId, Arc<Item>>) -> bool,
    ) -> Result<()> {
        let topic = topic(name)?;
        while !right(known) {
            let event = self.next(&topic).await;
            let event = event.with_context(|| format!("{} are there", known.len()))?;
            apply(known, event)?;
        }
        Ok(())
    }

    /// What has come and nobody has asked for.
    pub(crate) fn unasked(&self, name: &str) -> Result<usize> {
        Ok(self.waiting.get(&topic(name)?).map_or(0, VecDeque::len))
    }
}

fn apply(known: &mut BTreeMap<UserId, Arc<Item>>, event: Event) -> Result<()> {
    match event {
        Event::Joined { item, .. } => {
            let before = known.insert(item.user.clone(), item.clone());
            ensure!(before.is_none(), "joined twice: {item:?}");
        }
        Event::Updated { item, .. } => {
            let before = known.insert(item.user.clone(), item.clone());
            let before = before.with_context(|| format!("changed and was not there: {item:?}"))?;
            ensure!(before.v < item.v, "older after newer: {before:?} {item:?}");
        }
        Event::Left { left, .. } => {
            let before = known.remove(&left.user);
            ensure!(before.is_some(), "left and was not there: {left:?}");
        }
        other => bail!("{other:?}"),
    }
    Ok(())
}

/// Turns frames into what our client would tell, and checks that none is missing.
#[derive(Default)]
struct Rosters(HashMap<Topic, Roster>);

#[derive(Default)]
struct Roster {
    offset: u64,
    mode: Option<Mode>,
    known: BTreeMap<UserId, Arc<Item>>,
}

impl Rosters {
    fn events(&mut self, frame: ServerFrame) -> Result<Vec<Event>> {
        match frame.body {
            ServerBody::PresenceState(state) => self.state(state),
            ServerBody::PresenceDiff(diff) => self.diff(diff),
            ServerBody::Error(problem) => Ok(vec![Event::Error(problem)]),
            other => bail!("not for those who only watch: {other:?}"),
        }
    }

    fn at(&mut self, topic: &Topic, offset: u64) -> Result<&mut Roster> {
        let roster = self.0.entry(topic.clone()).or_default();
        roster.offset += 1;
        ensure!(offset == roster.offset, "{topic}: a gap before {offset}");
        Ok(roster)
    }

    fn state(&mut self, state: PresenceState) -> Result<Vec<Event>> {
        let topic = &state.topic;
        let roster = self.at(topic, state.offset)?;
        let members = state.members.context("unchanged, and nothing was known")?;
        let mut events = Vec::new();
        if state.mode == Mode::Count {
            roster.known.clear();
        } else {
            let members = members.members.into_iter().map(Arc::new);
            let now: BTreeMap<_, _> = members.map(|item| (item.user.clone(), item)).collect();
            for (user, item) in &now {
                let (topic, item) = (topic.clone(), item.clone());
                match roster.known.get(user) {
                    None => events.push(Event::Joined { topic, item }),
                    Some(known) if known.v != item.v => {
                        events.push(Event::Updated { topic, item });
                    }
                    Some(_) => {}
                }
            }
            for (user, item) in &roster.known {
                if !now.contains_key(user) {
                    let left = Arc::new(Left {
                        user: user.clone(),
                        reason: None,
                        last_seen: None,
                        v: item.v,
                    });
                    let topic = topic.clone();
                    events.push(Event::Left { topic, left });
                }
            }
            roster.known = now;
        }
        roster.mode = Some(state.mode);
        events.push(Event::Synced {
            topic: topic.clone(),
            mode: state.mode,
            complete: members.complete,
            resumed: false,
        });
        if let Some(count) = members.count {
            let topic = topic.clone();
            events.push(Event::Count { topic, count });
        }
        Ok(events)
    }

    fn diff(&mut self, diff: PresenceDiff) -> Result<Vec<Event>> {
        let topic = &diff.topic;
        let roster = self.at(topic, diff.offset)?;
        let mut events = Vec::new();
        let named = diff.joins.len() + diff.updates.len() + diff.leaves.len();
        ensure!(roster.mode != Some(Mode::Count) || named == 0, "{diff:?}");
        for item in diff.joins {
            let (topic, item) = (topic.clone(), Arc::new(item));
            events.push(Event::Joined { topic, item });
        }
        for item in diff.updates {
            let (topic, item) = (topic.clone(), Arc::new(item));
            events.push(Event::Updated { topic, item });
        }
        for left in diff.leaves {
            let (topic, left) = (topic.clone(), Arc::new(left));
            events.push(Event::Left { topic, left });
        }
        for event in &events {
            apply(&mut roster.known, event.clone())?;
        }
        if let Some(count) = diff.count {
            let topic = topic.clone();
            events.push(Event::Count { topic, count });
        }
        Ok(events)
    }
}
