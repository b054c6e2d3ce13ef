//! Pushes of changes: one connection for the whole process, shared by all subscribers.
//!
//! The crate subscribes again after it has reconnected, but forgets a channel whose slot moved
//! away (the server says `sunsubscribe`), and does not notice a node that went silent. So one
//! task here asks for whatever is not confirmed, asks again for everything now and then, and
//! connects anew when it gets no answers. Whoever may have missed something is told.

mod channels;

use std::{sync::Arc, time::Duration};

use adsum_core::store::{Push, Result, StoreError};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use redis::ErrorKind;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, warn};

use self::channels::Channels;
use super::{
    RedisConfig,
    call::Pause,
    connection::{Dialer, OnPush, Wire},
    queue::Queue,
};
use crate::Keys;

/// How often every subscription is asked for again, to see that it stands.
const VERIFY: Duration = Duration::from_secs(2);
/// Subscriptions that are asked for at once.
const AT_ONCE: usize = 32;
/// A connection over which something stays unconfirmed for so long is replaced. One that gets
/// no answer at all is replaced at once, but if that did not help, only after this time too:
/// the other shards' pushes are interrupted by it.
const PATIENCE: Duration = Duration::from_secs(5);

/// All subscriptions of the process.
#[derive(Debug)]
pub(super) struct Hub {
    channels: Arc<Channels>,
    deadline: Duration,
    task: AbortHandle,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.task.abort();
        self.channels.close();
    }
}

impl Hub {
    /// Connects with the first subscription.
    pub(super) fn start(dialer: Arc<Dialer>, config: &RedisConfig) -> Self {
        let channels = Arc::new(Channels::default());
        let keeper = Keeper {
            dialer,
            channels: channels.clone(),
            attempt: config.attempt_timeout,
            was_silent: false,
        };
        let task = tokio::spawn(keeper.run()).abort_handle();
        Self {
            channels,
            deadline: config.deadline,
            task,
        }
    }

    /// Pushes of a shard, once the server has confirmed.
    pub(super) async fn subscribe(&self, keys: &Keys) -> Result<BoxStream<'static, Push>> {
        let queue = Arc::new(Queue::default());
        let confirmed = self.channels.add(&keys.channel, &queue);
        if timeout(self.deadline, confirmed).await != Ok(true) {
            let why = "the subscription was not confirmed before the deadline";
            return Err(StoreError::Unavailable(why.into()));
        }
        Ok(queue.stream())
    }
}

/// How asking for a subscription ended; the worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Confirmed,
    Refused,
    Silence,
    /// The connection reaches no node at all.
    Nobody,
}

/// Keeps the subscriptions.
struct Keeper {
    dialer: Arc<Dialer>,
    channels: Arc<Channels>,
    attempt: Duration,
    /// The last connection was replaced because of silence.
    was_silent: bool,
}

impl Keeper {
    async fn run(mut self) {
        let mut pause = Pause::default();
        loop {
            self.channels.wanted().await;
            let on_push: OnPush = {
                let channels = self.channels.clone();
                Arc::new(move |info| channels.hear(info))
            };
            match self.dialer.dial(Some(on_push)).await {
                Ok(wire) => {
                    pause = Pause::default();
                    self.keep(wire).await;
                    warn!("the connection for pushes is replaced");
                    self.channels.lose_all();
                }
                Err(error) => warn!(%error, "cannot connect for pushes"),
            }
            sleep(pause.next()).await;
        }
    }

    /// Keeps everything subscribed over one connection; returns when that is hopeless.
    async fn keep(&mut self, wire: Wire) {
        let mut pause = Pause::default();
        let mut verified = Instant::now();
        let mut failing_since = None;
        loop {
            self.drop_unwanted(&wire).await;
            let verify = verified.elapsed() >= VERIFY;
            let ask = if verify {
                self.channels.names()
            } else {
                self.channels.unconfirmed()
            };
            let asked = self.ask_all(&wire, ask).await;
            if asked == Asked::Confirmed {
                (failing_since, pause) = (None, Pause::default());
                if verify {
                    (self.was_silent, verified) = (false, Instant::now());
                }
                let rest = VERIFY.saturating_sub(verified.elapsed());
                let _ = timeout(rest, self.channels.changed()).await;
                continue;
            }
            let since = *failing_since.get_or_insert_with(Instant::now);
            let at_once = match asked {
                Asked::Nobody => true,
                Asked::Silence => !self.was_silent,
                _ => false,
            };
            if at_once || since.elapsed() >= PATIENCE {
                self.was_silent = asked >= Asked::Silence;
                return;
            }
            sleep(pause.next()).await;
        }
    }

    async fn drop_unwanted(&self, wire: &Wire) {
        for channel in self.channels.take_unwanted() {
            // A channel that nobody reads does no harm; the server may be away.
            let _ = timeout(self.attempt, wire.clone().sunsubscribe(&channel)).await;
        }
    }

    /// Asks for channels; answers the worst that happened.
    async fn ask_all(&self, wire: &Wire, names: Vec<String>) -> Asked {
        let asked = stream::iter(names).map(|name| self.ask(wire.clone(), name));
        let worst = async |worst: Asked, asked| worst.max(asked);
        asked
            .buffer_unordered(AT_ONCE)
            .fold(Asked::Confirmed, worst)
            .await
    }

    async fn ask(&self, mut wire: Wire, name: String) -> Asked {
        let Some(confirmed) = self.channels.expect(&name) else {
            return Asked::Confirmed;
        };
        let asking = async {
            wire.ssubscribe(&name).await?;
            // The answer to the command is not proof: the crate takes any such push for one.
            Ok::<_, redis::RedisError>(confirmed.await)
        };
        // A little more than the crate takes to find that there is no answer.
        let asked = match timeout(self.attempt * 2, asking).await {
            Ok(Ok(true)) => return Asked::Confirmed,
            Ok(Ok(false)) => Asked::Refused,
            Ok(Err(error)) => {
                debug!(channel = %name, %error, "cannot subscribe");
                judge(&error)
            }
            Err(_) => Asked::Silence,
        };
        self.channels.lose(&name);
        asked
    }
}

fn judge(error: &redis::RedisError) -> Asked {
    match error.kind() {
        ErrorKind::ClusterConnectionNotFound => Asked::Nobody,
        _ if error.is_timeout() => Asked::Silence,
        _ => Asked::Refused,
    }
}
