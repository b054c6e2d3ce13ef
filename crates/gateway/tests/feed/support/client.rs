//! A client of one watcher.

use std::{collections::BTreeMap, sync::Arc};

use adsum_core::Item;
use adsum_gateway::feed::{Picture, TopicEvent, Watch};
use futures::{FutureExt, StreamExt};

use super::{settle_down, within};

/// Believes its snapshot and what it is told after that, and minds what makes no sense.
pub(crate) struct Client {
    pub(crate) watch: Watch,
    pub(crate) members: BTreeMap<String, String>,
    pub(crate) events: Vec<TopicEvent>,
    pub(crate) stale: bool,
    pub(crate) complete: bool,
}

impl Client {
    pub(crate) async fn new(mut watch: Watch) -> Self {
        let picture = watch.ready().await;
        let mut client = Self {
            watch,
            members: BTreeMap::new(),
            events: Vec::new(),
            stale: false,
            complete: false,
        };
        client.believe(&picture);
        client
    }

    pub(crate) fn believe(&mut self, picture: &Picture) {
        let pair = |i: &Arc<Item>| (i.user.to_string(), i.status.to_string());
        self.members = picture.items.iter().map(pair).collect();
        self.stale = picture.stale;
        self.complete = picture.complete;
    }

    /// Takes all events that are there.
    pub(crate) async fn drain(&mut self) -> Vec<TopicEvent> {
        settle_down().await;
        let mut taken = Vec::new();
        while let Some(Some(event)) = self.watch.next().now_or_never() {
            self.take(&event);
            taken.push(event);
        }
        self.events.extend(taken.iter().cloned());
        taken
    }

    pub(crate) async fn next(&mut self) -> TopicEvent {
        let event = within("an event", self.watch.next())
            .await
            .expect("the feed stopped");
        self.take(&event);
        self.events.push(event.clone());
        event
    }

    fn take(&mut self, event: &TopicEvent) {
        match event {
            TopicEvent::Diff(told) => {
                for join in &told.diff.joins {
                    let before = self
                        .members
                        .insert(join.user.to_string(), join.status.to_string());
                    assert_eq!(before, None, "joined twice");
                }
                for leave in &told.diff.leaves {
                    let before = self.members.remove(leave.item.user.as_str());
                    assert!(before.is_some(), "left without being there");
                }
                for update in &told.diff.updates {
                    let before = self
                        .members
                        .insert(update.user.to_string(), update.status.to_string());
                    assert!(before.is_some(), "changed without being there");
                }
            }
            TopicEvent::Complete => self.complete = true,
            TopicEvent::Stale(stale) => self.stale = *stale,
            TopicEvent::Contacts(_) => {}
            TopicEvent::Resync => {
                let picture = self.watch.snapshot();
                self.believe(&picture);
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.members.keys().map(String::as_str).collect()
    }
}
