//! A TCP proxy that delays, cuts and swallows what passes through it, switchable at run time.
//!
//! It runs on a runtime of its own: a proxy kept in a static outlives the runtime of the test
//! that made it, and a test that blocks its thread does not slow the line.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::wait::POLL;

mod pipe;

/// Which way bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
    /// Both ways.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    Delay(Duration),
    Cut,
    Blackhole(Direction),
}

/// What all connections of a proxy watch.
#[derive(Clone, Copy, Debug)]
struct Line {
    mode: Mode,
    /// Counts the calls of [`Proxy::close_all`]; a connection of an older age is reset.
    age: u64,
}

/// A proxy to one address. Dropped, it resets its connections and gives up its port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    line: watch::Sender<Line>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and passes everything to `target`, which need not
    /// listen yet.
    pub fn start(target: SocketAddr) -> Result<Self> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a proxy")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (line, watched) = watch::channel(Line {
            mode: Mode::Pass,
            age: 0,
        });
        let runtime = runtime()?;
        let _entered = runtime.enter();
        runtime.spawn(accept(TcpListener::from_std(listener)?, target, watched));
        Ok(Self { address, line })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every byte arrives `delay` later, in each direction, in order; bandwidth is unchanged.
    pub fn delay(&self, delay: Duration) {
        self.switch(Mode::Delay(delay));
    }

    /// Resets all connections, and every new one as soon as it is accepted.
    pub fn cut(&self) {
        self.switch(Mode::Cut);
    }

    /// Swallows what travels in `direction`, the news of a closed connection included: each
    /// side believes that the other is there. New connections are accepted, and swallowed too.
    pub fn blackhole(&self, direction: Direction) {
        self.switch(Mode::Blackhole(direction));
    }

    /// Passes everything again. Connections that have lost bytes are reset, since TCP never
    /// delivers a stream with a hole in it; the others go on.
    pub fn heal(&self) {
        self.switch(Mode::Pass);
    }

    /// Resets the connections of this moment, once.
    pub fn close_all(&self) {
        self.line.send_modify(|line| line.age += 1);
    }

    fn switch(&self, mode: Mode) {
        self.line.send_modify(|line| line.mode = mode);
    }
}

impl Mode {
    fn delay(self) -> Duration {
        if let Self::Delay(delay) = self {
            delay
        } else {
            Duration::ZERO
        }
    }

    fn swallows(self, way: Direction) -> bool {
        matches!(self, Self::Blackhole(swallowed) if swallowed == way || swallowed == Direction::Both)
    }
}

/// Accepts until the proxy is dropped, which its connections notice by themselves.
async fn accept(listener: TcpListener, target: SocketAddr, line: watch::Receiver<Line>) {
    let mut dropped = line.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = dropped.wait_for(|_| false) => return,
        };
        match accepted {
            Ok((client, _)) => drop(tokio::spawn(pipe::carry(client, target, line.clone()))),
            // Out of files, most likely, and not the sooner out of it by asking at once.
            Err(_) => sleep(POLL).await,
        }
    }
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
    });
    RUNTIME
        .as_ref()
        .map_err(|error| anyhow!("start the runtime of the proxies: {error}"))
}
