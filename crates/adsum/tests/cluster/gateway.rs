//! A gateway as the store knows it, in small: holds sessions, renews, and opens them again under a
//! new incarnation when its shard began a new epoch or has forgotten it. Every operation has a
//! number, which travels in the session's `meta`, and a note of when the store had answered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Conn, DeviceId, Incarnation, Membership, Meta, NodeId, Reason, RoomId, SessionKey, Stamp,
    State, TenantId, UserId, UserKey,
    store::{Alter, Altered, Close, Closed, Lease, Open, Opened, Renewed, Shard, Store},
};
use anyhow::{Context, Result, bail};
use tokio::{
    sync::Mutex as Turn,
    task::JoinSet,
    time::{Instant, interval},
};

/// Longer than any fault here lasts.
const PATIENCE: Duration = Duration::from_secs(60);
/// The tenant of everybody here.
pub(crate) const TENANT: &str = "acme";

/// One answered operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commit {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    pub(crate) leave: bool,
}

/// When the store had answered what, by user and in order.
#[derive(Default)]
pub(crate) struct Ledger {
    numbers: AtomicU64,
    commits: Mutex<HashMap<UserId, Vec<Commit>>>,
}

impl Ledger {
    fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed) + 1
    }

    fn note(&self, key: &SessionKey, number: u64, leave: bool) {
        let (at, user) = (Instant::now(), key.owner.user.clone());
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let commit = Commit { number, at, leave };
        commits.entry(user).or_default().push(commit);
    }

    pub(crate) fn commits(&self) -> HashMap<UserId, Vec<Commit>> {
        self.commits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.commits().values().map(Vec::len).sum()
    }
}

/// The session of one who stays for good.
pub(crate) fn stayer(n: u64) -> Result<SessionKey> {
    session(&format!("stay-{n}"))
}

/// The session of one who comes and goes.
pub(crate) fn comer(n: u64) -> Result<SessionKey> {
    session(&format!("come-{n}"))
}

fn session(user: &str) -> Result<SessionKey> {
    let owner = UserKey::new(TenantId::new(TENANT)?, UserId::new(user)?);
    Ok(SessionKey::new(owner, DeviceId::new("web")?))
}

/// Everybody is in the lobby, and in one of five rooms.
fn state(number: u64) -> Result<State> {
    let stay = |room: String| Ok((RoomId::new(room)?, Membership::default()));
    let rooms = ["lobby".to_owned(), format!("room-{}", number % 5)];
    Ok(State {
        meta: Some(Meta::new(format!("{{\"n\":{number}}}"), 100)?),
        rooms: rooms.into_iter().map(stay).collect::<Result<_>>()?,
        ..State::default()
    })
}

#[derive(Debug, Clone)]
struct Client {
    stamp: Stamp,
    state: State,
    opened_at: u64,
    open: bool,
}

struct Hold {
    incarnation: Incarnation,
    epoch: u64,
    used: bool,
    reopen: bool,
    renewed: Option<Instant>,
}

/// A gateway with its clients.
pub(crate) struct Gateway {
    store: Arc<dyn Store>,
    node: NodeId,
    ledger: Arc<Ledger>,
    incarnations: AtomicU64,
    pause_ms: AtomicU64,
    holds: Vec<Turn<Hold>>,
    /// Operations of one session are serial: each waits for its turn.
    clients: Mutex<BTreeMap<SessionKey, Arc<Turn<Client>>>>,
}

impl Gateway {
    pub(crate) fn new(store: Arc<dyn Store>, name: &str, ledger: Arc<Ledger>) -> Result<Self> {
        let node = NodeId::new(name)?;
        let hold = |shard| {
            Ok(Turn::new(Hold {
                incarnation: Incarnation::of(&node, u64::from(shard))?,
                epoch: 0,
                used: false,
                reopen: false,
                renewed: None,
            }))
        };
        let holds = (0..store.shards()).map(hold).collect::<Result<_>>()?;
        Ok(Self {
            store,
            node,
            ledger,
            incarnations: AtomicU64::new(1000),
            pause_ms: AtomicU64::new(0),
            holds,
            clients: Mutex::default(),
        })
    }

    /// Renews every shard for good, each by itself.
    pub(crate) fn renew_every(self: &Arc<Self>, every: Duration, tasks: &mut JoinSet<Result<()>>) {
        for shard in 0..self.store.shards() {
            let gateway = self.clone();
            tasks.spawn(async move {
                let mut tick = interval(every);
                loop {
                    tick.tick().await;
                    gateway.renew(shard).await?;
                }
            });
        }
    }

    /// The longest time between two renewals of a shard that were answered.
    pub(crate) fn longest_pause(&self) -> Duration {
        Duration::from_millis(self.pause_ms.load(Relaxed))
    }

