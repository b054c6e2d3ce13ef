//! Reading the configuration again while the node runs. What fits is taken over as a whole; what
//! does not changes nothing, and the log says why.

use std::sync::Arc;

use anyhow::{Context, Result};

use crate::{
    config::{Config, fixed_differences},
    public::Public,
};

/// Reads the configuration as it was read at the start: file, variables, flags.
pub(crate) type Reread = Arc<dyn Fn() -> Result<Config> + Send + Sync>;

/// Reads again on demand.
pub(crate) struct Reload {
    started: Arc<Config>,
    reread: Reread,
    public: Option<Public>,
}

impl Reload {
    /// `started` is what the node was started with.
    pub(crate) fn new(started: Arc<Config>, reread: Reread, public: Option<Public>) -> Self {
        Self {
            started,
            reread,
            public,
        }
    }

    /// Takes over what can be, and says what can't.
    pub(crate) async fn now(&self) {
        let (started, reread, public) = (
            self.started.clone(),
            self.reread.clone(),
            self.public.clone(),
        );
        // Files are read: not on a thread that connections wait for.
        let done =
            tokio::task::spawn_blocking(move || take(&started, &reread, public.as_ref())).await;
        match done.context("the reading broke off").flatten() {
            Ok(rest) if rest.is_empty() => tracing::info!("configuration read again"),
            Ok(rest) => tracing::warn!(
                keys = rest.join(", "),
                "configuration read again; these keys differ and need a restart"
            ),
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "new configuration refused, the old one stays"
            ),
        }
    }
}

/// What differs and needs a restart.
fn take(started: &Config, reread: &Reread, public: Option<&Public>) -> Result<Vec<String>> {
    let config = reread()?;
    config.check()?;
    if let Some(public) = public {
        public.take(&config)?;
    }
    let mut rest = fixed_differences(started, &config)?;
    if started.tls.cert.is_some() != config.tls.cert.is_some() {
        rest.push("tls".to_owned());
    }
    let (old, new) = (started.store_options(), config.store_options());
    // The store keeps deadlines and bounds for all tenants as they were at the start.
    if new.settle_ms > old.settle_ms {
        rest.push("session_ttl_ms (longer than any at the start)".to_owned());
    }
    if new.retention_ms != old.retention_ms {
        rest.push("retention_ms (of the store)".to_owned());
    }
    if new.limits != old.limits {
        rest.push("limits of sessions (of the store)".to_owned());
    }
    Ok(rest)
}
