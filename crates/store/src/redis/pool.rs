//! One connection to each master, and what is sent over them: to whoever has the slot now.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::try_join_all;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};
use tokio::{select, time::timeout};

use super::{
    cluster::Cluster,
    link::{Ear, Line, Link},
    topology::{Address, Topology},
};

/// Redirections that are followed within one attempt.
const REDIRECTS: u32 = 4;

/// Connections to the masters; each works or fails by itself.
pub(super) struct Pool {
    cluster: Arc<Cluster>,
    ear: Option<Ear>,
    links: Mutex<Links>,
}

/// The links to the masters of one topology.
struct Links {
    of: Arc<Topology>,
    by_address: HashMap<Address, Arc<Link>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Who is to be asked.
enum Target {
    /// The master of the slot.
    Master,
    /// The server to which the slot is about to move.
    Next(Address),
}

impl Pool {
    /// Connects to each master when it is needed. The ear hears pushes.
    pub(super) fn new(cluster: Arc<Cluster>, ear: Option<Ear>) -> Arc<Self> {
        let links = Links {
            of: cluster.topology().borrow().clone(),
            by_address: HashMap::new(),
        };
        Arc::new(Self {
            cluster,
            ear,
            links: Mutex::new(links),
        })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Sends commands to the master of a slot, one after another on one connection; their
    /// answers, or the first error.
    pub(super) async fn send(&self, slot: u16, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        let mut target = Target::Master;
        let mut last = RedisError::from((ErrorKind::Io, "redirected too often"));
        for _ in 0..REDIRECTS {
            let (link, line) = self.line(slot, &target).await?;
            let answer = match &target {
                Target::Master => select! {
                    answer = line.send(commands) => answer,
                    // Whoever had it may never answer.
                    () = self.has_moved(slot, link.address()) => Err(moved()),
                },
                Target::Next(_) => ask(&line, commands).await,
            };
            link.heard(&line, &answer);
            let error = match answer {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            let Some(next) = self.judge(slot, link.address(), &error) else {
                return Err(error);
            };
            (target, last) = (next, error);
        }
        Err(last)
    }

    /// Sends a command to every master; answers of all.
    pub(super) async fn send_masters(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        let topology = self.cluster.topology().borrow().clone();
        let asked = topology.masters().iter().map(async |master| {
            let link = self.link(master);
            let line = self.patiently(&link).await?;
            let answer = line.send(std::slice::from_ref(command)).await;
            link.heard(&line, &answer);
            let answers = answer.inspect_err(|_| self.cluster.doubt())?;
            Ok::<_, RedisError>(answers.into_iter().next().unwrap_or(Value::Nil))
        });
        try_join_all(asked).await
    }

    /// Where to go with this error, if anywhere; notes what it says of the topology.
    fn judge(&self, slot: u16, by: &Address, error: &RedisError) -> Option<Target> {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                let to = Address::redirected(error.redirect_node()?.0, by)?;
                self.cluster.moved(slot, &to);
                Some(Target::Master)
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let to = Address::redirected(error.redirect_node()?.0, by)?;
                Some(Target::Next(to))
            }
            ErrorKind::Io
            | ErrorKind::Server(
                ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => {
                self.cluster.doubt();
                None
            }
            _ => None,
        }
    }

    async fn line(&self, slot: u16, target: &Target) -> RedisResult<(Arc<Link>, Line)> {
        let Target::Next(address) = target else {
            return self.master(slot).await;
        };
        let link = self.link(address);
        let line = self.patiently(&link).await?;
        Ok((link, line))
    }

    /// The line to the master of a slot, whoever becomes that meanwhile.
    async fn master(&self, slot: u16) -> RedisResult<(Arc<Link>, Line)> {
        let mut topology = self.cluster.topology();
        loop {
            let now = topology.borrow_and_update().clone();
            let Some(master) = now.master(slot) else {
                self.cluster.doubt();
                let patience = self.cluster.dialer().attempt();
                match timeout(patience, topology.changed()).await {
                    Ok(Ok(())) => continue,
                    _ => return Err((ErrorKind::Io, "no master has the slot").into()),
                }
            };
            let link = self.link(master);
            select! {
                line = self.patiently(&link) => return Ok((link, line?)),
                () = self.has_moved(slot, master) => {}
            }
        }
    }

    async fn patiently(&self, link: &Arc<Link>) -> RedisResult<Line> {
        let patience = self.cluster.dialer().attempt();
        timeout(patience, link.line()).await.map_err(|_| {
            self.cluster.doubt();
            RedisError::from((ErrorKind::Io, "no connection", link.cause()))
        })
    }

    /// Returns when somebody else is the master of a slot.
    async fn has_moved(&self, slot: u16, from: &Address) {
        let mut topology = self.cluster.topology();
        // Can't fail: the sender is in `self`.
        let moved = topology.wait_for(|now| now.master(slot) != Some(from));
        let _ = moved.await.map(drop);
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        // Nothing in here can be left half done.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, address: &Address) -> Arc<Link> {
        let now = self.cluster.topology().borrow().clone();
        let mut links = self.lock();
        let mut gone = Vec::new();
        if !Arc::ptr_eq(&links.of, &now) {
            let left = |address: &Address| !now.masters().contains(address);
            gone.extend(links.by_address.extract_if(|address, _| left(address)));
            links.of = now;
        }
        let new = || Link::new(address.clone(), self.cluster.clone(), self.ear.clone());
        let link = links.by_address.entry(address.clone()).or_insert_with(new);
        let link = link.clone();
        // A link that ends tells its ear, which may come back here: not under the lock.
        drop(links);
        drop(gone);
        link
    }
}

async fn ask(line: &Line, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
    let mut all = vec![cmd("ASKING")];
    all.extend_from_slice(commands);
    let mut answers = line.send(&all).await?;
    answers.remove(0);
    Ok(answers)
}

fn moved() -> RedisError {
    (ErrorKind::Io, "the slot moved to another server").into()
}
