//! The proxy between a client and an echo server.

use std::time::{Duration, Instant};

use adsum_local::{Direction, Proxy};
use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;

/// How long to wait for what must come, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Long enough for a byte on loopback to arrive, if it is to arrive at all.
const SILENCE: Duration = Duration::from_millis(100);

/// What the server saw of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Byte(u8),
    End,
    Reset,
}

/// An echo server behind a proxy.
struct Scene {
    proxy: Proxy,
    seen: UnboundedReceiver<Seen>,
}

impl Scene {
    async fn set() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Proxy::start(listener.local_addr()?)?;
        let (tell, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream, tell.clone()));
            }
        });
        Ok(Self { proxy, seen })
    }

    async fn dial(&self) -> Result<TcpStream> {
        Ok(TcpStream::connect(self.proxy.address()).await?)
    }

    async fn server_sees(&mut self, expected: Seen) -> Result<()> {
        let seen = timeout(PATIENCE, self.seen.recv()).await?;
        ensure!(
            seen.as_ref() == Some(&expected),
            "the server saw {seen:?}, not {expected:?}"
        );
        Ok(())
    }

    async fn server_sees_nothing(&mut self) -> bool {
        timeout(SILENCE, self.seen.recv()).await.is_err()
    }
}

async fn echo(mut stream: TcpStream, tell: mpsc::UnboundedSender<Seen>) -> Result<()> {
    loop {
        let mut byte = [0];
        let seen = match stream.read(&mut byte).await {
            Ok(0) => Seen::End,
            Ok(_) => Seen::Byte(byte[0]),
            Err(_) => Seen::Reset,
        };
        let last = !matches!(seen, Seen::Byte(_));
        tell.send(seen)?;
        if last {
            return Ok(());
        }
        stream.write_all(&byte).await?;
    }
}

async fn ping(stream: &mut TcpStream, byte: u8) -> Result<()> {
    stream.write_all(&[byte]).await?;
    ensure!(timeout(PATIENCE, stream.read_u8()).await?? == byte);
    Ok(())
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SILENCE, stream.read_u8()).await.is_err()
}

async fn is_reset(stream: &mut TcpStream) -> Result<bool> {
    Ok(timeout(PATIENCE, stream.read_u8()).await?.is_err())
}

#[tokio::test]
async fn bytes_and_the_end_of_a_stream_pass() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut client = scene.dial().await?;
    ping(&mut client, 1).await?;
    scene.server_sees(Seen::Byte(1)).await?;
    drop(client);
    scene.server_sees(Seen::End).await?;
    Ok(())
}

#[tokio::test]
async fn a_delay_adds_to_both_ways_and_keeps_the_bandwidth() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(100);
    let scene = Scene::set().await?;
    let mut client = scene.dial().await?;
    scene.proxy.delay(DELAY);
    let begun = Instant::now();
    for byte in 0..20 {
        client.write_all(&[byte]).await?;
        // A packet each, so that the proxy cannot take them for one chunk.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for byte in 0..20 {
        ensure!(client.read_u8().await? == byte);
    }
    ensure!(
        (DELAY * 2..DELAY * 20).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    scene.proxy.heal();
    let begun = Instant::now();
    ping(&mut client, 1).await?;
    ensure!(begun.elapsed() < DELAY * 2);
    Ok(())
}

#[tokio::test]
async fn a_cut_resets_old_and_new_connections_until_healed() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut old = scene.dial().await?;
    ping(&mut old, 1).await?;
    scene.proxy.cut();
    ensure!(is_reset(&mut old).await?);
    scene.server_sees(Seen::Byte(1)).await?;
    scene.server_sees(Seen::Reset).await?;
    // The reset may come before the client has noticed that it is connected.
    if let Ok(mut new) = scene.dial().await {
        ensure!(is_reset(&mut new).await?);
    }
    scene.proxy.heal();
    ping(&mut scene.dial().await?, 2).await
}

#[tokio::test]
async fn close_all_resets_connections_once() -> Result<()> {
    let scene = Scene::set().await?;
    let mut old = scene.dial().await?;
    ping(&mut old, 1).await?;
    scene.proxy.close_all();
    ensure!(is_reset(&mut old).await?);
    ping(&mut scene.dial().await?, 2).await
}

#[tokio::test]
async fn a_black_hole_to_the_server_hides_bytes_and_the_end_of_the_client() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut client = scene.dial().await?;
    ping(&mut client, 1).await?;
    scene.server_sees(Seen::Byte(1)).await?;
    scene.proxy.blackhole(Direction::ToServer);
    client.write_all(&[2]).await?;
    ensure!(is_silent(&mut client).await);
    drop(client);
    ensure!(scene.server_sees_nothing().await);
    scene.proxy.heal();
    scene.server_sees(Seen::Reset).await?;
    ping(&mut scene.dial().await?, 3).await
}

#[tokio::test]
async fn a_black_hole_to_the_client_swallows_only_the_answer() -> Result<()> {
    let mut scene = Scene::set().await?;
    let (mut talker, mut idle) = (scene.dial().await?, scene.dial().await?);
    ping(&mut idle, 1).await?;
    scene.server_sees(Seen::Byte(1)).await?;
    scene.proxy.blackhole(Direction::ToClient);
    talker.write_all(&[2]).await?;
    scene.server_sees(Seen::Byte(2)).await?;
    ensure!(is_silent(&mut talker).await);
    scene.proxy.heal();
    ensure!(is_reset(&mut talker).await?, "a stream with a hole went on");
    ping(&mut idle, 3).await
}

#[tokio::test]
async fn a_dropped_proxy_resets_its_connections() -> Result<()> {
    let scene = Scene::set().await?;
    let mut client = scene.dial().await?;
    ping(&mut client, 1).await?;
    drop(scene.proxy);
    ensure!(is_reset(&mut client).await?);
    Ok(())
}
