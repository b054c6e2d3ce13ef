//! The cast of a round: people with devices, sessions that hold themselves, those who misbehave,
//! and those who watch.

mod beater;
mod http;
mod person;
mod prefs;
mod rude;
mod sight;
mod stage;
mod watcher;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use adsum_core::{TenantId, UserId, UserKey, ring::ShardRing};
use adsum_tests::history::Event;
use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{record::Record, times::Times, truth::Truth};

pub use stage::{Bearer, Gate, Passes, Stage};

/// Between two looks at the dots.
const LOOK: Duration = Duration::from_millis(100);

/// Dots that are right for so long are right; what else is to be told is told by then, too.
const CERTAIN: Duration = Duration::from_millis(1_500);

/// How large a cast is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Connections of people.
    pub clients: usize,
    /// Sessions that hold themselves.
    pub beaters: usize,
    /// Those who misbehave.
    pub rude: usize,
    /// Rooms that all are spread over.
    pub rooms: usize,
    /// What all do together in a second, about.
    pub actions_per_second: u64,
    /// Users change who may see them.
    pub settings: bool,
    /// Some vanish without a word, for a while or for long.
    pub vanishing: bool,
}

impl Size {
    /// So many clients, and everything else in proportion.
    #[must_use]
    pub fn of(clients: usize) -> Self {
        Self {
            clients: clients - clients / 20,
            beaters: clients / 20,
            rude: (clients / 50).clamp(2, 20),
            rooms: (clients / 40).max(4),
            actions_per_second: (clients as u64 / 5).clamp(20, 250),
            settings: true,
            vanishing: true,
        }
    }
}

/// What all of the cast share.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) tenant: String,
    pub(crate) record: Record,
    pub(crate) truth: Truth,
    pub(crate) times: Times,
    pub(crate) gates: Arc<Vec<Gate>>,
    passes: Passes,
    pub(crate) calm: watch::Receiver<bool>,
    pub(crate) size: Size,
    /// Gateways that were killed lately: some of their clients do not come back.
    pub(crate) killed: Arc<Mutex<BTreeMap<String, u64>>>,
    /// One setting of a user at a time.
    pub(crate) asking: Arc<Mutex<HashMap<String, ()>>>,
}

impl Scene {
    pub(crate) fn is_calm(&self) -> bool {
        *self.calm.borrow()
    }

    /// The token of a user.
    pub(crate) fn pass(&self, user: &str) -> String {
        self.passes.make(Bearer {
            tenant: &self.tenant,
            user: Some(user),
            all: false,
        })
    }

    /// The token of a service, which sees everybody or what strangers may see.
    pub(crate) fn service(&self, all: bool) -> String {
        self.passes.make(Bearer {
            tenant: &self.tenant,
            user: None,
            all,
        })
    }

    /// Returns when all is to be calm.
    pub(crate) async fn calmed(&self) {
        let mut calm = self.calm.clone();
        // The sender lives as long as the round.
        let _ = calm.wait_for(|calm| *calm).await;
    }

    /// The name of the gateway behind an endpoint.
    pub(crate) fn gate(&self, endpoint: &str) -> Option<String> {
        let here = |gate: &&Gate| endpoint.ends_with(&gate.address.to_string());
        self.gates.iter().find(here).map(|gate| gate.name.clone())
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        let url = |gate: &Gate| format!("ws://{}", gate.address);
        self.gates.iter().map(url).collect()
    }

    pub(crate) fn any_gate(&self, rng: &mut StdRng) -> &Gate {
        &self.gates[rng.random_range(0..self.gates.len())]
    }

    /// Every sixth connection is the second device of the user before.
    pub(crate) fn user(&self, n: usize) -> String {
        let n = if n % 6 == 5 { n - 1 } else { n };
        format!("{}-u{n}", self.tenant)
    }

    fn beater(&self, n: usize) -> String {
        format!("{}-b{n}", self.tenant)
    }

