//! Watchers that hold what they are told against the rules, and the truth to compare them with.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use adsum_core::{Diff, Item, Person, TenantId, Topic, UserId, UserKey, load, store::Store};
use adsum_gateway::feed::{Feed, TopicEvent, Watch};
use adsum_tests::eventually;
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use tokio::{task::AbortHandle, time::Instant};

use crate::gateway::{Commit, Ledger, TENANT};

/// Something that a watcher was told of a user: the operation's number, or that they left.
#[derive(Debug, Clone, Copy)]
enum Word {
    Number(u64),
    Left,
}

/// What one watcher was told, and what was wrong with it.
#[derive(Default)]
struct Told {
    /// When the first picture was there.
    began: Option<Instant>,
    here: HashMap<UserId, Arc<Item>>,
    /// The highest number of each user, also of those who left.
    numbers: HashMap<UserId, u64>,
    arrivals: HashMap<UserId, Vec<(Word, Instant)>>,
    wrongs: Vec<String>,
    joins: usize,
    leaves: usize,
    updates: usize,
    resyncs: usize,
}

impl Told {
    fn wrong(&mut self, what: &str, item: &Item) {
        let before = self.here.get(&item.user);
        let told = format!("{what}: {item:?}, before: {before:?}");
        self.wrongs.push(told);
    }

    fn begin(&mut self, items: &[Arc<Item>]) {
        self.here = items.iter().map(|i| (i.user.clone(), i.clone())).collect();
        for item in items {
            self.arrived(&item.user, Word::Number(number(item)));
        }
        self.began.get_or_insert_with(Instant::now);
    }

    fn arrived(&mut self, user: &UserId, word: Word) {
        let words = self.arrivals.entry(user.clone()).or_default();
        words.push((word, Instant::now()));
        if let Word::Number(n) = word {
            self.numbers.insert(user.clone(), n);
        }
    }

    fn take(&mut self, diff: &Diff, everybody_stays: bool) {
        self.joins += diff.joins.len();
        self.leaves += diff.leaves.len();
        self.updates += diff.updates.len();
        for item in &diff.joins {
            if self.here.contains_key(&item.user) {
                self.wrong("a join of one who is here", item);
            }
            self.newer(item);
        }
        for item in &diff.updates {
            match self.here.get(&item.user).cloned() {
                None => self.wrong("an update of one who is not here", item),
                Some(known) if known.looks_like(item) => {
                    self.wrong("an update without a difference", item);
                }
                Some(known) if known.v > item.v => self.wrong("an older version", item),
                Some(_) => {}
            }
            self.newer(item);
        }
        for leave in &diff.leaves {
            let user = &leave.item.user;
            if everybody_stays && user.as_str().starts_with("stay-") {
                self.wrong(&format!("a false leave ({:?})", leave.reason), &leave.item);
            }
            if self.here.remove(user).is_none() {
                self.wrong("a leave of one who is not here", &leave.item);
            }
            self.arrived(user, Word::Left);
        }
    }

    fn newer(&mut self, item: &Arc<Item>) {
        let (user, n) = (&item.user, number(item));
        // One who left and came back by a failover that lost their goodbye may be older.
        let known = self.numbers.get(user).copied().unwrap_or_default();
        if known > n && (self.here.contains_key(user) || user.as_str().starts_with("stay-")) {
            self.wrong(&format!("an older state than {known}"), item);
        }
        self.here.insert(user.clone(), item.clone());
        self.arrived(user, Word::Number(n));
    }
}

/// The number of the operation that made an item.
fn number(item: &Item) -> u64 {
    let text = item.meta.as_ref().map_or("", |meta| meta.as_str());
    let digits = text
        .strip_prefix("{\"n\":")
        .and_then(|t| t.strip_suffix('}'));
    digits.and_then(|d| d.parse().ok()).unwrap_or_default()
}

/// One watcher of one topic.
pub(crate) struct Watcher {
    name: String,
    topic: Topic,
    told: Arc<Mutex<Told>>,
    task: AbortHandle,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    pub(crate) fn start(feed: &Feed, client: &str, topic: &str) -> Result<Self> {
        let topic: Topic = topic.parse()?;
        let told = Arc::new(Mutex::new(Told::default()));
        let watch = feed.watch(TenantId::new(TENANT)?, topic.clone());
        let task = tokio::spawn(listen(watch, topic.clone(), told.clone()));
        Ok(Self {
            name: format!("{client} on {topic}"),
            topic,
            told,
            task: task.abort_handle(),
        })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        lock(&self.told)
    }

    pub(crate) fn ready(&self) -> bool {
        self.told().began.is_some()
    }

