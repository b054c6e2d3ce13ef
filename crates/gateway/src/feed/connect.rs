//! How a gateway reaches a dispatcher: over TCP, or through memory in the embedded default.

use std::{error::Error, io, sync::Arc, time::Duration};

use adsum_core::membership::Member;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

/// Why there is no connection; trying again may help.
pub type ConnectError = Box<dyn Error + Send + Sync>;

/// Opens a connection to a member.
pub type Connector =
    Arc<dyn Fn(Arc<Member>) -> BoxFuture<'static, Result<Channel, ConnectError>> + Send + Sync>;

/// Noticed when a host goes without a word; a dead shard is noticed by its missing marks.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// What may be under way to a gateway that does not read.
const WINDOW: u32 = 1 << 19;
/// The library gives a connection up when small frames wait unread whose overhead is half of this;
/// eight times the stream's window is more than they can add up to.
const CONNECTION_WINDOW: u32 = 8 * WINDOW;

fn tuned(endpoint: Endpoint) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .tcp_nodelay(true)
}

/// Connects to the members' addresses, with TLS if it is given.
#[must_use]
pub fn tcp(tls: Option<ClientTlsConfig>) -> Connector {
    Arc::new(move |member| {
        let tls = tls.clone();
        Box::pin(async move {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{}", member.address))?;
            let mut endpoint = tuned(endpoint);
            if let Some(tls) = tls {
                endpoint = endpoint.tls_config(tls)?;
            }
            Ok(endpoint.connect().await?)
        })
    })
}

/// Connects inside the process: `dial` gives one end of a pipe, whose other end the member's
/// server has.
pub fn memory<F>(dial: F) -> Connector
where
    F: Fn(&Member) -> io::Result<DuplexStream> + Send + Sync + 'static,
{
    let dial = Arc::new(dial);
    Arc::new(move |member| {
        let dial = Arc::clone(&dial);
        Box::pin(async move {
            let open = tower::service_fn(move |_| {
                let pipe = dial(&member).map(TokioIo::new);
                async move { pipe }
            });
            let endpoint = tuned(Endpoint::from_static("http://memory"));
            Ok(endpoint.connect_with_connector(open).await?)
        })
    })
}
