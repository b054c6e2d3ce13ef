//! The two worlds: the embedded default, and a cluster with two gateways and a third to be lost.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use adsum_gateway::auth::{NewClaims, Role, mint};
use adsum_tests::{Node, NodeAuth, NodeOptions, TestDir, eventually};
use anyhow::{Context, Result, ensure};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::cluster;

const SECRET: &str = "a secret of the tests, long enough for HS256";
const BOUND_SECRET: &str = "another secret, good for one tenant and no other";
/// The only tenant that the second key speaks for.
pub(crate) const BOUND_TENANT: &str = "bound";
const AUDIENCE: &str = "adsum-tests";

/// The times that scenarios measure against. Three times those of [`NodeOptions::fast`]: a hundred
/// scenarios at once keep a small machine busy, and a deadline that it misses is a true one.
const SLOWER: u32 = 3;
pub(crate) const LINGER: Duration = Duration::from_millis(1000).saturating_mul(SLOWER);
pub(crate) const TTL: Duration = Duration::from_millis(4500).saturating_mul(SLOWER);
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(1500).saturating_mul(SLOWER);
pub(crate) const HOLDER_TTL: Duration = Duration::from_millis(3000).saturating_mul(SLOWER);
/// What a reconnect has time for, in the tenants of [`PATIENT`].
pub(crate) const LONG_LINGER: Duration = Duration::from_millis(8000);
/// A client that connects must say hello within this time.
pub(crate) const HELLO: Duration = Duration::from_millis(1000).saturating_mul(SLOWER);

/// The time for a connection's first request.
pub(crate) const HEADER: Duration = Duration::from_millis(3000);

/// The ladder: low enough to be climbed by a test.
pub(crate) const INTERVAL_ABOVE: usize = 150;
pub(crate) const COUNT_ABOVE: usize = 300;
pub(crate) const SAMPLE: usize = 20;

/// Scenarios whose tenants linger longer, so that a busy machine does not break them.
const PATIENT: [&str; 4] = ["linger", "own-linger", "replaced", "node-lost"];
/// Scenarios whose tenants may say little.
const SLOW: [&str; 1] = ["rate"];
/// Every ending of a tenant's name, one for each way to run a scenario.
pub(crate) const ENDINGS: [&str; 5] = ["json", "proto", "grpc", "sse", "watch"];

/// Worlds are heavy, and a machine may have two cores: one at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// Where a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Where those are who do something.
    A,
    /// Where those are who watch. In the embedded world there is only one.
    B,
    /// The gateway that is lost.
    Lost,
}

/// A running service.
pub(crate) struct World {
    pub(crate) name: &'static str,
    nodes: Vec<Node>,
    notes: Mutex<Vec<(&'static str, Duration)>>,
    _cluster: Option<cluster::World>,
    _dir: TestDir,
    _turn: SemaphorePermit<'static>,
}

impl World {
    /// One process, nothing else.
    pub(crate) async fn embedded(name: &'static str) -> Result<Self> {
        let turn = TURN.acquire().await?;
        let dir = TestDir::new("transports")?;
        let options = NodeOptions::fast(env!("CARGO_BIN_EXE_adsum"), "one", ALL_ROLES);
        let node = Node::start(dir.path(), &configured(options, dir.path())?).await?;
        Ok(Self::of(name, vec![node], None, dir, turn))
    }

    /// Six Redis, three etcd, three gateways, two dispatchers with reapers.
    pub(crate) async fn cluster(name: &'static str) -> Result<Self> {
        let turn = TURN.acquire().await?;
        let cluster = cluster::World::new("transports").await?;
        let dir = TestDir::new("transports")?;
        let mut nodes = Vec::new();
        for (name, roles) in [
            ("gateway-a", "gateway"),
            ("gateway-b", "gateway"),
            ("gateway-lost", "gateway"),
            ("dispatcher-1", "dispatcher,reaper"),
            ("dispatcher-2", "dispatcher,reaper"),
        ] {
            let options = configured(cluster.options(name, roles), dir.path())?;
            nodes.push(Node::start(dir.path(), &options).await?);
        }
        cluster::settled(&*cluster.store().await?).await?;
        let world = Self::of(name, nodes, Some(cluster), dir, turn);
        world.served().await?;
        Ok(world)
    }

    fn of(
        name: &'static str,
        nodes: Vec<Node>,
        cluster: Option<cluster::World>,
        dir: TestDir,
        turn: SemaphorePermit<'static>,
    ) -> Self {
        Self {
            name,
            nodes,
            notes: Mutex::default(),
            _cluster: cluster,
            _dir: dir,
            _turn: turn,
        }
    }

    /// Waits until every gateway is fed by everybody who can, and every shard has a reaper.
    async fn served(&self) -> Result<()> {
        eventually("everybody is served", Duration::from_secs(60), || async {
            let mut reaped = 0;
            for node in &self.nodes {
                let ready = node.readyz().await?;
                if let Some(gateway) = ready.get("gateway").filter(|g| g.is_object()) {
                    ensure!(gateway["dispatchers"] == 2, "no dispatchers: {ready}");
                    ensure!(gateway["stale_shards"] == 0, "stale: {ready}");
                }
                reaped += ready["reaper"]["shards"].as_u64().unwrap_or(0);
            }
            ensure!(reaped == u64::from(cluster::SHARDS), "{reaped} are reaped");
            Ok(())
        })
        .await
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.nodes.len() > 1
    }