    /// How many events of each kind came: joins, leaves, updates.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let told = self.told();
        (told.joins, told.leaves, told.updates)
    }

    /// Nothing that was told broke a rule, and nothing had to be told anew.
    pub(crate) fn check(&self) -> Result<()> {
        let told = self.told();
        if let Some(first) = told.wrongs.first() {
            anyhow::bail!("{}: {} wrongs, first {first}", self.name, told.wrongs.len());
        }
        ensure!(told.resyncs == 0, "{} was too slow", self.name);
        Ok(())
    }

    fn equals(&self, truth: &Truth) -> Result<()> {
        let told = self.told();
        let expected = truth.of(&self.topic);
        for (user, item) in &expected {
            let known = told.here.get(user);
            let known = known.with_context(|| format!("{} misses {item:?}", self.name))?;
            ensure!(
                known.looks_like(item),
                "{} has {known:?} for {item:?}",
                self.name
            );
        }
        let more = told.here.keys().find(|user| !expected.contains_key(*user));
        ensure!(more.is_none(), "{} has {more:?} too much", self.name);
        Ok(())
    }

    /// For every operation since it began that this watcher must hear of: when it was answered,
    /// and how long it then took until this state or a later one was here.
    pub(crate) fn delays(&self, ledger: &Ledger) -> Vec<(Instant, Duration)> {
        let told = self.told();
        let mut delays = Vec::new();
        for (user, commits) in ledger.commits() {
            let concerned = match &self.topic {
                Topic::Tenant => true,
                Topic::User(own) => *own == user,
                // Everybody is in the lobby; of other rooms no number tells who left.
                Topic::Room(room) => room.as_str() == "lobby",
            };
            if concerned && let Some(words) = told.arrivals.get(&user) {
                delays_of(&commits, words, &mut delays);
            }
        }
        delays.retain(|(at, _)| told.began.is_some_and(|began| began <= *at));
        delays
    }
}

fn delays_of(commits: &[Commit], words: &[(Word, Instant)], delays: &mut Vec<(Instant, Duration)>) {
    let mut waiting = commits.iter().peekable();
    let mut last = 0;
    for (word, at) in words {
        last = match word {
            Word::Number(n) => last.max(*n),
            Word::Left => {
                let next = commits.iter().find(|c| c.leave && c.number > last);
                next.map_or(last, |c| c.number)
            }
        };
        while let Some(commit) = waiting.next_if(|c| c.number <= last) {
            delays.push((commit.at, at.saturating_duration_since(commit.at)));
        }
    }
}

async fn listen(mut watch: Watch, topic: Topic, told: Arc<Mutex<Told>>) {
    let everybody_stays = match &topic {
        Topic::Room(room) => room.as_str() == "lobby",
        Topic::User(_) | Topic::Tenant => true,
    };
    let mut first = watch.ready().await;
    while !first.complete {
        // Shards without a source, most likely: what is missing follows as joins.
        if watch.next().await.is_none() {
            return;
        }
        first = watch.snapshot();
    }
    lock(&told).begin(&first.items);
    while let Some(event) = watch.next().await {
        let mut told = lock(&told);
        match event {
            TopicEvent::Diff(diff) => told.take(&diff.diff, everybody_stays),
            TopicEvent::Resync => {
                told.resyncs += 1;
                let items = watch.snapshot();
                told.begin(&items.items);
            }
            TopicEvent::Complete | TopicEvent::Stale(_) | TopicEvent::Contacts(_) => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everybody in the store.
pub(crate) struct Truth(BTreeMap<UserKey, Person>);

impl Truth {
    pub(crate) async fn load(store: &dyn Store) -> Result<Self> {
        let mut people = BTreeMap::new();
        for shard in 0..store.shards() {
            let snapshot = load(store, shard).await?.context("a shard is not born")?;
            ensure!(!snapshot.position.settling, "shard {shard} settles");
            people.extend(snapshot.people);
        }
        Ok(Self(people))
    }

    pub(crate) fn of(&self, topic: &Topic) -> HashMap<UserId, Arc<Item>> {
        let ours = self.0.iter().filter(|(k, _)| k.tenant.as_str() == TENANT);
        let item = |(key, person): (&UserKey, &Person)| {
            let item = match topic {
                Topic::Tenant => person.item(&key.user),
                Topic::User(user) if *user == key.user => person.item(user),
                Topic::User(_) => None,
                Topic::Room(room) => person.item_in(&key.user, room),
            };
            item.map(|item| (key.user.clone(), item))
        };
        ours.filter_map(item).collect()
    }
}

/// Waits until the store holds just the users of the gateways, and every watcher has the truth.
pub(crate) async fn converged(
    store: &dyn Store,
    users: &[UserId],
    watchers: &[Watcher],
    limit: Duration,
) -> Result<usize> {
    let people = eventually("all rosters equal the truth", limit, || async {
        let truth = Truth::load(store).await?;
        let everybody = truth.of(&Topic::Tenant);
        let missing = users.iter().find(|user| !everybody.contains_key(*user));
        ensure!(missing.is_none(), "{missing:?} is not in the store");
        ensure!(everybody.len() == users.len(), "ghosts are in the store");
        watchers.iter().try_for_each(|w| w.equals(&truth))?;
        Ok(everybody.len())
    })
    .await?;
    watchers.iter().try_for_each(Watcher::check)?;
    Ok(people)
}

/// Waits until every watcher has its first picture.
pub(crate) async fn all_ready(watchers: &[Watcher]) -> Result<()> {
    eventually(
        "all watchers are ready",
        Duration::from_secs(30),
        || async {
            let late = watchers.iter().find(|w| !w.ready());
            ensure!(late.is_none(), "{} waits", late.map_or("", |w| &w.name));
            Ok(())
        },
    )
    .await
}

/// Delays, as figures.
pub(crate) struct Delays(Vec<Duration>);

impl Delays {
    pub(crate) fn new(delays: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = delays.into_iter().collect();
        sorted.sort_unstable();
        Self(sorted)
    }

    pub(crate) fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.part(500)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.part(990)
    }

    /// Below which so many of a thousand are.
    fn part(&self, share: usize) -> Duration {
        let place = (self.0.len() * share / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(place).copied().unwrap_or_default()
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, p99, p999) = (self.median(), self.p99(), self.part(999));
        let (count, longest) = (self.0.len(), self.longest());
        write!(
            f,
            "{count} deliveries: median {median:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, longest {longest:.1?}"
        )
    }
}
