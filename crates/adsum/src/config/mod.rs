//! All settings in one place: defaults, then a TOML file, then `ADSUM_SECTION__KEY` variables,
//! then flags. Everything else in the binary takes typed values from here.

mod check;
mod difference;
mod parts;
mod reference;
mod section;
mod sections;
mod telemetry;
mod times;
mod unreadable;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path, time::Duration};

use adsum_core::TenantId;
use adsum_gateway::{
    auth::AuthConfig,
    limits::{EdgeLimits, TenantSettings},
};
use anyhow::{Context, Result, anyhow, bail, ensure};
use figment::{
    Figment, Provider,
    providers::{Env, Format, Serialized, Toml},
};
use serde::{Deserialize, Serialize};

pub(crate) use difference::fixed_differences;
pub(crate) use reference::default_file;
pub(crate) use section::{Key, Section};
pub use sections::FeedTls;
pub(crate) use sections::{Cluster, Etcd, Listen, Log, Node, Redis, Secret, Telemetry, Tls};
pub(crate) use times::{Bounds, Times};

/// Variables that begin like settings and are none.
const NOT_SETTINGS: [&str; 11] = [
    "config", "internal", "keep", "bless", "plant", "secret", "seed", "server", "slow", "tenant",
    "token",
];

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// This node.
    pub(crate) node: Node,
    /// What all nodes must agree on.
    pub(crate) cluster: Cluster,
    /// Where Redis is; nowhere for the embedded default.
    pub(crate) redis: Redis,
    /// Where etcd is; nowhere for the embedded default.
    pub(crate) etcd: Etcd,
    /// Where to listen.
    pub(crate) listen: Listen,
    /// The certificate of the public port.
    pub(crate) tls: Tls,
    /// Who may come in.
    pub(crate) auth: AuthConfig,
    /// How much clients may ask for.
    pub(crate) limits: EdgeLimits,
    /// What tenants have of their own.
    pub(crate) tenants: BTreeMap<TenantId, TenantSettings>,
    /// Certificates of the feed between nodes.
    pub(crate) feed: FeedTls,
    /// Every time constant, in ms.
    pub(crate) times: Times,
    /// Bounds of what is kept and queued.
    pub(crate) bounds: Bounds,
    /// How others see into this node.
    pub(crate) telemetry: Telemetry,
    /// Logging.
    pub(crate) log: Log,
}

impl Config {
    /// Reads the file (if one is given) and the environment. Flags are laid over by the caller.
    ///
    /// # Errors
    /// When the file can't be read, a key is unknown or a value does not fit.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self> {
        let file = match file {
            Some(file) => Some((file, text(file)?)),
            None => None,
        };
        let environment = Env::prefixed("ADSUM_").split("__").ignore(&NOT_SETTINGS);
        let file = file.as_ref().map(|(file, text)| (*file, text.as_str()));
        Self::merged(file, environment)
    }

    /// The defaults, and over them a file with its text, and the environment. What the library
    /// says of a mistake shows values, so none of it is passed on.
    fn merged(file: Option<(&Path, &str)>, environment: impl Provider) -> Result<Self> {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some((file, text)) = file {
            if let Some(problem) = unreadable::syntax(file, text) {
                bail!("the configuration can't be used: {problem}");
            }
            figment = figment.merge(Toml::string(text));
        }
        figment.merge(environment).extract().map_err(|error| {
            let problem = unreadable::values(error, file.map(|(file, _)| file));
            anyhow!("the configuration can't be used: {problem}")
        })
    }

    /// No Redis and no etcd: everything in this process.
    #[must_use]
    pub(crate) fn embedded(&self) -> bool {
        self.redis.urls.is_empty() && self.etcd.endpoints.is_empty()
    }
}

fn text(file: &Path) -> Result<String> {
    ensure!(
        file.exists(),
        "the config file {} does not exist; `adsum default-config` prints one",
        file.display()
    );
    std::fs::read_to_string(file)
        .with_context(|| format!("the config file {} can't be read", file.display()))
}

/// A time constant as a duration.
#[must_use]
pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