    fn gateway(&self, side: Side) -> &Node {
        let at = match side {
            Side::A => 0,
            Side::B => 1,
            Side::Lost => 2,
        };
        self.nodes.get(at).unwrap_or(&self.nodes[0])
    }

    /// The public port.
    pub(crate) fn address(&self, side: Side) -> SocketAddr {
        self.gateway(side).public()
    }

    /// SIGKILL for the third gateway.
    pub(crate) fn lose_gateway(&self) -> Result<()> {
        ensure!(self.is_cluster(), "there is only one");
        self.gateway(Side::Lost).process().kill()
    }

    /// Everything still runs, and nobody has panicked.
    pub(crate) fn check(&self) -> Result<()> {
        for node in &self.nodes {
            let log = node.process().log_tail(100_000);
            let panic = log.lines().find(|line| line.contains("panicked at"));
            ensure!(panic.is_none(), "{}: {}", node.name(), panic.unwrap_or(""));
        }
        ensure!(self.gateway(Side::A).process().is_running(), "it has ended");
        Ok(())
    }

    /// The end of the gateways' logs.
    pub(crate) fn last_words(&self) -> String {
        let tails = self.nodes.iter().map(|node| {
            let tail = node.process().log_tail(5);
            format!("{}:\n{tail}", node.name())
        });
        tails.collect::<Vec<_>>().join("\n")
    }

    /// Remembers how long something took.
    pub(crate) fn note(&self, what: &'static str, took: Duration) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.push((what, took));
        }
    }

    /// How long it took, sorted.
    pub(crate) fn noted(&self, what: &str) -> Vec<Duration> {
        let notes = self.notes.lock().map(|notes| notes.clone());
        let notes = notes.unwrap_or_default().into_iter();
        let mut took: Vec<_> = notes.filter(|(w, _)| *w == what).map(|(_, t)| t).collect();
        took.sort_unstable();
        took
    }

    /// Everything that was measured, one line each.
    pub(crate) fn print_notes(&self) {
        let all = self.notes.lock().map(|n| n.clone()).unwrap_or_default();
        let mut names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let took = self.noted(name);
            let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
            let count = took.len();
            println!("  {name}: {count} times, median {median:?}, at most {most:?}");
        }
    }
}

const ALL_ROLES: &str = "gateway,dispatcher,reaper";

fn configured(options: NodeOptions, folder: &Path) -> Result<NodeOptions> {
    let mut tenants = String::new();
    for ending in ENDINGS {
        for name in PATIENT {
            let ms = LONG_LINGER.as_millis();
            tenants += &format!("[tenants.{name}-{ending}]\nlinger_ms = {ms}\n");
        }
        for name in SLOW {
            let limits = "messages_per_second = 5\nmessage_burst = 5";
            tenants += &format!("[tenants.{name}-{ending}]\n{limits}\n");
        }
    }
    // Tools ask faster than people.
    tenants += "[tenants.third-json]\nmessages_per_second = 100000\nmessage_burst = 100000\n";
    let file = folder.join("adsum.toml");
    fs::write(&file, tenants).context("write the configuration")?;
    let keys = format!(
        "[{{alg=\"HS256\",kid=\"main\",secret=\"{SECRET}\"}},\
         {{alg=\"HS256\",kid=\"bound\",secret=\"{BOUND_SECRET}\",tenant=\"{BOUND_TENANT}\"}}]"
    );
    let mut options = options;
    for (key, value) in &mut options.settings {
        // Tokens end at whole seconds, and so is this one measured in them.
        if key.starts_with("TIMES__") && key != "TIMES__EXPIRING_MS" {
            *value = (value.parse::<u32>()? * SLOWER).to_string();
        }
    }
    let mut options = options
        .with("CONFIG", file.display())
        .with("AUTH__KEYS", keys)
        .with("AUTH__AUDIENCE", format!("[\"{AUDIENCE}\"]"))
        .with("TIMES__HEADER_MS", HEADER.as_millis())
        .with("BOUNDS__INTERVAL_ABOVE", INTERVAL_ABOVE)
        .with("BOUNDS__COUNT_ABOVE", COUNT_ABOVE)
        .with("BOUNDS__SAMPLE", SAMPLE);
    options.auth = NodeAuth::Configured;
    Ok(options)
}

pub(crate) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// A user who may join and watch everything, for an hour.
pub(crate) fn claims(tenant: &str, user: &str) -> NewClaims {
    NewClaims {
        sub: Some(user.to_owned()),
        tenant: tenant.to_owned(),
        join: Some(vec!["*".to_owned()]),
        watch: Some(vec!["*".to_owned()]),
        aud: Some(AUDIENCE.to_owned()),
        exp: now_s() + 3600,
        ..NewClaims::default()
    }
}

/// A service that may do everything and sees like a stranger.
pub(crate) fn service(tenant: &str) -> NewClaims {
    NewClaims {
        sub: None,
        role: Role::Service,
        ..claims(tenant, "")
    }
}

/// Signed with the key for all tenants.
pub(crate) fn signed(claims: &NewClaims) -> Result<String> {
    Ok(mint(claims, SECRET.as_bytes(), Some("main"))?)
}

/// Signed with the key for one tenant.
pub(crate) fn signed_bound(claims: &NewClaims) -> Result<String> {
    Ok(mint(claims, BOUND_SECRET.as_bytes(), Some("bound"))?)
}
