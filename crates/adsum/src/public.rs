//! The edge of a gateway: who may come in, what they are held to, and the public port. What of
//! it can be replaced while the node runs is here, too.

use std::{net::SocketAddr, sync::Arc};

use adsum_core::{membership::Membership, ring::ShardRing, store::Store};
use adsum_gateway::{
    Edge, EdgeParts, SettingsBook,
    auth::{Authenticator, Keys},
    doors,
    feed::{Connector, Feed},
    listen::{self, Certificates},
};
use anyhow::{Context, Result, anyhow};
use axum::{
    Router,
    extract::{ConnectInfo, Request},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::config::{Config, ms};

/// A running edge.
#[derive(Clone)]
pub(crate) struct Public {
    /// Sessions, topics, connections.
    pub(crate) edge: Edge,
    /// Where topics come from.
    pub(crate) feed: Feed,
    keys: Arc<Keys>,
    certificates: Option<Arc<Certificates>>,
    book: Arc<SettingsBook>,
}

impl Public {
    /// Begins to hold sessions; nobody can come in yet.
    ///
    /// # Errors
    /// When keys or certificates can't be read or used.
    pub(crate) fn start(
        config: &Config,
        store: &Arc<dyn Store>,
        membership: &Arc<dyn Membership>,
        connector: Connector,
        tasks: &TaskTracker,
    ) -> Result<Self> {
        let (keys, auth) = callers(config)?;
        let certificates = certificates(config)?.map(Arc::new);
        let own = config.tenant_settings();
        let book = SettingsBook::new(config.limits.clone(), config.edge_times(), &own)?;
        let book = Arc::new(book);
        let feed = feed(config, store, membership, connector)?;
        let parts = EdgeParts {
            node: membership.node(),
            store: store.clone(),
            feed: feed.clone(),
            auth: Arc::new(auth),
            book: book.clone(),
        };
        let edge = Edge::start(parts, config.edge(), tasks).context("node.name")?;
        Ok(Self {
            edge,
            feed,
            keys,
            certificates,
            book,
        })
    }

    /// Opens the public port, until `stop`. Files of keys and certificates are watched from now on.
    pub(crate) fn open(
        &self,
        listener: TcpListener,
        config: &Config,
        internal: Router,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) {
        let every = ms(config.times.watch_files_ms);
        tasks.spawn(self.keys.clone().watch(every, stop.clone()));
        if let Some(certificates) = &self.certificates {
            tasks.spawn(certificates.clone().watch(every, stop.clone()));
        }
        let mut router = doors(self.edge.clone());
        if config.node.dev {
            router = router.merge(internal.layer(middleware::from_fn(only_this_machine)));
        }
        let settings = config.public(self.certificates.clone());
        let served = listen::serve(listener, router, settings, stop.clone(), tasks.clone());
        tasks.spawn(served);
    }

    /// Takes over what a new configuration has of limits, tenants, times, keys and certificates.
    ///
    /// # Errors
    /// When something does not fit; nothing is taken over then.
    pub(crate) fn take(&self, config: &Config) -> Result<()> {
        let own = config.tenant_settings();
        // Looked at first, so that nothing is left half done. Limits were checked as a whole.
        certificates(config)?;
        self.keys.reconfigure(&config.auth).map_err(whole)?;
        if let (Some(certificates), Some(cert), Some(key)) =
            (&self.certificates, &config.tls.cert, &config.tls.key)
        {
            let taken = certificates.reconfigure(cert, key);
            taken.map_err(whole).context("tls")?;
        }
        self.book
            .replace(config.limits.clone(), config.edge_times(), &own)?;
        Ok(())
    }
}

/// Reads keys and certificates as a start does, and keeps nothing.
///
/// # Errors
/// When they can't be read or used.
pub(crate) fn check(config: &Config) -> Result<()> {
    callers(config)?;
    certificates(config)?;
    Ok(())
}

/// Who may come in.
fn callers(config: &Config) -> Result<(Arc<Keys>, Authenticator)> {
    let keys = Arc::new(Keys::load(&config.auth).map_err(whole)?);
    let auth = Authenticator::new(keys.clone(), &config.auth, config.node.dev);
    Ok((keys, auth.map_err(whole)?))
}

/// Errors whose text has the cause in it already: told as a chain, they would tell it twice.
fn whole(error: impl std::error::Error) -> anyhow::Error {
    anyhow!("{error}")
}

fn certificates(config: &Config) -> Result<Option<Certificates>> {
    let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) else {
        return Ok(None);
    };
    let loaded = Certificates::load(cert, key).map_err(whole);
    loaded.context("tls").map(Some)
}

fn feed(
    config: &Config,
    store: &Arc<dyn Store>,
    membership: &Arc<dyn Membership>,
    connector: Connector,
) -> Result<Feed> {
    let observer = store.clone();
    let observe = Arc::new(move |shard, epoch| observer.observe(shard, epoch));
    let ring = ShardRing::new(config.cluster.shards);
    let feed = Feed::start(config.feed(), ring, membership.clone(), connector, observe);
    Ok(feed?)
}

/// In development the internal routes are on the public port, too: for callers on this machine,
/// and for nobody else.
async fn only_this_machine(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let near = peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback());
    if near {
        next.run(request).await
    } else {
        StatusCode::NOT_FOUND.into_response()
    }
}
