//! One connection of the public listener: the handshake, and requests until nothing is under way
//! for too long.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, Request},
    response::Response,
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{
    ListenConfig,
    body::{self, Counted},
    load::{Load, UnderWay},
    pending::Place,
};

/// The head of a request: room for a token of 16 KiB and what proxies add.
const HEAD_MAX: usize = 64 * 1024;
/// What is left of a connection that was told to end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A peer over HTTP/2 that is gone without a word is noticed by pings.
const PING: Duration = Duration::from_secs(20);

/// What all connections share.
pub(super) struct Door {
    router: Router,
    config: ListenConfig,
    builder: Builder<TokioExecutor>,
    stop: CancellationToken,
}

impl Door {
    pub(super) fn new(router: Router, config: ListenConfig, stop: CancellationToken) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        // Slow heads are timed here, together with the handshake and with idle connections.
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(HEAD_MAX);
        #[allow(clippy::cast_possible_truncation)]
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_header_list_size(HEAD_MAX as u32)
            .max_concurrent_streams(config.streams);
        Self {
            router,
            config,
            builder,
            stop,
        }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, place: Place) {
        // On the heap, and each by itself: the room of a connection within TLS would be kept for
        // every other one.
        let Some(tls) = &self.config.tls else {
            return Box::pin(self.requests(stream, peer, place)).await;
        };
        let handshake = tls.acceptor().accept(stream);
        let stream = tokio::select! {
            () = place.lost() => return,
            () = self.stop.cancelled() => return,
            shaken = tokio::time::timeout(self.config.handshake_within, handshake) => shaken,
        };
        match stream {
            Ok(Ok(stream)) => Box::pin(self.requests(stream, peer, place)).await,
            Ok(Err(error)) => tracing::debug!(%error, %peer, "no TLS handshake"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        }
    }

    async fn requests<S>(self: &Arc<Self>, stream: S, peer: SocketAddr, place: Place)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (load, mut watched) = watch::channel(Load::default());
        let load = Arc::new(load);
        let (door, counter) = (Arc::clone(self), Arc::clone(&load));
        // On the heap until the answer begins: a stream of HTTP/2 would keep the room for it until
        // the answer has ended.
        let service = service_fn(move |request| {
            let counted = UnderWay::new(&counter);
            Box::pin(answer(Arc::clone(&door), counted, peer, request))
        });
        let connection = self
            .builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let (mut place, mut ending) = (Some(place), false);
        loop {
            let now = *watched.borrow_and_update();
            if now.served {
                place = None;
            }
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, %peer, "a connection ended badly");
                    }
                    return;
                }
                // `load` lives as long as this loop, so this is never an error.
                _ = watched.changed() => {}
                // Who sent a whole request meanwhile needs no place any more.
                () = lost(place.as_ref()) => if !watched.borrow().served {
                    return;
                },
                () = self.stop.cancelled(), if !ending => {
                    if !watched.borrow().served {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    ending = true;
                }
                () = tokio::time::sleep(self.patience(now, ending)), if now.under_way == 0 => {
                    if ending || place.is_some() {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    ending = true;
                }
            }
        }
    }

    /// How long there may be nothing under way.
    fn patience(&self, load: Load, ending: bool) -> Duration {
        match load {
            _ if ending => LAST_WORDS,
            Load { served: true, .. } => self.config.idle,
            Load { .. } => self.config.header_within,
        }
    }
}

async fn lost(place: Option<&Place>) {
    match place {
        Some(place) => place.lost().await,
        None => std::future::pending().await,
    }
}

async fn answer(
    door: Arc<Door>,
    counted: UnderWay,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Counted>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body::within(door.config.body_within, &parts.headers, body);
    let mut request = Request::from_parts(parts, body);
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = door.router.clone().oneshot(request).await?;
    Ok(response.map(|body| Counted::new(body, counted)))
}
