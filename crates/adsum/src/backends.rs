//! What a node stands on: the store, the membership, and the way of the feed. Embedded when
//! nothing is configured, never because something configured can't be reached.

use std::{net::SocketAddr, path::Path, sync::Arc};

use adsum_cluster::{EtcdConfig, EtcdMembership, EtcdTls, LocalCluster, Profile};
use adsum_core::{
    membership::{Membership, Role},
    store::Store,
};
use adsum_gateway::feed::Connector;
use adsum_store::{MemoryStore, RedisConfig, RedisStore};
use adsum_telemetry::measured::{Health, MeasuredMembership, MeasuredStore};
use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    config::{Config, ms},
    feed::{self, Incoming},
};

/// Connections that wait to be taken in; the kernel has a limit of its own.
const BACKLOG: u32 = 65_535;

/// Listens, or says what to do.
///
/// # Errors
/// When the address is taken or not ours.
pub(crate) fn listen(address: SocketAddr, name: &str) -> Result<TcpListener> {
    bind(address).with_context(|| {
        format!("can't listen on {address} ({name}); is another node running? Choose another port")
    })
}

/// As many may wait to be taken in as the kernel allows: after a restart of others, thousands come
/// at once, and whoever finds no room is heard again only after seconds.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // As `TcpListener::bind`: a node that starts again takes its port back.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The store, checked.
///
/// # Errors
/// When it can't be reached or used.
pub(crate) async fn store(config: &Config) -> Result<(Arc<dyn Store>, Arc<Health>)> {
    let system = match config.redis.urls.is_empty() {
        true => "memory",
        false => "redis",
    };
    let (store, health) = MeasuredStore::around(connect(config).await?, system);
    store.check().await.context("the store can't be used")?;
    Ok((store, health))
}

async fn connect(config: &Config) -> Result<Arc<dyn Store>> {
    let options = config.store_options();
    if config.redis.urls.is_empty() {
        return Ok(Arc::new(MemoryStore::embedded(options)));
    }
    let urls = config.redis.urls.iter().map(|u| u.expose().to_owned());
    let redis = RedisConfig {
        cluster: config.cluster.name.clone(),
        layout: config.cluster.layout,
        options,
        deadline: ms(config.times.store_deadline_ms),
        ca_pem: read(config.redis.ca.as_deref(), "redis.ca")?,
        ..RedisConfig::new(urls.collect())
    };
    let store = RedisStore::connect(redis)
        .await
        .context("Redis can't be used")?;
    Ok(Arc::new(store))
}

fn read(file: Option<&Path>, key: &str) -> Result<Option<Vec<u8>>> {
    let read = |file: &Path| {
        std::fs::read(file).with_context(|| format!("{key}: {} can't be read", file.display()))
    };
    file.map(read).transpose()
}

/// Reads the files that a start reads, and keeps nothing. Nobody is called.
///
/// # Errors
/// When one of them can't be read or used.
pub(crate) fn check(config: &Config) -> Result<()> {
    if config.embedded() {
        return Ok(());
    }
    read(config.redis.ca.as_deref(), "redis.ca")?;
    let etcd = &config.etcd;
    // Without an authority to trust the others are not looked at.
    if etcd.ca.is_some() {
        read(etcd.ca.as_deref(), "etcd.ca")?;
        read(etcd.cert.as_deref(), "etcd.cert")?;
        read(etcd.key.as_deref(), "etcd.key")?;
    }
    let has = |role| config.node.roles.contains(&role);
    if has(Role::Gateway) || has(Role::Dispatcher) {
        feed::check(&config.feed)?;
    }
    Ok(())
}

/// How the feed travels from and to this node, as far as its roles need it.
///
/// # Errors
/// When its port is taken or its certificates can't be read.
pub(crate) async fn transport(config: &Config) -> Result<(Option<Incoming>, Option<Connector>)> {
    let has = |role| config.node.roles.contains(&role);
    if config.embedded() {
        let (incoming, connector) = feed::in_memory();
        let connector = has(Role::Gateway).then_some(connector);
        return Ok((has(Role::Dispatcher).then_some(incoming), connector));
    }
    let incoming = match has(Role::Dispatcher) {
        true => Some(Incoming::Tcp(listen(config.listen.feed, "listen.feed")?)),
        false => None,
    };
    let connector = match has(Role::Gateway) {
        true => Some(feed::over_tcp(&config.feed)?),
        false => None,
    };
    Ok((incoming, connector))
}

/// Joins the cluster.
///
/// # Errors
/// When etcd can't be reached or used.
pub(crate) async fn membership(
    config: &Config,
    incoming: Option<&Incoming>,
) -> Result<Arc<dyn Membership>> {
    let listening = incoming.map(Incoming::address).transpose()?.flatten();
    let address = match (config.listen.advertise.as_str(), listening) {
        ("", Some(address)) => address.to_string(),
        (advertised, _) => advertised.to_owned(),
    };
    let profile = Profile {
        name: config.node_name(),
        address,
        roles: config.node.roles.clone(),
        zone: config.node.zone.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if config.etcd.endpoints.is_empty() {
        let local = LocalCluster::new().join(profile).context("node.name")?;
        return Ok(MeasuredMembership::around(Arc::new(local)));
    }
    let joined = EtcdMembership::connect(etcd(config), profile)
        .await
        .context("etcd can't be used")?;
    Ok(MeasuredMembership::around(Arc::new(joined)))
}

/// How etcd is reached.
pub(crate) fn etcd(config: &Config) -> EtcdConfig {
    let etcd = &config.etcd;
    let tls = etcd.ca.as_ref().map(|ca| EtcdTls {
        ca: ca.clone(),
        cert: etcd.cert.clone(),
        key: etcd.key.clone(),
        domain: None,
    });
    EtcdConfig {
        lease_ttl: ms(config.times.lease_ttl_ms),
        user: etcd.user.clone(),
        password: etcd.password.as_ref().map(|p| p.expose().to_owned()),
        tls,
        ..EtcdConfig::new(etcd.endpoints.clone(), config.cluster.name.clone())
    }
}
