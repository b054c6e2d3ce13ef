//! Many clients at once, over all transports.

use adsum_client::{Client, DeviceId, Encoding, RoomId, State, Transport};
use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};

use crate::world::builder;

/// Connections that are being made at a time.
const AT_ONCE: usize = 64;

/// Rooms that a crowd is spread over.
const ROOMS: usize = 10;

/// Connects `user-<n>` for all these numbers, and waits until all are there.
pub(crate) async fn gather(
    numbers: std::ops::Range<usize>,
    gateways: &[String],
) -> Result<Vec<Client>> {
    let clients = numbers.map(|n| async move {
        let (client, events) = builder(&format!("user-{n}"), gateways)
            .transport(transport(n))
            .device(DeviceId::new("web")?)
            .room(RoomId::new(format!("room-{}", n % ROOMS))?)
            .spawn()?;
        // Nobody reads what it is told.
        drop(events);
        client.online().await?;
        anyhow::Ok(client)
    });
    stream::iter(clients)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

fn transport(n: usize) -> Transport {
    match n % 10 {
        0 => Transport::Grpc,
        n if n % 2 == 0 => Transport::WebSocket(Encoding::Json),
        _ => Transport::WebSocket(Encoding::Protobuf),
    }
}

/// All are connected, and none has given up.
pub(crate) async fn all_online(clients: &[Client]) -> Result<()> {
    for client in clients {
        tokio::time::timeout(std::time::Duration::from_secs(60), client.online()).await??;
    }
    Ok(())
}

/// How many are connected to this gateway.
pub(crate) fn count_at(clients: &[Client], gateway: &str) -> usize {
    let here = |client: &&Client| matches!(&*client.state().borrow(), State::Online { endpoint, .. } if endpoint.contains(gateway));
    clients.iter().filter(here).count()
}

/// Says something that everybody sees, after all that happened before.
pub(crate) async fn mark(user: &str, gateways: &[String]) -> Result<Client> {
    let room = RoomId::new("room-0")?;
    let (client, _) = builder(user, gateways).room(room).connect().await?;
    ensure!(matches!(&*client.state().borrow(), State::Online { .. }));
    Ok(client)
}
