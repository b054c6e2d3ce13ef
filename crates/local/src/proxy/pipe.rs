//! One connection through a proxy: two streams of events that a mode may delay or swallow.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::{Direction, Line, Mode};

const CHUNK: usize = 16 * 1024;
/// Chunks under way in one direction of a delayed connection; more wait in the sender's socket.
const CHUNKS_UNDER_WAY: usize = 1024;

enum Event {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// The directions in which something was swallowed.
#[derive(Default)]
struct Holes {
    to_server: AtomicBool,
    to_client: AtomicBool,
}

impl Holes {
    fn of(&self, way: Direction) -> &AtomicBool {
        if way == Direction::ToServer {
            &self.to_server
        } else {
            &self.to_client
        }
    }

    /// Whether bytes after a hole would get through now.
    fn exposed(&self, mode: Mode) -> bool {
        [Direction::ToServer, Direction::ToClient]
            .into_iter()
            .any(|way| self.of(way).load(Ordering::Relaxed) && !mode.swallows(way))
    }
}

/// Carries one connection until it ends, or until the proxy breaks it.
pub(super) async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    mut line: watch::Receiver<Line>,
) {
    let holes = Holes::default();
    let wires = line.clone();
    let born = line.borrow_and_update().age;
    // A proxy that was dropped makes `wait_for` fail, and breaks its connections like a cut.
    let broken = line
        .wait_for(|line| line.mode == Mode::Cut || line.age != born || holes.exposed(line.mode));
    let mut server = None;
    let closed = tokio::select! {
        biased;
        _ = broken => Err(io::ErrorKind::ConnectionReset.into()),
        closed = exchange(&mut client, &mut server, target, &wires, &holes) => closed,
    };
    if closed.is_err() {
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            let _ = stream.set_zero_linger();
        }
    }
}

async fn exchange(
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    target: SocketAddr,
    line: &watch::Receiver<Line>,
    holes: &Holes,
) -> io::Result<()> {
    let server = server.insert(TcpStream::connect(target).await?);
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = Pipe {
        way: Direction::ToServer,
        back: Direction::ToClient,
        line,
        holes,
    };
    let down = Pipe {
        way: Direction::ToClient,
        back: Direction::ToServer,
        line,
        holes,
    };
    tokio::try_join!(
        up.run(from_client, to_server),
        down.run(from_server, to_client)
    )?;
    Ok(())
}

/// One direction of a connection.
struct Pipe<'a> {
    way: Direction,
    back: Direction,
    line: &'a watch::Receiver<Line>,
    holes: &'a Holes,
}

impl Pipe<'_> {
    async fn run(
        &self,
        source: impl AsyncRead + Unpin,
        sink: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel(CHUNKS_UNDER_WAY);
        tokio::try_join!(self.read(source, sender), self.write(receiver, sink))?;
        Ok(())
    }

    /// Stamps every event with the time at which it may arrive.
    async fn read(
        &self,
        mut source: impl AsyncRead + Unpin,
        events: mpsc::Sender<(Instant, Event)>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let event = match source.read(&mut buffer).await {
                Ok(0) => Event::End,
                Ok(length) => Event::Bytes(buffer[..length].to_vec()),
                Err(_) => Event::Reset,
            };
            let last = !matches!(event, Event::Bytes(_));
            let due = Instant::now() + self.line.borrow().mode.delay();
            if events.send((due, event)).await.is_err() || last {
                return Ok(());
            }
        }
    }

    async fn write(
        &self,
        mut events: mpsc::Receiver<(Instant, Event)>,
        mut sink: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        while let Some((due, event)) = events.recv().await {
            // The timer's grain is a millisecond: a line without delay must not pay it.
            if due > Instant::now() {
                sleep_until(due).await;
            }
            if self.swallowed(self.way) {
                continue;
            }
            let written = match event {
                Event::Bytes(bytes) => sink.write_all(&bytes).await,
                Event::End => return sink.shutdown().await,
                Event::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            };
            // That the receiver is gone is news for the sender, and travels back to it.
            if written.is_err() && !self.swallowed(self.back) {
                return written;
            }
        }
        // The end was swallowed: the connection stays open until the proxy breaks it.
        std::future::pending().await
    }

    /// Whether news that travel this `way` are lost; from then on the stream has a hole, and
    /// nothing after it may get through.
    fn swallowed(&self, way: Direction) -> bool {
        let hole = self.holes.of(way);
        let swallowed = hole.load(Ordering::Relaxed) || self.line.borrow().mode.swallows(way);
        hole.fetch_or(swallowed, Ordering::Relaxed);
        swallowed
    }
}
