//! A gateway as the store knows it: holds sessions, renews, and opens them again under a new
//! incarnation when its shard began a new epoch or has forgotten it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Activity, Conn, Incarnation, Membership, NodeId, Reason, RoomId, SessionKey, Stamp, State,
    store::{Alter, Altered, Close, Closed, Lease, Open, Opened, Renewed, Shard, Store},
};
use anyhow::{Context, Result, bail};
use tokio::{sync::Mutex, time::Instant};

/// Longer than any fault here lasts.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connected client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) stamp: Stamp,
    pub(crate) state: State,
    opened_at: u64,
    /// Its operations are serial; a reopening waits for the one that is under way.
    open: bool,
}

#[derive(Debug)]
struct Hold {
    incarnation: Incarnation,
    epoch: u64,
    used: bool,
    /// A new incarnation was taken: all that the old one held must be opened under it.
    reopen: bool,
}

type Slot = Arc<Mutex<Client>>;

/// A gateway with its clients.
pub(crate) struct Gateway {
    store: Arc<dyn Store>,
    node: NodeId,
    numbers: AtomicU64,
    holds: Vec<Mutex<Hold>>,
    clients: Mutex<BTreeMap<SessionKey, Slot>>,
    pub(crate) reopened: AtomicU64,
}

impl Gateway {
    pub(crate) fn new(store: Arc<dyn Store>, name: &str) -> Result<Self> {
        let node = NodeId::new(name)?;
        let hold = |shard| {
            let incarnation = Incarnation::of(&node, u64::from(shard))?;
            Ok(Mutex::new(Hold {
                incarnation,
                epoch: 0,
                used: false,
                reopen: false,
            }))
        };
        let holds = (0..store.shards()).map(hold).collect::<Result<_>>()?;
        let numbers = AtomicU64::new(1000);
        let clients = Mutex::default();
        Ok(Self {
            store,
            node,
            numbers,
            holds,
            clients,
            reopened: AtomicU64::new(0),
        })
    }

    /// What this gateway's clients should look like to everybody.
    pub(crate) async fn truth(&self) -> BTreeMap<SessionKey, Client> {
        let slots: Vec<_> = self
            .clients
            .lock()
            .await
            .iter()
            .map(|(k, s)| (k.clone(), s.clone()))
            .collect();
        let mut truth = BTreeMap::new();
        for (key, slot) in slots {
            let client = slot.lock().await.clone();
            if client.open {
                truth.insert(key, client);
            }
        }
        truth
    }

    /// A client connects, with a connection newer than all before.
    pub(crate) async fn connect(&self, key: &SessionKey, conn: u64, state: State) -> Result<()> {
        let client = Client {
            stamp: Stamp {
                conn: Conn::new(conn)?,
                rev: 0,
            },
            state,
            opened_at: 0,
            open: true,
        };
        let slot = Arc::new(Mutex::new(client));
        self.clients.lock().await.insert(key.clone(), slot.clone());
        self.open(key, &mut *slot.lock().await).await
    }

    /// A client changes its state; a new value every time, so that each is a change.
    pub(crate) async fn change(&self, key: &SessionKey, number: u64) -> Result<()> {
        let Some(slot) = self.clients.lock().await.get(key).cloned() else {
            return Ok(());
        };
        let mut client = slot.lock().await;
        client.state = state(number);
        client.stamp.rev += 1;
        let op = Alter {
            key: key.clone(),
            stamp: client.stamp,
            state: client.state.clone(),
            origin: None,
        };
        match self.patiently(|| self.store.alter(op.clone())).await?.value {
            Altered::Ok { session, .. } => {
                client.state = session.state;
                Ok(())
            }
            // Lost in a failover: open it with the newest state.
            Altered::Unknown => self.open(key, &mut client).await,
            Altered::Superseded { conn } => bail!("{key:?} superseded by {conn:?} in a change"),
        }
    }

    /// A client says goodbye.
    pub(crate) async fn leave(&self, key: &SessionKey) -> Result<()> {
        let Some(slot) = self.clients.lock().await.get(key).cloned() else {
            return Ok(());
        };
        let mut client = slot.lock().await;
        client.open = false;
        client.stamp.rev += 1;
        let (key, stamp, reason) = (key.clone(), client.stamp, Reason::Leave);
        let op = Close {
            key: key.clone(),
            stamp,
            reason,
            origin: None,
        };
        match self.patiently(|| self.store.close(op.clone())).await?.value {
            Closed::Ok { .. } => {
                self.clients.lock().await.remove(&key);
                Ok(())
            }
            Closed::Superseded { conn } => bail!("{key:?} superseded by {conn:?} in a close"),
        }
    }

