//! Connections to one server each. Who is asked what is decided elsewhere: the crate's cluster
//! client sends nothing to anybody while it looks for one server that went away.

use std::{fmt, sync::Arc, time::Duration};

use adsum_core::store::{Result, StoreError};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisError, RedisResult, TlsCertificates,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};

use super::{RedisConfig, call, config::server_of, topology::Address};

/// What hears pushes of one connection. Called on the connection's own task: must not block.
pub(super) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Knows how to connect.
pub(super) struct Dialer {
    /// The configured servers.
    seeds: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
    attempt: Duration,
    cluster: bool,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl Dialer {
    /// Asks the first server that answers whether it belongs to a cluster.
    pub(super) async fn find(config: &RedisConfig) -> Result<Self> {
        // The crate panics at its first TLS connection if nobody has chosen the cryptography;
        // whoever chose before us is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut dialer = Self {
            seeds: config
                .urls
                .iter()
                .map(|url| parse(url))
                .collect::<Result<_>>()?,
            certificates: config.ca_pem.clone().map(|pem| TlsCertificates {
                client_tls: None,
                root_cert: Some(pem),
            }),
            attempt: config.attempt_timeout,
            cluster: false,
        };
        if dialer.seeds.is_empty() {
            return Err(StoreError::Refused("no Redis address is configured".into()));
        }
        dialer.cluster = call::retry(config.deadline, || dialer.ask_for_cluster()).await?;
        if !dialer.cluster && dialer.seeds.len() > 1 {
            let server = server_of(&config.urls[0]);
            return Err(StoreError::Refused(format!(
                "several addresses are configured, but {server} is not part of a cluster"
            )));
        }
        Ok(dialer)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// How long one attempt may take.
    pub(super) fn attempt(&self) -> Duration {
        self.attempt
    }

    /// The addresses of the configured servers.
    pub(super) fn seeds(&self) -> impl Iterator<Item = Address> {
        self.seeds.iter().map(|seed| Address::of(seed.addr()))
    }

    async fn ask_for_cluster(&self) -> RedisResult<bool> {
        let mut last = None;
        for seed in &self.seeds {
            match self.ask_seed(seed).await {
                Ok(info) => return Ok(info.contains("cluster_enabled:1")),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| RedisError::from((redis::ErrorKind::Io, "no address"))))
    }

    async fn ask_seed(&self, seed: &ConnectionInfo) -> RedisResult<String> {
        let mut connection = self.connect(seed.clone(), None).await?;
        redis::cmd("INFO")
            .arg("cluster")
            .query_async(&mut connection)
            .await
    }

    /// A new connection to a server: as configured, or as a configured one but elsewhere.
    pub(super) async fn dial(
        &self,
        address: &Address,
        on_push: Option<OnPush>,
    ) -> RedisResult<MultiplexedConnection> {
        let known = self
            .seeds
            .iter()
            .find(|seed| Address::of(seed.addr()) == *address);
        let info = match (known, self.seeds.first()) {
            (Some(known), _) => known.clone(),
            (None, Some(like)) => like.clone().set_addr(address.like(like.addr())),
            // `find` made sure that there is one.
            (None, None) => {
                return Err((redis::ErrorKind::InvalidClientConfig, "no address").into());
            }
        };
        self.connect(info, on_push).await
    }

    async fn connect(
        &self,
        info: ConnectionInfo,
        on_push: Option<OnPush>,
    ) -> RedisResult<MultiplexedConnection> {
        let client = match &self.certificates {
            Some(trusted) => Client::build_with_tls(info, trusted.clone())?,
            None => Client::open(info)?,
        };
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.attempt))
            .set_response_timeout(Some(self.attempt));
        if let Some(on_push) = on_push {
            config = config.set_push_sender(push_sender(on_push));
        }
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }
}

fn push_sender(on_push: OnPush) -> impl Fn(PushInfo) -> std::result::Result<(), ()> {
    let on_push: Arc<dyn Fn(PushInfo) + Send + Sync> = on_push.into();
    move |info| {
        on_push(info);
        Ok(())
    }
}

fn parse(url: &str) -> Result<ConnectionInfo> {
    let bad = || StoreError::Refused(server_of(url));
    let info = url.into_connection_info().map_err(|_| bad())?;
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    // Small requests one after another: none may wait until the last is acknowledged.
    let tcp = TcpSettings::default().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

impl Address {
    fn of(addr: &ConnectionAddr) -> Self {
        match addr {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Self::new(host, *port)
            }
            // A socket in the file system: its path is as good a name as any.
            other => Self::new(&other.to_string(), 0),
        }
    }

    /// This address, reached as that one is: with TLS and its certificates, or without.
    fn like(&self, addr: &ConnectionAddr) -> ConnectionAddr {
        let (host, port) = (self.host().to_owned(), self.port());
        match addr {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}
