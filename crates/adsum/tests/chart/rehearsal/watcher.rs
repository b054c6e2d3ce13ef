//! Those who watch: the tenant, or a room. They are there themselves, too, as in an app.

use adsum_client::{Client, Mode, RoomId, Topic};
use anyhow::Result;

use super::{Scene, person, sight::Sight};

/// Watches until the load is dropped; what can't be watched shows as never told.
pub(crate) async fn live(scene: Scene, n: usize) {
    if let Err(error) = watch(&scene, n).await {
        println!("watcher {n}: {error:#}");
    }
}

async fn watch(scene: &Scene, n: usize) -> Result<()> {
    let user = format!("watcher-{n}");
    let topic = match n % 2 {
        0 => Topic::Tenant,
        _ => Topic::Room(RoomId::new(person::room(n))?),
    };
    let (client, mut events) = Client::builder()
        .endpoint(scene.server.as_str())
        .token(scene.token(&user)?)
        .timing(scene.times.timing())
        .watch(topic.clone(), Mode::Members)
        .event_capacity(100_000)
        .spawn()?;
    let mut sight = Sight::new(scene, &user, &topic.to_string());
    while let Some(event) = events.next().await {
        sight.hear(&event);
    }
    drop(client);
    Ok(())
}