    fn slot(&self, key: &SessionKey) -> Option<Arc<Turn<Client>>> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.get(key).cloned()
    }

    pub(crate) fn has(&self, key: &SessionKey) -> bool {
        self.slot(key).is_some()
    }

    /// The users that are connected here.
    pub(crate) fn users(&self) -> Vec<UserId> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.keys().map(|key| key.owner.user.clone()).collect()
    }

    /// A client connects, with a connection newer than all before.
    pub(crate) async fn connect(&self, key: &SessionKey) -> Result<()> {
        let number = self.ledger.next();
        let stamp = Stamp {
            conn: Conn::new(number)?,
            rev: 0,
        };
        let client = Client {
            stamp,
            state: state(number)?,
            opened_at: 0,
            open: true,
        };
        let slot = Arc::new(Turn::new(client));
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), slot.clone());
        self.open(key, &mut *slot.lock().await).await?;
        self.ledger.note(key, number, false);
        Ok(())
    }

    /// A client changes its state.
    pub(crate) async fn change(&self, key: &SessionKey) -> Result<()> {
        let slot = self.slot(key).context("not connected")?;
        let mut client = slot.lock().await;
        let number = self.ledger.next();
        let since = std::mem::take(&mut client.state.rooms);
        client.state = state(number)?;
        for (room, stay) in &mut client.state.rooms {
            stay.since = since.get(room).map_or(0, |known| known.since);
        }
        client.stamp.rev += 1;
        let op = Alter {
            key: key.clone(),
            stamp: client.stamp,
            state: client.state.clone(),
            origin: None,
        };
        match patiently(|| self.store.alter(op.clone())).await? {
            Altered::Ok { session, .. } => client.state = session.state,
            Altered::Unknown => self.open(key, &mut client).await?,
            Altered::Superseded { conn } => bail!("{key:?} superseded by {conn:?} in a change"),
        }
        self.ledger.note(key, number, false);
        Ok(())
    }

    /// A client says goodbye.
    pub(crate) async fn leave(&self, key: &SessionKey) -> Result<()> {
        let slot = self.slot(key).context("not connected")?;
        let mut client = slot.lock().await;
        client.open = false;
        client.stamp.rev += 1;
        let number = self.ledger.next();
        let op = Close {
            key: key.clone(),
            stamp: client.stamp,
            reason: Reason::Leave,
            origin: None,
        };
        match patiently(|| self.store.close(op.clone())).await? {
            Closed::Ok { .. } => {}
            Closed::Superseded { conn } => bail!("{key:?} superseded by {conn:?} in a close"),
        }
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        self.ledger.note(key, number, true);
        Ok(())
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
            match patiently(|| self.store.open(op.clone())).await? {
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

    fn hold(&self, shard: Shard) -> &Turn<Hold> {
        &self.holds[usize::from(shard)]
    }

    async fn take_new_incarnation(&self, shard: Shard, old: &Incarnation) -> Result<()> {
        let mut hold = self.hold(shard).lock().await;
        if hold.incarnation == *old {
            let number = self.incarnations.fetch_add(1, Relaxed);
            hold.incarnation = Incarnation::of(&self.node, number)?;
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
            let pause = hold.renewed.replace(Instant::now());
            let pause = pause.map_or(0, |last| last.elapsed().as_millis());
            self.pause_ms
                .fetch_max(u64::try_from(pause).unwrap_or(u64::MAX), Relaxed);
            let newer = answer.epoch > hold.epoch;
            hold.epoch = hold.epoch.max(answer.epoch);
            newer
        };
        if new_epoch || (answer.value == Renewed::Gone && used) {
            self.take_new_incarnation(shard, &incarnation).await?;
        }
        if std::mem::take(&mut self.hold(shard).lock().await.reopen) {
            self.reopen(shard).await?;
        }
        Ok(())
    }

    async fn reopen(&self, shard: Shard) -> Result<()> {
        let slots: Vec<_> = {
            let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let here = |key: &SessionKey| self.store.shard_of(&key.owner) == shard;
            let here = clients.iter().filter(|(key, _)| here(key));
            here.map(|(key, slot)| (key.clone(), slot.clone()))
                .collect()
        };
        for (key, slot) in slots {
            let mut client = slot.lock().await;
            if client.open {
                self.open(&key, &mut client).await?;
            }
        }
        Ok(())
    }
}

/// Repeats an operation, with the same stamp, until it is answered.
async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = adsum_core::store::Result<adsum_core::store::Answer<T>>>,
{
    let start = Instant::now();
    let mut pause = interval(Duration::from_millis(20));
    loop {
        pause.tick().await;
        match call().await {
            Ok(answer) => return Ok(answer.value),
            Err(error) if error.retry() && start.elapsed() < PATIENCE => {}
            Err(error) => return Err(error).context("an operation"),
        }
    }
}

/// One worker's share of a steady load: `changes` operations, one every `pace`, on its own people.
pub(crate) async fn work(
    gateway: Arc<Gateway>,
    stayers: Vec<SessionKey>,
    comers: Vec<SessionKey>,
    changes: usize,
    pace: Duration,
    mut random: rand::rngs::StdRng,
) -> Result<()> {
    use rand::RngExt;
    let mut tick = interval(pace);
    for _ in 0..changes {
        tick.tick().await;
        let comes = !comers.is_empty() && random.random_bool(0.5);
        let list = if comes { &comers } else { &stayers };
        let key = &list[random.random_range(0..list.len())];
        if !gateway.has(key) {
            gateway.connect(key).await?;
        } else if comes && random.random_bool(0.5) {
            gateway.leave(key).await?;
        } else {
            gateway.change(key).await?;
        }
    }
    Ok(())
}
