//! Pushes of changes: connections of their own for the whole process, shared by all subscribers.
//!
//! A subscription ends without a word when its connection does or its server goes silent, and
//! with one when its slot moves. So each channel has a keeper, which asks for the subscription
//! until it is confirmed, and again now and then to see that it stands. Whoever may have missed
//! something is told.

mod channels;

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use adsum_core::store::{Push, Result, StoreError};
use futures::stream::BoxStream;
use redis::cmd;
use tokio::time::{sleep, timeout};
use tracing::debug;

use self::channels::Channels;
use super::{RedisConfig, call::Pause, cluster::Cluster, pool::Pool, queue::Queue};
use crate::Keys;

/// How often a subscription is asked for again, at most.
const VERIFY: Duration = Duration::from_secs(2);

/// At so many instants of that time.
const PARTS: u32 = 4;

/// All subscriptions of the process.
#[derive(Debug)]
pub(super) struct Hub {
    channels: Arc<Channels>,
    pool: Arc<Pool>,
    deadline: Duration,
    attempt: Duration,
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Keepers end when nobody wants their channel.
        self.channels.close();
    }
}

impl Hub {
    /// Connects with the first subscription.
    pub(super) fn new(cluster: Arc<Cluster>, config: &RedisConfig) -> Self {
        let channels = Arc::new(Channels::default());
        let heard = channels.clone();
        Self {
            channels,
            pool: Pool::new(
                cluster,
                Some(Arc::new(move |line, info| heard.hear(line, info))),
            ),
            deadline: config.deadline,
            attempt: config.attempt_timeout,
        }
    }

    /// Pushes of a shard, once the server has confirmed.
    pub(super) async fn subscribe(&self, keys: &Keys) -> Result<BoxStream<'static, Push>> {
        let queue = Arc::new(Queue::default());
        let (confirmed, is_new) = self.channels.add(&keys.channel, &queue);
        if is_new {
            let keeper = Keeper {
                name: keys.channel.clone(),
                slot: keys.slot,
                channels: self.channels.clone(),
                pool: self.pool.clone(),
                attempt: self.attempt,
            };
            tokio::spawn(keeper.run());
        }
        if timeout(self.deadline, confirmed).await != Ok(true) {
            let why = "the subscription was not confirmed before the deadline";
            return Err(StoreError::Unavailable(why.into()));
        }
        Ok(queue.stream())
    }
}

/// Keeps one channel subscribed as long as somebody listens.
struct Keeper {
    name: String,
    slot: u16,
    channels: Arc<Channels>,
    pool: Arc<Pool>,
    attempt: Duration,
}

impl Keeper {
    async fn run(self) {
        let mut pause = Pause::default();
        while self.channels.is_wanted(&self.name) {
            if self.ask().await {
                pause = Pause::default();
                let _ = timeout(self.rest(), self.channels.lost(&self.name)).await;
            } else {
                self.channels.lose(&self.name);
                sleep(pause.next()).await;
            }
        }
        // A channel that nobody reads does no harm; the server may be away.
        let end = cmd("SUNSUBSCRIBE").arg(&self.name).to_owned();
        let _ = timeout(self.attempt, self.pool.send(self.slot, &[end])).await;
    }

    /// Until the next time: not all at once, but some together, which costs the server a fraction
    /// of what it costs one by one.
    fn rest(&self) -> Duration {
        let phase = VERIFY * (u32::from(self.slot) % PARTS) / PARTS;
        let now = UNIX_EPOCH.elapsed().unwrap_or_default() + phase;
        let late = now.as_micros() % VERIFY.as_micros();
        // Below `VERIFY`, which is seconds.
        VERIFY - Duration::from_micros(u64::try_from(late).unwrap_or_default())
    }

    /// Asks for the subscription; whether it was confirmed.
    async fn ask(&self) -> bool {
        let confirmed = self.channels.expect(&self.name);
        let ask = cmd("SSUBSCRIBE").arg(&self.name).to_owned();
        if let Err(error) = self.pool.send(self.slot, &[ask]).await {
            debug!(channel = %self.name, %error, "cannot subscribe");
            return false;
        }
        // The answer to the command is not proof: the crate takes any such push for one.
        timeout(self.attempt, confirmed).await == Ok(true)
    }
}
