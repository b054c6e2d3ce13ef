//! What a tenant's clients are held to and promised: the node's limits and times, with the
//! tenant's own laid over them. Replaced as a whole when the configuration is read again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use adsum_core::TenantId;
use adsum_proto::client::FrameLimits;
use arc_swap::ArcSwap;

use crate::limits::{BadLimits, EdgeLimits, TenantSettings};

/// Intervals differ by at most this part of themselves, so that clients don't beat in step.
const JITTER: u64 = 10;

/// Times that clients feel, ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeTimes {
    /// How often a connected client says something.
    pub heartbeat_ms: u64,
    /// How long a client may say nothing.
    pub session_ttl_ms: u64,
    /// How long a broken connection is told to nobody.
    pub linger_ms: u64,
    /// How long last seen is told.
    pub retention_ms: u64,
}

impl Default for EdgeTimes {
    fn default() -> Self {
        Self {
            heartbeat_ms: 15_000,
            session_ttl_ms: 45_000,
            linger_ms: 10_000,
            retention_ms: 90 * 24 * 3_600_000,
        }
    }
}

impl EdgeTimes {
    /// These times with a tenant's own laid over them.
    #[must_use]
    pub fn with(&self, tenant: &TenantSettings) -> Self {
        Self {
            heartbeat_ms: tenant.heartbeat_ms.unwrap_or(self.heartbeat_ms),
            session_ttl_ms: tenant.session_ttl_ms.unwrap_or(self.session_ttl_ms),
            linger_ms: tenant.linger_ms.unwrap_or(self.linger_ms),
            retention_ms: tenant.retention_ms.unwrap_or(self.retention_ms),
        }
    }

    /// How often one client is asked to beat: a little more often than `heartbeat_ms`.
    pub(crate) fn beat_ms(&self) -> u64 {
        let spread = (self.heartbeat_ms / JITTER).max(1);
        self.heartbeat_ms - rand::random_range(0..spread)
    }

    /// How long a broken connection is told to nobody.
    #[must_use]
    pub const fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }

    /// How long a client may say nothing.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.session_ttl_ms)
    }

    fn check(&self) -> Result<(), BadLimits> {
        if self.heartbeat_ms == 0 || self.session_ttl_ms < 2 * self.heartbeat_ms {
            return Err(BadLimits(
                "session_ttl_ms must be at least twice heartbeat_ms: one lost beat must not end a \
                 session",
            ));
        }
        Ok(())
    }
}

/// All that holds for one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How much its clients may ask for.
    pub limits: EdgeLimits,
    /// The same, as the decoders of frames take it.
    pub frame: FrameLimits,
    /// Times that its clients feel.
    pub times: EdgeTimes,
}

impl Settings {
    /// Checks that they make sense together.
    ///
    /// # Errors
    /// Says which don't.
    pub fn new(limits: EdgeLimits, times: EdgeTimes) -> Result<Self, BadLimits> {
        limits.check()?;
        times.check()?;
        let frame = limits.frame();
        Ok(Self {
            limits,
            frame,
            times,
        })
    }
}

/// The settings of all tenants.
#[derive(Debug)]
pub struct SettingsBook(ArcSwap<Pages>);

#[derive(Debug)]
struct Pages {
    node: Arc<Settings>,
    tenants: HashMap<TenantId, Arc<Settings>>,
}

impl SettingsBook {
    /// The node's settings, and what tenants have of their own.
    ///
    /// # Errors
    /// When any make no sense together.
    pub fn new(
        limits: EdgeLimits,
        times: EdgeTimes,
        tenants: &HashMap<TenantId, TenantSettings>,
    ) -> Result<Self, BadLimits> {
        let pages = Pages::new(limits, times, tenants)?;
        Ok(Self(ArcSwap::from_pointee(pages)))
    }

    /// Takes new settings; connections get them with their next frame.
    ///
    /// # Errors
    /// When any make no sense together; the old ones stay.
    pub fn replace(
        &self,
        limits: EdgeLimits,
        times: EdgeTimes,
        tenants: &HashMap<TenantId, TenantSettings>,
    ) -> Result<(), BadLimits> {
        self.0.store(Arc::new(Pages::new(limits, times, tenants)?));
        Ok(())
    }

    /// A tenant's settings.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> Arc<Settings> {
        let pages = self.0.load();
        Arc::clone(pages.tenants.get(tenant).unwrap_or(&pages.node))
    }

    /// The largest frame that any tenant's clients may send.
    #[must_use]
    pub fn largest_frame(&self) -> usize {
        let pages = self.0.load();
        let all = pages.tenants.values().chain([&pages.node]);
        all.map(|settings| settings.limits.frame_bytes)
            .max()
            .unwrap_or_default()
    }

    /// The longest time that any tenant's broken connections are told to nobody.
    #[must_use]
    pub fn longest_linger(&self) -> Duration {
        let pages = self.0.load();
        let all = pages.tenants.values().chain([&pages.node]);
        all.map(|settings| settings.times.linger())
            .max()
            .unwrap_or_default()
    }

    /// The settings of those who have none of their own: also of those who have not said yet
    /// who they are.
    #[must_use]
    pub fn node(&self) -> Arc<Settings> {
        Arc::clone(&self.0.load().node)
    }
}

impl Pages {
    fn new(
        limits: EdgeLimits,
        times: EdgeTimes,
        tenants: &HashMap<TenantId, TenantSettings>,
    ) -> Result<Self, BadLimits> {
        let own = tenants.iter().map(|(tenant, own)| {
            let settings = Settings::new(limits.with(own), times.with(own))?;
            Ok((tenant.clone(), Arc::new(settings)))
        });
        let tenants = own.collect::<Result<_, BadLimits>>()?;
        let node = Arc::new(Settings::new(limits, times)?);
        Ok(Self { node, tenants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_own_lie_over_the_nodes() {
        let tenant = |name| TenantId::new(name).unwrap();
        let own = TenantSettings {
            topics_per_connection: Some(2),
            linger_ms: Some(7),
            ..TenantSettings::default()
        };
        let tenants = HashMap::from([(tenant("acme"), own)]);
        let (limits, times) = (EdgeLimits::default(), EdgeTimes::default());
        let book = SettingsBook::new(limits.clone(), times, &tenants).unwrap();
        let acme = book.of(&tenant("acme"));
        assert_eq!(acme.limits.topics_per_connection, 2);
        assert_eq!(acme.limits.users_per_connection, 500);
        assert_eq!(acme.times.linger_ms, 7);
        assert_eq!(book.of(&tenant("other")), book.node());

        let unfit = EdgeTimes {
            session_ttl_ms: times.heartbeat_ms,
            ..times
        };
        assert!(book.replace(limits.clone(), unfit, &tenants).is_err());
        assert_eq!(book.of(&tenant("acme")), acme);
        book.replace(limits, times, &HashMap::new()).unwrap();
        assert_eq!(book.of(&tenant("acme")).times.linger_ms, 10_000);
    }
}
