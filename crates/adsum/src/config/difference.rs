//! What another reading of the configuration would change, and what of it needs a restart.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use toml::Value;

use super::Config;

/// What is taken over while the node runs: keys, or whole sections.
const TAKEN: [&str; 9] = [
    "auth.jwks",
    "auth.keys",
    "limits",
    "tenants",
    "times.heartbeat_ms",
    "times.linger_ms",
    "times.retention_ms",
    "times.session_ttl_ms",
    "tls",
];

/// The keys that differ and stay as they are until a restart. Names only: values may be secret.
///
/// # Errors
/// When a configuration can't be written down, which every one that was read can.
pub(crate) fn fixed_differences(old: &Config, new: &Config) -> Result<Vec<String>> {
    let (old, new) = (flat(old)?, flat(new)?);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differ = keys
        .into_iter()
        .filter(|key| old.get(*key) != new.get(*key));
    Ok(differ.filter(|key| !taken(key)).cloned().collect())
}

fn taken(key: &str) -> bool {
    let within = |of: &str| {
        key.strip_prefix(of)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    TAKEN.iter().any(|of| within(of))
}

fn flat(config: &Config) -> Result<BTreeMap<String, Value>> {
    let mut flat = BTreeMap::new();
    for (section, value) in toml::Table::try_from(config)? {
        match value {
            Value::Table(keys) => {
                let named = keys.into_iter().map(|(k, v)| (format!("{section}.{k}"), v));
                flat.extend(named);
            }
            value => drop(flat.insert(section, value)),
        }
    }
    Ok(flat)
}
