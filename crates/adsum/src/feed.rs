//! How the feed travels: over TCP between nodes, with certificates on both sides beyond this
//! machine; through memory in the embedded default.

use std::{io, net::SocketAddr, path::Path, time::Duration};

use adsum_dispatcher::Dispatcher;
use adsum_gateway::feed::{self, Connector};
use anyhow::{Context, Result};
use tokio::{io::DuplexStream, net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::{
    Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig, server::TcpIncoming,
};

pub use crate::config::FeedTls;

/// What may be under way in a pipe through memory.
const PIPE: usize = 256 * 1024;
/// Connections through memory that wait to be accepted.
const BACKLOG: usize = 16;
const KEEPALIVE: Duration = Duration::from_secs(5);
const UNFIT: &str = "feed: the certificates can't be used";

/// Where gateways come in.
pub enum Incoming {
    /// From other processes.
    Tcp(TcpListener),
    /// From this one.
    Memory(mpsc::Receiver<io::Result<DuplexStream>>),
}

impl Incoming {
    /// The address to be told to others; none is needed in memory.
    ///
    /// # Errors
    /// When the listener has none.
    pub fn address(&self) -> Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Some).context("listen.feed"),
            Self::Memory(_) => Ok(None),
        }
    }
}

/// Two ends that meet in this process.
#[must_use]
pub fn in_memory() -> (Incoming, Connector) {
    let (dial, incoming) = mpsc::channel(BACKLOG);
    let connector = feed::memory(move |_| {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let full = |_| io::Error::new(io::ErrorKind::ConnectionRefused, "the feed is not served");
        dial.try_send(Ok(theirs)).map_err(full)?;
        Ok(ours)
    });
    (Incoming::Memory(incoming), connector)
}

/// Serves the feed until cancelled.
///
/// # Errors
/// When the certificates can't be read or used.
pub fn serve(
    dispatcher: &Dispatcher,
    incoming: Incoming,
    tls: &FeedTls,
    cancel: &CancellationToken,
    tracker: &TaskTracker,
) -> Result<()> {
    let mut server = Server::builder().http2_keepalive_interval(Some(KEEPALIVE));
    if let (Incoming::Tcp(_), Some(tls)) = (&incoming, server_tls(tls)?) {
        server = server.tls_config(tls).context(UNFIT)?;
    }
    let (router, stop) = (
        server.add_service(dispatcher.feed()),
        cancel.clone().cancelled_owned(),
    );
    tracker.spawn(async move {
        let served = match incoming {
            Incoming::Tcp(listener) => {
                // Small frames one after another: none may wait until the last is acknowledged.
                let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
                router.serve_with_incoming_shutdown(connections, stop).await
            }
            Incoming::Memory(pipes) => {
                router
                    .serve_with_incoming_shutdown(ReceiverStream::new(pipes), stop)
                    .await
            }
        };
        if let Err(error) = served {
            tracing::error!(%error, "the feed's listener ended");
        }
    });
    Ok(())
}

/// Reaches dispatchers in other processes.
///
/// # Errors
/// When the certificates can't be read.
pub fn over_tcp(tls: &FeedTls) -> Result<Connector> {
    Ok(feed::tcp(client_tls(tls)?))
}

/// Reads the certificates as a start does, for both sides, and keeps nothing.
///
/// # Errors
/// When they can't be read or used.
pub(crate) fn check(tls: &FeedTls) -> Result<()> {
    if let Some(tls) = server_tls(tls)? {
        Server::builder().tls_config(tls).context(UNFIT)?;
    }
    if let Some(tls) = client_tls(tls)? {
        // Any name does: nobody is called.
        let endpoint = Endpoint::from_static("https://node");
        endpoint.tls_config(tls).context(UNFIT)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("feed: {} can't be read", file.display()))
}

fn identity(tls: &FeedTls) -> Result<Option<(Certificate, Identity)>> {
    let (Some(ca), Some(cert), Some(key)) = (&tls.ca, &tls.cert, &tls.key) else {
        return Ok(None);
    };
    Ok(Some((
        Certificate::from_pem(read(ca)?),
        Identity::from_pem(read(cert)?, read(key)?),
    )))
}

/// Only gateways whose certificate the cluster's authority signed may attach.
fn server_tls(tls: &FeedTls) -> Result<Option<ServerTlsConfig>> {
    let both = identity(tls)?;
    Ok(both.map(|(ca, us)| ServerTlsConfig::new().identity(us).client_ca_root(ca)))
}

fn client_tls(tls: &FeedTls) -> Result<Option<ClientTlsConfig>> {
    let both = identity(tls)?;
    Ok(both.map(|(ca, us)| {
        let config = ClientTlsConfig::new().ca_certificate(ca).identity(us);
        match &tls.domain {
            Some(domain) => config.domain_name(domain),
            None => config,
        }
    }))
}
