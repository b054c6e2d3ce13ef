//! Who listens to which channel, and which of them the server has confirmed.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use adsum_core::{codec, store::Push};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use crate::redis::queue::Queue;

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_name: Mutex<HashMap<String, Channel>>,
    /// Something is to be asked for.
    wake: Notify,
}

#[derive(Debug)]
struct Channel {
    subscribers: Vec<Weak<Queue>>,
    state: watch::Sender<State>,
    /// The next confirmation is one that was asked for here, not by the crate.
    asked: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The server pushes what is published.
    live: bool,
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

    fn confirm(&mut self) {
        let before = *self.state.borrow();
        // Not the first, and not just a check: there was a gap.
        if before.confirmed > 0 && (!before.live || !self.asked) {
            self.tell(&Push::Lost);
        }
        self.asked = false;
        self.state.send_replace(State {
            live: true,
            confirmed: before.confirmed + 1,
        });
    }

    fn lose(&mut self) {
        self.tell(&Push::Lost);
        self.state.send_modify(|state| state.live = false);
    }
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        // Nothing in here can be left half done.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber; the answer waits until the channel is live.
    pub(super) fn add(&self, name: &str, queue: &Arc<Queue>) -> impl Future<Output = bool> + use<> {
        let mut channels = self.lock();
        let channel = channels.entry(name.to_owned()).or_insert_with(|| Channel {
            subscribers: Vec::new(),
            state: watch::Sender::default(),
            asked: false,
        });
        channel.subscribers.push(Arc::downgrade(queue));
        let mut state = channel.state.subscribe();
        drop(channels);
        self.wake.notify_one();
        async move { state.wait_for(|state| state.live).await.is_ok() }
    }

    /// Waits until somebody wants a channel.
    pub(super) async fn wanted(&self) {
        while self.lock().is_empty() {
            self.wake.notified().await;
        }
    }

    /// Waits until something is to be asked for.
    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn unconfirmed(&self) -> Vec<String> {
        let channels = self.lock();
        let lost = channels
            .iter()
            .filter(|(_, channel)| !channel.state.borrow().live);
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// Channels that nobody listens to any more; they are forgotten.
    pub(super) fn take_unwanted(&self) -> Vec<String> {
        let mut channels = self.lock();
        let unread = |channel: &Channel| channel.subscribers.iter().all(|q| q.strong_count() == 0);
        channels
            .extract_if(|_, channel| unread(channel))
            .map(|(name, _)| name)
            .collect()
    }

    /// Expects a confirmation of a channel; the answer waits for it and is false when the
    /// channel is lost first. `None` if nobody wants it any more.
    pub(super) fn expect(&self, name: &str) -> Option<impl Future<Output = bool> + use<>> {
        let mut channels = self.lock();
        let channel = channels.get_mut(name)?;
        channel.asked = true;
        let mut state = channel.state.subscribe();
        let before = state.borrow().confirmed;
        Some(async move {
            let now = state.wait_for(|state| state.confirmed > before).await;
            now.is_ok_and(|state| state.live)
        })
    }

    fn confirm(&self, name: &str) {
        if let Some(channel) = self.lock().get_mut(name) {
            channel.confirm();
        }
    }

    /// Marks a channel as not confirmed and tells its subscribers.
    pub(super) fn lose(&self, name: &str) {
        if let Some(channel) = self.lock().get_mut(name) {
            channel.lose();
        }
        self.wake.notify_one();
    }

    pub(super) fn lose_all(&self) {
        self.lock().values_mut().for_each(Channel::lose);
        self.wake.notify_one();
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        let queues = |channel: Channel| channel.subscribers.into_iter().filter_map(|q| q.upgrade());
        self.lock()
            .drain()
            .flat_map(|(_, c)| queues(c))
            .for_each(|queue| queue.close());
    }

    /// Takes a push from the connection. Never waits.
    pub(super) fn hear(&self, info: PushInfo) {
        let PushInfo { kind, data } = info;
        match kind {
            PushKind::SMessage => self.deliver(&data),
            PushKind::SSubscribe => self.confirm(name_of(&data).unwrap_or_default()),
            PushKind::SUnsubscribe => {
                if let Some(name) = name_of(&data) {
                    self.lose(name);
                }
            }
            PushKind::Disconnection => self.lose_all(),
            _ => {}
        }
    }

    fn deliver(&self, data: &[Value]) {
        let Some(name) = name_of(data) else { return };
        let push = match data.get(1) {
            Some(Value::BulkString(bytes)) => codec::decode_change(bytes)
                .map_or(Push::Lost, |change| Push::Change(Box::new(change))),
            _ => Push::Lost,
        };
        if let Some(channel) = self.lock().get_mut(name) {
            channel.tell(&push);
        }
    }
}

fn name_of(data: &[Value]) -> Option<&str> {
    match data.first() {
        Some(Value::BulkString(name)) => std::str::from_utf8(name).ok(),
        _ => None,
    }
}
