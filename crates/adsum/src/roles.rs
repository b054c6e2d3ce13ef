//! The only place where the parts are wired together.

use std::sync::Arc;

use adsum_cluster::{EtcdConfig, EtcdMembership, EtcdTls, LocalCluster, Profile};
use adsum_core::{
    Limits,
    membership::{Membership, Role},
    ring::ShardRing,
    store::Store,
};
use adsum_dispatcher::{Dispatcher, DispatcherConfig};
use adsum_gateway::feed::{Connector, Feed, FeedConfig};
use adsum_reaper::{Reaper, ReaperConfig};
use adsum_store::{MemoryStore, Options, RedisConfig, RedisStore};
use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{Config, ms},
    feed::{self, Incoming},
    internal::{self, Parts},
};

/// Runs the node until it is told to stop.
///
/// # Errors
/// When something it was configured with can't be reached or used.
pub(crate) async fn serve(config: Config) -> Result<()> {
    let internal = listen(config.listen.internal, "listen.internal").await?;
    let store = store(&config).await?;
    store.check().await.context("the store can't be used")?;
    let (incoming, connector) = transport(&config).await?;
    let membership = membership(&config, incoming.as_ref()).await?;
    tracing::info!(node = %membership.node(), roles = ?config.node.roles, "joined");

    let (cancel, tracker) = (CancellationToken::new(), TaskTracker::new());
    let dispatcher = match incoming {
        Some(incoming) => {
            let settings = dispatcher_config(&config);
            let dispatcher = Dispatcher::start(store.clone(), membership.clone(), settings);
            feed::serve(&dispatcher, incoming, &config.feed, &cancel, &tracker)?;
            Some(dispatcher)
        }
        None => None,
    };
    let gateway = match connector {
        Some(connector) => Some(gateway(&config, &store, &membership, connector)?),
        None => None,
    };
    let reaper = config.node.roles.contains(&Role::Reaper).then(|| {
        let reaper = Reaper::new(store.clone(), membership.clone(), reaper_config(&config));
        let status = reaper.status();
        tracker.spawn(reaper.run(cancel.clone()));
        status
    });
    let address = internal.local_addr().context("listen.internal")?;
    let parts = Parts {
        membership: membership.clone(),
        dispatcher: dispatcher.clone(),
        reaper,
        gateway: gateway.clone(),
    };
    let served = axum::serve(internal, internal::router(Arc::new(parts)))
        .with_graceful_shutdown(cancel.clone().cancelled_owned());
    tracker.spawn(async move { served.await });
    crate::print(&format!(
        "adsum is up: http://{address}/readyz tells how it is"
    ));

    told_to_stop().await;
    tracing::info!("stopping");
    let stopped = tokio::time::timeout(ms(config.times.stop_ms), async {
        // First what others would wait for: shards to reap, streams to follow.
        cancel.cancel();
        if let Some(gateway) = gateway {
            gateway.stop().await;
        }
        if let Some(dispatcher) = dispatcher {
            dispatcher.stop().await;
        }
        tracker.close();
        tracker.wait().await;
        membership.leave().await
    });
    match stopped.await {
        Ok(left) => left.context("could not leave the cluster; the lease will end by itself"),
        Err(_) => anyhow::bail!("did not stop within times.stop_ms"),
    }
}

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(error) => {
            tracing::warn!(%error, "SIGTERM can't be heard, only an interrupt");
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn listen(address: std::net::SocketAddr, name: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("can't listen on {address} ({name}); is another node running? Choose another port")
    })
}

fn options(config: &Config) -> Options {
    let (t, b) = (&config.times, &config.bounds);
    Options {
        shards: config.cluster.shards,
        holder_ms: t.holder_ttl_ms,
        settle_ms: config.settle_ms(),
        alive_gap_ms: t.alive_gap_ms,
        tomb_ms: t.tomb_ms,
        max_deadline_ms: 2 * t.tomb_ms.max(config.settle_ms()),
        retention_ms: t.retention_ms,
        log_len: b.log_len,
        log_max_bytes: b.log_bytes,
        limits: Limits {
            meta_bytes: b.meta_bytes,
            rooms: b.rooms,
            contacts: b.contacts,
        },
    }
}

