//! What a Redis store is configured with.

use std::{fmt, time::Duration};

use redis::IntoConnectionInfo;

use crate::{Hooks, Options};

/// Where Redis is, and how long to wait for it.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://` or `rediss://` (TLS), with user and password if needed. Some nodes of a
    /// cluster, or the one server.
    pub urls: Vec<String>,
    /// The name in the keys, so that several can share a Redis.
    pub cluster: String,
    /// The layout in the keys.
    pub layout: u32,
    /// Numbers and times.
    pub options: Options,
    /// Levers for tests.
    pub hooks: Hooks,
    /// How long an operation may take, with all its attempts.
    pub deadline: Duration,
    /// How long one attempt may take.
    pub attempt_timeout: Duration,
    /// Replicas that must have a preference before it counts as written. By default one in a
    /// cluster, none with a single server.
    pub replicas: Option<usize>,
    /// Certificates (PEM) to trust with `rediss://` instead of the public ones.
    pub ca_pem: Option<Vec<u8>>,
}

impl RedisConfig {
    /// The usual configuration for servers at these addresses.
    #[must_use]
    pub fn new(urls: Vec<String>) -> Self {
        Self {
            urls,
            cluster: "adsum".into(),
            layout: 1,
            options: Options::default(),
            hooks: Hooks::default(),
            deadline: Duration::from_secs(5),
            attempt_timeout: Duration::from_secs(1),
            replicas: None,
            ca_pem: None,
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.urls.iter().map(|url| server_of(url)).collect();
        f.debug_struct("RedisConfig")
            .field("servers", &servers)
            .field("cluster", &self.cluster)
            .field("layout", &self.layout)
            .field("options", &self.options)
            .field("deadline", &self.deadline)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("replicas", &self.replicas)
            .field("ca_pem", &self.ca_pem.is_some())
            .finish_non_exhaustive()
    }
}

/// Host and port of a URL: all of it that may be shown.
pub(super) fn server_of(url: &str) -> String {
    match url.into_connection_info() {
        Ok(info) => info.addr().to_string(),
        Err(_) => "not a redis:// or rediss:// URL".into(),
    }
}
