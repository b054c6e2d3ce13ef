//! Somebody who watches, and remembers all that it was told.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use adsum_client::{Client, Event, Mode, Reason, Topic};
use anyhow::Result;
use tokio::time::Instant;

use crate::world::builder;

/// One thing that a watcher was told.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) user: String,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Joined,
    Updated,
    Left(Option<Reason>),
}

pub(crate) struct Watcher {
    /// Watches for as long as this lives.
    _client: Client,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    seen: Vec<Seen>,
    /// Who is there, as far as it was told.
    here: HashSet<String>,
}

impl Notes {
    fn note(&mut self, user: String, what: What) {
        match what {
            What::Joined => drop(self.here.insert(user.clone())),
            What::Left(_) => drop(self.here.remove(&user)),
            What::Updated => {}
        }
        let at = Instant::now();
        self.seen.push(Seen { at, user, what });
    }
}

impl Watcher {
    /// Watches from one of these gateways.
    pub(crate) async fn new(user: &str, gateways: &[String], topic: Topic) -> Result<Self> {
        let watching = builder(user, gateways).watch(topic, Mode::Members);
        let (client, mut events) = watching.event_capacity(200_000).connect().await?;
        let notes: Arc<Mutex<Notes>> = Arc::default();
        let book = notes.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let (user, what) = match event {
                    Event::Joined { item, .. } => (item.user.clone(), What::Joined),
                    Event::Updated { item, .. } => (item.user.clone(), What::Updated),
                    Event::Left { left, .. } => (left.user.clone(), What::Left(left.reason)),
                    _ => continue,
                };
                book.lock().unwrap().note(user.to_string(), what);
            }
        });
        Ok(Self {
            _client: client,
            notes,
        })
    }

    /// Forgets what it was told so far.
    pub(crate) fn forget(&self) {
        self.notes.lock().unwrap().seen.clear();
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.notes.lock().unwrap().seen.clone()
    }

    /// Waits until it knows so many.
    pub(crate) async fn knows(&self, count: usize) -> Result<()> {
        adsum_tests::eventually("the watcher knows all", Duration::from_secs(60), || async {
            let known = self.notes.lock().unwrap().here.len();
            anyhow::ensure!(known == count, "it knows {known} of {count}");
            Ok(())
        })
        .await
    }

    /// Waits until it was told of this user: all that was told before has come, too.
    pub(crate) async fn hears_of(&self, user: &str) -> Result<()> {
        adsum_tests::eventually("the watcher hears", Duration::from_secs(30), || async {
            let notes = self.notes.lock().unwrap();
            anyhow::ensure!(
                notes.seen.iter().any(|s| s.user == user),
                "nothing of {user}"
            );
            Ok(())
        })
        .await
    }
}
