//! Connections: to every node of a cluster through the crate's cluster client, or to the one
//! server.

use std::{fmt, sync::Arc, time::Duration};

use adsum_core::store::{Result, StoreError};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, RedisError, RedisResult, TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{
        MultipleNodeRoutingInfo, ResponsePolicy, Route, RoutingInfo, SingleNodeRoutingInfo,
        SlotAddr,
    },
};

use super::{RedisConfig, call, config::server_of, paced::PacedResolver};

/// What hears pushes. Called on the connection's own task: must not block.
pub(super) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Redirections and reconnects that the cluster client follows by itself within one attempt.
const REDIRECTS: u32 = 4;

/// Knows how to connect.
pub(super) struct Dialer {
    nodes: Vec<ConnectionInfo>,
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
            nodes: config
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
        if dialer.nodes.is_empty() {
            return Err(StoreError::Refused("no Redis address is configured".into()));
        }
        dialer.cluster = call::retry(config.deadline, || dialer.ask_for_cluster()).await?;
        if !dialer.cluster && dialer.nodes.len() > 1 {
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

    async fn ask_for_cluster(&self) -> RedisResult<bool> {
        let mut last = None;
        for node in &self.nodes {
            match self.ask_node(node).await {
                Ok(info) => return Ok(info.contains("cluster_enabled:1")),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| RedisError::from((redis::ErrorKind::Io, "no address"))))
    }

    async fn ask_node(&self, node: &ConnectionInfo) -> RedisResult<String> {
        let mut connection = self.dial_single(node, None).await?;
        redis::cmd("INFO")
            .arg("cluster")
            .query_async(&mut connection)
            .await
    }

    /// A new connection.
    pub(super) async fn dial(&self, on_push: Option<OnPush>) -> RedisResult<Wire> {
        if self.cluster {
            return self.dial_cluster(on_push).await.map(Wire::Cluster);
        }
        // `find` made sure that there is one.
        let node = self
            .nodes
            .first()
            .ok_or((redis::ErrorKind::InvalidClientConfig, "no address"))?;
        self.dial_single(node, on_push).await.map(Wire::Single)
    }

    async fn dial_single(
        &self,
        node: &ConnectionInfo,
        on_push: Option<OnPush>,
    ) -> RedisResult<MultiplexedConnection> {
        let client = match &self.certificates {
            Some(trusted) => Client::build_with_tls(node.clone(), trusted.clone())?,
            None => Client::open(node.clone())?,
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

    async fn dial_cluster(&self, on_push: Option<OnPush>) -> RedisResult<ClusterConnection> {
        let mut builder = ClusterClient::builder(self.nodes.iter().cloned())
            .use_protocol(ProtocolVersion::RESP3)
            .async_dns_resolver(PacedResolver::default())
            .retries(REDIRECTS)
            .retry_wait_formula(5, 2)
            .min_retry_wait(5)
            .max_retry_wait(100)
            .connection_timeout(self.attempt)
            // Shorter than the attempt: if both ended at once, the client would not learn that
            // a node is silent, and would not try another one.
            .response_timeout(self.attempt.mul_f64(0.75))
            .overall_response_timeout(Some(self.attempt));
        if let Some(trusted) = &self.certificates {
            builder = builder.certs(trusted.clone());
        }
        if let Some(on_push) = on_push {
            builder = builder.push_sender(push_sender(on_push));
        }
        builder.build()?.get_async_connection().await
    }
}

fn push_sender(on_push: OnPush) -> impl Fn(PushInfo) -> std::result::Result<(), ()> {
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
    Ok(info.set_redis_settings(settings))
}

/// A connection; cheap to clone.
#[derive(Clone)]
pub(super) enum Wire {
    /// To all nodes of a cluster.
    Cluster(ClusterConnection),
    /// To the one server.
    Single(MultiplexedConnection),
}

impl Wire {
    /// Sends a command to the master of a slot.
    pub(super) async fn send(&mut self, slot: u16, command: Cmd) -> RedisResult<Value> {
        let value = match self {
            Self::Cluster(cluster) => {
                cluster
                    .route_command(command, RoutingInfo::SingleNode(master(slot)))
                    .await
            }
            Self::Single(single) => single.req_packed_command(&command).await,
        };
        value?.extract_error()
    }

    /// Sends commands to the master of a slot, one after another on the same connection.
    pub(super) async fn send_all(&mut self, slot: u16, all: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = all.len();
        let values = match self {
            Self::Cluster(cluster) => {
                cluster
                    .route_pipeline(all.clone(), 0, count, master(slot))
                    .await
            }
            Self::Single(single) => single.req_packed_commands(all, 0, count).await,
        };
        values?.into_iter().map(Value::extract_error).collect()
    }

    /// Sends a command to every master; answers of all.
    pub(super) async fn send_masters(&mut self, command: Cmd) -> RedisResult<Vec<Value>> {
        let Self::Cluster(cluster) = self else {
            return Ok(vec![self.send(0, command).await?]);
        };
        let everywhere = MultipleNodeRoutingInfo::AllMasters;
        let routing = RoutingInfo::MultiNode((everywhere, Some(ResponsePolicy::Special)));
        match cluster
            .route_command(command, routing)
            .await?
            .extract_error()?
        {
            Value::Map(answers) => Ok(answers.into_iter().map(|(_, answer)| answer).collect()),
            other => Ok(vec![other]),
        }
    }

    pub(super) async fn ssubscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Cluster(cluster) => cluster.ssubscribe(channel).await,
            Self::Single(single) => subscription(single, "SSUBSCRIBE", channel).await,
        }
    }

    pub(super) async fn sunsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Cluster(cluster) => cluster.sunsubscribe(channel).await,
            Self::Single(single) => subscription(single, "SUNSUBSCRIBE", channel).await,
        }
    }
}

async fn subscription(
    single: &mut MultiplexedConnection,
    command: &str,
    channel: &str,
) -> RedisResult<()> {
    let command = redis::cmd(command).arg(channel).to_owned();
    single
        .req_packed_command(&command)
        .await?
        .extract_error()
        .map(drop)
}

fn master(slot: u16) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master))
}
