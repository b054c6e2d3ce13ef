//! A subscriber that stops reading while its rooms are busy.

use std::time::Duration;

use adsum_client::{Freeze, Meta, Mode, RoomId, Topic};
use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::{
    watcher::Watcher,
    world::{World, builder, resident, scaled, url},
};

const CHANGES: usize = 50_000;
const BUSY: usize = 200;
const ROOMS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_does_not_read_costs_little_and_is_right_afterwards() -> Result<()> {
    let world = World::new("slow").await?;
    let (busy, watched) = (
        world.gateway("busy").await?,
        world.gateway("watched").await?,
    );
    let rooms: Vec<_> = (0..ROOMS)
        .map(|n| RoomId::new(format!("room-{n}")).unwrap())
        .collect();
    let at_busy = [url(&busy)];
    let mut people = Vec::new();
    for n in 0..BUSY {
        let room = rooms[n % ROOMS].clone();
        let (client, _) = builder(&format!("user-{n}"), &at_busy)
            .room(room)
            .connect()
            .await?;
        people.push(client);
    }
    let mut subscriber = builder("subscriber", &[url(&watched)]);
    for room in &rooms {
        subscriber = subscriber.watch(Topic::Room(room.clone()), Mode::Members);
    }
    let (subscriber, events) = subscriber.connect().await?;
    drop(events);
    // One who reads shows that the others are not held up.
    let reader = Watcher::new("reader", &[url(&watched)], Topic::Room(rooms[0].clone())).await?;
    reader.knows(BUSY / ROOMS).await?;
    adsum_tests::eventually("the rosters are there", scaled(30_000), || async {
        let known: usize = rooms
            .iter()
            .map(|r| subscriber.roster(&Topic::Room(r.clone())).len())
            .sum();
        ensure!(known == BUSY, "{known}");
        Ok(())
    })
    .await?;

    let before = resident(&watched)?;
    let freeze = Freeze {
        reading: true,
        beating: false,
    };
    subscriber.freeze(freeze).await;
    let start = Instant::now();
    let pad = "x".repeat(500);
    let changes = people.iter().enumerate().map(|(n, client)| {
        let pad = &pad;
        async move {
            for change in 0..CHANGES / BUSY {
                let meta = format!(r#"{{"n":{n},"change":{change},"pad":"{pad}"}}"#);
                client.set_meta(Some(Meta::new(meta, 2048)?)).await?;
            }
            anyhow::Ok(())
        }
    });
    let done: Vec<()> = stream::iter(changes)
        .buffer_unordered(BUSY)
        .try_collect()
        .await?;
    ensure!(done.len() == BUSY);
    let took = start.elapsed();
    let longest = Duration::from_secs(30);
    if took < scaled(30_000) {
        tokio::time::sleep(scaled(30_000) - took).await;
    }
    let after = resident(&watched)?;
    println!(
        "{CHANGES} changes in {took:.1?} ({} told to a reader); the gateway went from {before} to \
         {after} KiB",
        reader.seen().len()
    );
    ensure!(
        after < before + 64 * 1024,
        "it grew from {before} to {after} KiB"
    );

    subscriber.thaw().await;
    let last = format!(r#""change":{}"#, CHANGES / BUSY - 1);
    adsum_tests::eventually("the roster is right", longest, || async {
        for room in &rooms {
            let roster = subscriber.roster(&Topic::Room(room.clone()));
            ensure!(roster.len() == BUSY / ROOMS, "{} in {room}", roster.len());
            let newest = |m: &Option<Meta>| m.as_ref().is_some_and(|m| m.as_str().contains(&last));
            let old = roster.iter().filter(|item| !newest(&item.meta)).count();
            ensure!(old == 0, "{old} of {room} are old");
        }
        Ok(())
    })
    .await
}
