//! A setting that was made through another gateway: whoever holds a session of the user carries it
//! through the loss of everything, and asks nobody for it.

use std::time::Duration;

use adsum_client::{Client, Manual, Mode, RoomId, Status, Topic};
use adsum_tests::{Node, eventually};
use anyhow::{Context, Result, ensure};

use crate::world::{World, builder, url};

/// How often the gateway has opened a session.
async fn opens(gateway: &Node) -> Result<f64> {
    let name = "db_client_operation_duration_seconds_count{db_operation_name=\"open\"}";
    gateway.metric(name).await
}

/// Waits until one who watches sees this of the only one in the room.
async fn seen(watcher: &Client, topic: &Topic, wanted: Status) -> Result<()> {
    eventually("the status is seen", Duration::from_secs(60), || async {
        let view = watcher.view(topic).context("nothing is known")?;
        let statuses: Vec<_> = view.members.iter().map(|item| item.status).collect();
        ensure!(statuses == [wanted], "{view:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_survives_though_its_gateway_and_the_store_lose_it() -> Result<()> {
    let world = World::new("settings").await?;
    let (a, b) = (world.gateway("gw-a").await?, world.gateway("gw-b").await?);
    world.settled().await?;
    let room = RoomId::new("lobby")?;
    let topic = Topic::Room(room.clone());
    let (_phone, _) = builder("ann", &[url(&a)]).room(room).connect().await?;
    let watching = |user, gateway| {
        builder(user, &[url(gateway)])
            .watch(topic.clone(), Mode::Members)
            .connect()
    };
    let (wanda, _events) = watching("wanda", &a).await?;
    seen(&wanda, &topic, Status::Online).await?;
    let before = opens(&a).await?;

    let (laptop, _) = builder("ann", &[url(&b)]).connect().await?;
    laptop.set_status(Some(Manual::Dnd)).await?;
    seen(&wanda, &topic, Status::Dnd).await?;
    laptop.leave().await?;
    ensure!(opens(&a).await? == before, "it was asked for");

    world.redis().flush_all().await?;
    eventually("it is opened again", Duration::from_secs(60), || async {
        ensure!(opens(&a).await? > before);
        Ok(())
    })
    .await?;
    world.settled().await?;
    seen(&wanda, &topic, Status::Dnd).await?;
    let (walt, _events) = watching("walt", &b).await?;
    seen(&walt, &topic, Status::Dnd).await
}