    async fn open(&self, key: &SessionKey, client: &mut Client) -> Result<()> {
        let shard = self.store.shard_of(&key.owner);
        loop {
            client.stamp.rev += 1;
            let holder = {
                let mut hold = self.hold(shard).lock().await;
                hold.used = true;
                hold.incarnation.clone()
            };
            let op = Open {
                key: key.clone(),
                holder: holder.clone(),
                stamp: client.stamp,
                state: client.state.clone(),
                opened_at: client.opened_at,
                prefs: None,
                origin: None,
            };
            match self.patiently(|| self.store.open(op.clone())).await?.value {
                Opened::Ok { session, .. } => {
                    client.opened_at = session.opened_at;
                    client.state = session.state;
                    return Ok(());
                }
                Opened::Gone => self.take_new_incarnation(shard, &holder).await?,
                Opened::Superseded { conn } => bail!("{key:?} superseded by {conn:?} in an open"),
            }
        }
    }

    fn hold(&self, shard: Shard) -> &Mutex<Hold> {
        &self.holds[usize::from(shard)]
    }

    async fn take_new_incarnation(&self, shard: Shard, old: &Incarnation) -> Result<()> {
        let mut hold = self.hold(shard).lock().await;
        if hold.incarnation == *old {
            hold.incarnation = Incarnation::of(&self.node, self.numbers.fetch_add(1, Relaxed))?;
            hold.reopen = true;
        }
        Ok(())
    }

    /// One renewal in a shard; heals what was lost there.
    async fn renew(&self, shard: Shard) -> Result<()> {
        let (incarnation, used) = {
            let hold = self.hold(shard).lock().await;
            (hold.incarnation.clone(), hold.used)
        };
        // Not patient: the next renewal comes soon.
        let Ok(answer) = self.store.renew(shard, &incarnation, Lease::Usual).await else {
            return Ok(());
        };
        let new_epoch = {
            let mut hold = self.hold(shard).lock().await;
            let newer = answer.epoch > hold.epoch;
            hold.epoch = hold.epoch.max(answer.epoch);
            newer
        };
        if new_epoch || (answer.value == Renewed::Gone && used) {
            self.take_new_incarnation(shard, &incarnation).await?;
        }
        let reopen = std::mem::take(&mut self.hold(shard).lock().await.reopen);
        if reopen {
            self.reopen(shard).await
        } else {
            Ok(())
        }
    }

    async fn reopen(&self, shard: Shard) -> Result<()> {
        let here = |key: &SessionKey| self.store.shard_of(&key.owner) == shard;
        let slots: Vec<_> = self
            .clients
            .lock()
            .await
            .iter()
            .filter(|(key, _)| here(key))
            .map(|(k, s)| (k.clone(), s.clone()))
            .collect();
        for (key, slot) in slots {
            let mut client = slot.lock().await;
            if client.open {
                self.reopened.fetch_add(1, Relaxed);
                self.open(&key, &mut client).await?;
            }
        }
        Ok(())
    }

    /// Repeats an operation, with the same stamp, until it is answered.
    async fn patiently<T, F>(&self, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = adsum_core::store::Result<T>>,
    {
        let start = Instant::now();
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retry() && start.elapsed() < PATIENCE => {}
                Err(error) => return Err(error).context("an operation"),
            }
        }
    }
}

/// A state that differs from that of every other number.
pub(crate) fn state(number: u64) -> State {
    let stay = |n: u64| RoomId::new(format!("room-{n}")).map(|room| (room, Membership::default()));
    State {
        activity: if number.is_multiple_of(2) {
            Activity::Online
        } else {
            Activity::Away
        },
        meta: adsum_core::Meta::new(format!("{{\"n\":{number}}}"), 100).ok(),
        rooms: [number % 5, 5 + number % 3]
            .into_iter()
            .filter_map(|n| stay(n).ok())
            .collect(),
        ..State::default()
    }
}

/// Renews on time, each shard by itself, until the work is done.
pub(crate) async fn renewing<T>(
    gateways: &[Arc<Gateway>],
    every: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let all = gateways
        .iter()
        .flat_map(|g| (0..g.store.shards()).map(|shard| renew_for_good(g.clone(), shard, every)));
    tokio::select! {
        done = work => done,
        ended = futures::future::try_join_all(all) => {
            ended?;
            bail!("renewing ended")
        }
    }
}

async fn renew_for_good(gateway: Arc<Gateway>, shard: Shard, every: Duration) -> Result<()> {
    let mut tick = tokio::time::interval(every);
    loop {
        tick.tick().await;
        gateway.renew(shard).await?;
    }
}