    /// Notes where everybody's sessions will be kept.
    fn lives(&self, shards: u16) -> Result<()> {
        let ring = ShardRing::new(shards);
        let people = (0..self.size.clients).map(|n| self.user(n));
        let all = people.chain((0..self.size.beaters).map(|n| self.beater(n)));
        for user in all {
            let tenant = TenantId::new(self.tenant.as_str())?;
            let key = UserKey::new(tenant, UserId::new(user.as_str())?);
            let shard = ring.shard_of(&key);
            self.record.note(Event::Lives { user, shard });
        }
        Ok(())
    }

    pub(crate) fn room(&self, n: usize) -> String {
        format!("room-{}", n % self.size.rooms.max(1))
    }

    fn lately_killed(&self, gateway: &str) -> bool {
        let killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        let at = killed.get(gateway).copied();
        at.is_some_and(|at| self.record.now() < at + 3_000)
    }
}

/// A cast at work.
#[derive(Debug)]
pub struct Cast {
    scene: Scene,
    calm: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

impl Cast {
    /// Everybody comes on.
    pub fn start(stage: Stage, record: &Record, size: Size, seed: u64) -> Result<Self> {
        let (calm, calmed) = watch::channel(false);
        let scene = Scene {
            tenant: stage.tenant,
            record: record.clone(),
            truth: Truth::default(),
            times: stage.times,
            gates: Arc::new(stage.gates),
            passes: stage.passes,
            calm: calmed,
            size,
            killed: Arc::default(),
            asking: Arc::default(),
        };
        scene.lives(stage.shards)?;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut tasks = JoinSet::new();
        for n in 0..size.clients {
            let rng = StdRng::seed_from_u64(rng.random());
            tasks.spawn(person::live(scene.clone(), n, rng));
        }
        for n in 0..size.beaters {
            let rng = StdRng::seed_from_u64(rng.random());
            tasks.spawn(beater::live(scene.clone(), n, rng));
        }
        for n in 0..size.rude {
            let rng = StdRng::seed_from_u64(rng.random());
            tasks.spawn(rude::live(scene.clone(), n, rng));
        }
        for plan in watcher::plans(&scene, &mut rng) {
            tasks.spawn(watcher::live(scene.clone(), plan));
        }
        let tasks = Mutex::new(tasks);
        Ok(Self { scene, calm, tasks })
    }

    /// How many users there are at most.
    #[must_use]
    pub fn users(&self) -> usize {
        let size = self.scene.size;
        size.clients - size.clients / 6 + size.beaters
    }

    /// Who is there, and who is shown.
    #[must_use]
    pub fn truth(&self) -> &Truth {
        &self.scene.truth
    }

    /// A gateway was killed: some of its clients will not come back.
    pub fn lost(&self, gateway: &str) {
        let at = self.scene.record.now();
        let mut killed = self
            .scene
            .killed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        killed.insert(gateway.to_owned(), at);
    }

    /// Waits until nearly all are there and are seen.
    pub async fn come_on(&self) -> Result<()> {
        let (by, truth) = (Instant::now() + Duration::from_secs(60), self.truth());
        while truth.count() < self.users() * 85 / 100 || truth.watching() == 0 {
            let (here, all) = (truth.count(), self.users());
            ensure!(Instant::now() < by, "only {here} of {all} came");
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits for as long as it can take until everything is told, and until all dots are right;
    /// answers after how many ms they were.
    pub async fn converge(&self, quiet: Duration) -> u64 {
        let begun = Instant::now();
        let mut right_since = None;
        while begun.elapsed() < quiet * 3 {
            let right = self.truth().wrong().0 == 0;
            right_since = right_since.filter(|_| right);
            if right {
                right_since.get_or_insert(begun.elapsed());
            }
            let for_good = right_since.is_some_and(|since| begun.elapsed() >= since + CERTAIN);
            if for_good && begun.elapsed() >= quiet {
                break;
            }
            sleep(LOOK).await;
        }
        let right = right_since.unwrap_or(begun.elapsed());
        u64::try_from(right.as_millis()).unwrap_or(u64::MAX)
    }

    /// From now on all only beat.
    pub fn calm_down(&self) {
        self.calm.send_replace(true);
    }

    /// Everybody is gone at once.
    pub async fn end(&self) {
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        tasks.shutdown().await;
    }
}
