//! Who listens to which channel, and which of them the server has confirmed.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use adsum_core::{codec, store::Push};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

use crate::redis::queue::Queue;

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_name: Mutex<HashMap<String, Channel>>,
}

#[derive(Debug, Default)]
struct Channel {
    subscribers: Vec<Weak<Queue>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The line over which the server pushes what is published.
    live: Option<u64>,
    /// Confirmations so far.
    confirmed: u64,
}

impl Channel {
    fn tell(&mut self, push: &Push) {
        self.subscribers.retain(|queue| match queue.upgrade() {
            Some(queue) => {
                queue.add(push.clone());
                true
            }
            None => false,
        });
    }

    fn confirm(&mut self, line: u64) {
        let before = *self.state.borrow();
        // Neither the first, nor just a check: there was a gap.
        if before.confirmed > 0 && before.live != Some(line) {
            self.tell(&Push::Lost);
        }
        self.state.send_replace(State {
            live: Some(line),
            confirmed: before.confirmed + 1,
        });
    }

    fn is_live(&self, line: u64) -> bool {
        self.state.borrow().live == Some(line)
    }

    fn lose(&mut self) {
        // Only once: whoever was told hears again when it is live.
        if self.state.borrow().live.is_some() {
            self.tell(&Push::Lost);
            self.state.send_modify(|state| state.live = None);
        }
    }
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        // Nothing in here can be left half done.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber; the answer waits until the channel is live. Also whether the channel is
    /// new and needs a keeper.
    pub(super) fn add(
        &self,
        name: &str,
        queue: &Arc<Queue>,
    ) -> (impl Future<Output = bool> + use<>, bool) {
        let mut channels = self.lock();
        let is_new = !channels.contains_key(name);
        let channel = channels.entry(name.to_owned()).or_default();
        channel.subscribers.push(Arc::downgrade(queue));
        let mut state = channel.state.subscribe();
        let live = async move { state.wait_for(|state| state.live.is_some()).await.is_ok() };
        (live, is_new)
    }

    /// Whether somebody listens; if not, the channel is forgotten.
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        let mut channels = self.lock();
        let Some(channel) = channels.get(name) else {
            return false;
        };
        let is_read = channel.subscribers.iter().any(|q| q.strong_count() > 0);
        if !is_read {
            channels.remove(name);
        }
        is_read
    }

    /// The answer waits for the next confirmation of a channel, and is false when the channel is
    /// lost first or nobody wants it any more.
    pub(super) fn expect(&self, name: &str) -> impl Future<Output = bool> + use<> {
        let state = self.state(name);
        let before = state.as_ref().map(|state| state.borrow().confirmed);
        async move {
            let (Some(mut state), Some(before)) = (state, before) else {
                return false;
            };
            let now = state.wait_for(|state| state.confirmed > before).await;
            now.is_ok_and(|state| state.live.is_some())
        }
    }

    /// Waits until a channel is not live.
    pub(super) fn lost(&self, name: &str) -> impl Future<Output = ()> + use<> {
        let state = self.state(name);
        async move {
            if let Some(mut state) = state {
                let _ = state.wait_for(|state| state.live.is_none()).await;
            }
        }
    }

    fn state(&self, name: &str) -> Option<watch::Receiver<State>> {
        self.lock()
            .get(name)
            .map(|channel| channel.state.subscribe())
    }

    /// Marks a channel as not confirmed and tells its subscribers.
    pub(super) fn lose(&self, name: &str) {
        if let Some(channel) = self.lock().get_mut(name) {
            channel.lose();
        }
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        let queues = |channel: Channel| channel.subscribers.into_iter().filter_map(|q| q.upgrade());
        self.lock()
            .drain()
            .flat_map(|(_, c)| queues(c))
            .for_each(|queue| queue.close());
    }

    /// Takes a push from a line. Never waits.
    pub(super) fn hear(&self, line: u64, info: PushInfo) {
        let PushInfo { kind, data } = info;
        match kind {
            PushKind::SMessage => self.deliver(line, &data),
            PushKind::SSubscribe => self.at(&data, |channel| channel.confirm(line)),
            PushKind::SUnsubscribe => self.at(&data, |channel| {
                if channel.is_live(line) {
                    channel.lose();
                }
            }),
            PushKind::Disconnection => {
                let mut channels = self.lock();
                let over_it = channels.values_mut().filter(|c| c.is_live(line));
                over_it.for_each(Channel::lose);
            }
            _ => {}
        }
    }

    /// Does something with the channel that a push names, if it is one of ours.
    fn at(&self, data: &[Value], act: impl FnOnce(&mut Channel)) {
        let name = name_of(data).unwrap_or_default();
        if let Some(channel) = self.lock().get_mut(name) {
            act(channel);
        }
    }

    fn deliver(&self, line: u64, data: &[Value]) {
        // Whatever one call committed comes as one push.
        let changes = match data.get(1) {
            Some(Value::BulkString(bytes)) => codec::decode_changes(bytes).ok(),
            _ => None,
        };
        self.at(data, |channel| {
            // What comes over a line that was given up has a successor to tell it.
            if !channel.is_live(line) {
                return;
            }
            match changes {
                Some(changes) => changes
                    .into_iter()
                    .for_each(|change| channel.tell(&Push::Change(Box::new(change)))),
                None => channel.tell(&Push::Lost),
            }
        });
    }
}

fn name_of(data: &[Value]) -> Option<&str> {
    match data.first() {
        Some(Value::BulkString(name)) => std::str::from_utf8(name).ok(),
        _ => None,
    }
}
