//! Those who misbehave: raw sockets with garbage, without a hello, or that never read. Nobody
//! may notice them.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use rand::{RngExt, rngs::StdRng};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{client_async, tungstenite::Message};

use super::Scene;

/// Misbehaves again and again.
pub(crate) async fn live(scene: Scene, n: usize, mut rng: StdRng) {
    while !scene.is_calm() {
        let address = scene.any_gate(&mut rng).address;
        let Ok(Ok(stream)) = timeout(scene.times.of(10_000), TcpStream::connect(address)).await
        else {
            sleep(Duration::from_millis(300)).await;
            continue;
        };
        let stay = scene.times.of(rng.random_range(5_000..20_000));
        let bad = misbehave(&scene, stream, n, &mut rng, stay);
        tokio::select! {
            _ = timeout(stay * 2, bad) => {}
            () = scene.calmed() => {}
        }
        sleep(Duration::from_millis(rng.random_range(100..1_500))).await;
    }
}

async fn misbehave(
    scene: &Scene,
    mut stream: TcpStream,
    n: usize,
    rng: &mut StdRng,
    stay: Duration,
) -> Option<()> {
    match n % 4 {
        // Bytes that are no HTTP at all.
        0 => {
            let garbage: Vec<u8> = (0..512).map(|_| rng.random()).collect();
            stream.write_all(&garbage).await.ok()?;
            sleep(stay / 4).await;
        }
        // Asks for the whole tenant, and never reads it.
        1 => {
            let token = scene.pass(&scene.user(1));
            let request = format!(
                "GET /v1/events?topic=tenant HTTP/1.1\r\nHost: x\r\n\
                 Authorization: Bearer {token}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.ok()?;
            sleep(stay).await;
        }
        // A WebSocket that says nothing, or nonsense.
        kind => {
            let (mut socket, _) = client_async("ws://chaos/v1/ws", stream).await.ok()?;
            if kind == 3 {
                for word in ["{", "{\"type\":\"join\"}", "\u{0}", "[[[[", "null"] {
                    socket.send(Message::text(word)).await.ok()?;
                }
                let garbage: Vec<u8> = (0..64).map(|_| rng.random()).collect();
                socket.send(Message::binary(garbage)).await.ok()?;
            }
            while let Some(Ok(_)) = socket.next().await {}
        }
    }
    Some(())
}
