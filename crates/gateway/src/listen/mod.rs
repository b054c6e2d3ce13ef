//! The public listener: one port for HTTP/1.1, its upgrades, and HTTP/2, with or without TLS.
//!
//! Who connects must send a whole request soon. Those who have not yet are counted, and when
//! there are too many the one that has taken longest makes room: a real client needs
//! milliseconds, so a crowd of slow ones costs only the slow ones.

mod body;
mod connection;
mod load;
mod pending;
mod tls;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use connection::Door;
use pending::Pending;
pub use tls::{CertError, Certificates};

/// After an accept that failed for want of something: the first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// What is wrong with accepting is not said again for so long.
const SAID_FOR: Duration = Duration::from_secs(30);

/// Times and bounds of a listener.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// The time for a TLS handshake.
    pub handshake_within: Duration,
    /// The time for the first request, after the handshake.
    pub header_within: Duration,
    /// The time for the body of a request, unless it is a stream of gRPC.
    pub body_within: Duration,
    /// A connection with nothing under way is closed after this time.
    pub idle: Duration,
    /// Connections that have not sent a whole request yet.
    pub pending: usize,
    /// Streams of one HTTP/2 connection at a time.
    pub streams: u32,
    /// With TLS.
    pub tls: Option<Arc<Certificates>>,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            handshake_within: Duration::from_secs(10),
            header_within: Duration::from_secs(10),
            body_within: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            pending: 4096,
            streams: 256,
            tls: None,
        }
    }
}

/// Serves `router` to all who come, until `stop`; requests under way are then finished. The
/// connections' tasks are spawned on `tasks`, so that who stops can wait for them. Requests carry
/// the other end of their connection as `ConnectInfo<SocketAddr>`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: ListenConfig,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let pending = Pending::new(config.pending);
    let door = Arc::new(Door::new(router, config, stop.clone()));
    let mut want = Want::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                want.pause = None;
                no_delay(&stream, peer);
                let place = pending.enter();
                tasks.spawn(Arc::clone(&door).serve(stream, peer, place));
            }
            Err(error) if of_the_peer(&error) => tracing::debug!(%error, "a connection broke off"),
            Err(error) => tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(want.of(&error)) => {}
            },
        }
    }
}

/// What is missing to accept connections, most likely file descriptors: said now and then, not
/// each time.
#[derive(Default)]
struct Want {
    pause: Option<Duration>,
    said: Option<Instant>,
}

impl Want {
    /// How long to wait before the next try.
    fn of(&mut self, error: &io::Error) -> Duration {
        if self.said.is_none_or(|at| at.elapsed() > SAID_FOR) {
            self.said = Some(Instant::now());
            tracing::error!(
                %error,
                "connections can't be accepted, trying again; is the limit of open files too low?"
            );
        }
        let pause = self.pause.map_or(PAUSES.0, |last| (2 * last).min(PAUSES.1));
        *self.pause.insert(pause)
    }
}

/// Frames are small and each matters now.
fn no_delay(stream: &TcpStream, peer: SocketAddr) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %peer, "TCP_NODELAY can't be set");
    }
}

/// Errors of one connection, which say nothing about the next one.
fn of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
