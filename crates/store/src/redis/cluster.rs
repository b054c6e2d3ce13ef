//! Keeps the topology: asks the servers for it whenever somebody has reason to doubt it, and
//! believes redirections at once. Calls go on meanwhile.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use rand::seq::SliceRandom;
use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, info};

use super::{
    call::Pause,
    connection::Dialer,
    topology::{Address, Topology, Word},
};

/// So many servers are asked at once, in a new order every time: a fleet of nodes in trouble
/// must not ask all servers for everything.
const ASKED: usize = 3;
/// So many answers are enough.
const ENOUGH: usize = 2;
/// After so long without a doubt the next one is acted upon at once.
const CALM: Duration = Duration::from_secs(2);

/// The cluster as far as it is known, shared by all that send to it.
#[derive(Debug)]
pub(super) struct Cluster {
    known: Arc<Known>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Known {
    dialer: Arc<Dialer>,
    topology: watch::Sender<Arc<Topology>>,
    doubt: Notify,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cluster {
    /// Learns who serves what. A single server serves everything.
    pub(super) async fn learn(dialer: Arc<Dialer>) -> RedisResult<Arc<Self>> {
        let topology = if dialer.is_cluster() {
            ask_around(&dialer, dialer.seeds().collect()).await?
        } else {
            let server = dialer.seeds().next();
            Topology::single(server.ok_or((ErrorKind::InvalidClientConfig, "no address"))?)
        };
        let known = Arc::new(Known {
            dialer,
            topology: watch::Sender::new(Arc::new(topology)),
            doubt: Notify::new(),
        });
        let task = tokio::spawn(keep(known.clone())).abort_handle();
        Ok(Arc::new(Self { known, task }))
    }

    pub(super) fn dialer(&self) -> &Arc<Dialer> {
        &self.known.dialer
    }

    /// The topology, now and as it changes.
    pub(super) fn topology(&self) -> watch::Receiver<Arc<Topology>> {
        self.known.topology.subscribe()
    }

    /// Something is wrong that a newer topology might explain.
    pub(super) fn doubt(&self) {
        if self.known.dialer.is_cluster() {
            self.known.doubt.notify_one();
        }
    }

    /// A server says that a slot is elsewhere: it should know. The rest is asked for.
    pub(super) fn moved(&self, slot: u16, to: &Address) {
        self.known.topology.send_if_modified(|topology| {
            let news = topology.master(slot) != Some(to);
            if news {
                *topology = Arc::new(topology.moved(slot, to));
            }
            news
        });
        self.doubt();
    }
}

async fn keep(known: Arc<Known>) {
    let mut pause = Pause::default();
    loop {
        let calm = Instant::now();
        known.doubt.notified().await;
        if calm.elapsed() >= CALM {
            pause = Pause::default();
        }
        known.ask().await;
        sleep(pause.next()).await;
    }
}

impl Known {
    async fn ask(&self) {
        let now = self.topology.borrow().clone();
        let mut servers: Vec<_> = now.servers().cloned().chain(self.dialer.seeds()).collect();
        servers.sort();
        servers.dedup();
        match ask_around(&self.dialer, servers).await {
            Ok(topology) if topology != *now => {
                info!(
                    masters = topology.masters().len(),
                    "the redis cluster changed"
                );
                self.topology.send_replace(Arc::new(topology));
            }
            Ok(_) => {}
            Err(error) => debug!(%error, "no redis server knows the cluster"),
        }
    }
}

/// Asks some servers, and others if those do not answer.
async fn ask_around(dialer: &Dialer, mut servers: Vec<Address>) -> RedisResult<Topology> {
    servers.shuffle(&mut rand::rng());
    let mut last = RedisError::from((ErrorKind::Io, "no redis server answers"));
    for some in servers.chunks(ASKED) {
        let mut asked: FuturesUnordered<_> =
            some.iter().map(|server| ask(dialer, server)).collect();
        let mut words = Vec::new();
        // Once one has spoken, the others have a part of their time.
        while words.len() < ENOUGH {
            let patience = if words.is_empty() { 1.0 } else { 0.25 };
            match timeout(dialer.attempt().mul_f64(patience), asked.next()).await {
                Ok(Some(Ok(word))) => words.push(word),
                Ok(Some(Err(error))) => last = error,
                Ok(None) | Err(_) => break,
            }
        }
        if !words.is_empty() {
            return Ok(Topology::of(&words));
        }
    }
    Err(last)
}

async fn ask(dialer: &Dialer, server: &Address) -> RedisResult<Word> {
    let mut connection = dialer.dial(server, None).await?;
    let slots: Value = redis::cmd("CLUSTER")
        .arg("SLOTS")
        .query_async(&mut connection)
        .await?;
    Word::read(slots, server)
}