async fn store(config: &Config) -> Result<Arc<dyn Store>> {
    if config.redis.urls.is_empty() {
        return Ok(Arc::new(MemoryStore::embedded(options(config))));
    }
    let ca_pem = config.redis.ca.as_ref().map(|file| {
        std::fs::read(file).with_context(|| format!("redis.ca: {} can't be read", file.display()))
    });
    let redis = RedisConfig {
        cluster: config.cluster.name.clone(),
        layout: config.cluster.layout,
        options: options(config),
        deadline: ms(config.times.store_deadline_ms),
        ca_pem: ca_pem.transpose()?,
        ..RedisConfig::new(config.redis.urls.clone())
    };
    let store = RedisStore::connect(redis)
        .await
        .context("Redis can't be used")?;
    Ok(Arc::new(store))
}

/// How the feed travels from and to this node, as far as its roles need it.
async fn transport(config: &Config) -> Result<(Option<Incoming>, Option<Connector>)> {
    let has = |role| config.node.roles.contains(&role);
    if config.embedded() {
        let (incoming, connector) = feed::in_memory();
        let connector = has(Role::Gateway).then_some(connector);
        return Ok((has(Role::Dispatcher).then_some(incoming), connector));
    }
    let incoming = match has(Role::Dispatcher) {
        true => Some(Incoming::Tcp(
            listen(config.listen.feed, "listen.feed").await?,
        )),
        false => None,
    };
    let connector = match has(Role::Gateway) {
        true => Some(feed::over_tcp(&config.feed)?),
        false => None,
    };
    Ok((incoming, connector))
}

async fn membership(config: &Config, incoming: Option<&Incoming>) -> Result<Arc<dyn Membership>> {
    let listening = incoming.map(Incoming::address).transpose()?.flatten();
    let address = match (config.listen.advertise.as_str(), listening) {
        ("", Some(address)) => address.to_string(),
        (advertised, _) => advertised.to_owned(),
    };
    let profile = Profile {
        name: name(config),
        address,
        roles: config.node.roles.clone(),
        zone: config.node.zone.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if config.etcd.endpoints.is_empty() {
        let local = LocalCluster::new().join(profile).context("node.name")?;
        return Ok(Arc::new(local));
    }
    let etcd = &config.etcd;
    let tls = etcd.ca.as_ref().map(|ca| EtcdTls {
        ca: ca.clone(),
        cert: etcd.cert.clone(),
        key: etcd.key.clone(),
        domain: None,
    });
    let etcd = EtcdConfig {
        lease_ttl: ms(config.times.lease_ttl_ms),
        user: etcd.user.clone(),
        password: etcd.password.clone(),
        tls,
        ..EtcdConfig::new(etcd.endpoints.clone(), config.cluster.name.clone())
    };
    let joined = EtcdMembership::connect(etcd, profile)
        .await
        .context("etcd can't be used")?;
    Ok(Arc::new(joined))
}

fn name(config: &Config) -> String {
    if !config.node.name.is_empty() {
        return config.node.name.clone();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => "node".to_owned(),
        host => host.to_owned(),
    }
}

fn dispatcher_config(config: &Config) -> DispatcherConfig {
    DispatcherConfig {
        cluster: config.cluster.name.clone(),
        layout: config.cluster.layout,
        poll: ms(config.times.poll_ms),
        replicas: config.bounds.feed_replicas,
        unload_after: ms(config.times.unload_ms),
        history: config.bounds.feed_history,
        queue: config.bounds.feed_queue,
        ..DispatcherConfig::default()
    }
}

fn gateway(
    config: &Config,
    store: &Arc<dyn Store>,
    membership: &Arc<dyn Membership>,
    connector: Connector,
) -> Result<Feed> {
    let (t, c) = (&config.times, &config.cluster);
    let settings = FeedConfig {
        silent_after: ms(t.silent_ms),
        stale_after: 3 * ms(t.silent_ms),
        complete_after: ms(t.complete_ms),
        ..FeedConfig::new(c.name.clone(), c.layout, c.shards)
    };
    let observer = store.clone();
    let observe = Arc::new(move |shard, epoch| observer.observe(shard, epoch));
    let ring = ShardRing::new(c.shards);
    Ok(Feed::start(
        settings,
        ring,
        membership.clone(),
        connector,
        observe,
    )?)
}

fn reaper_config(config: &Config) -> ReaperConfig {
    let t = &config.times;
    let lease = ms(t.lease_ttl_ms);
    ReaperConfig {
        shards: config.cluster.shards,
        sweep_interval: ms(t.sweep_ms),
        sweep_limit: config.bounds.sweep_limit,
        ownerless_grace: ms(t.ownerless_ms),
        lease_margin: lease / 5,
        ..ReaperConfig::default()
    }
}
