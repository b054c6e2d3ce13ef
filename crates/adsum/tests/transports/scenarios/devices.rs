//! Several devices of one user, and several connections of one device.

use adsum_client::{Activity, Client, Conn, DeviceId, EndReason, Event, Item, Kind, Reason};
use adsum_core::Manual;
use adsum_proto::client::{
    Patch,
    frame::{ClientBody, Hello, ServerBody},
};
use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{
    raw::{Raw, hello},
    stage::{Actor, Plan, Stage, room, soon},
    watcher::topic,
    world::{Side, now_ms},
};

fn kinds(item: &Item) -> Vec<&str> {
    item.devices.iter().map(|kind| kind.as_str()).collect()
}

pub(super) async fn two_devices(stage: &Stage) -> Result<()> {
    let mut watcher = stage.watch("wanda", &["room:lobby", "user:ann"]).await?;
    let laptop = stage.arrive(Plan::of("ann").room("lobby")).await?;
    watcher.joined("room:lobby", "ann").await?;
    watcher.joined("user:ann", "ann").await?;
    let phone = Plan::of("ann")
        .device("phone", "mobile")
        .room("lobby")
        .at(Side::B);
    let phone = stage.arrive(phone).await?;
    let item = watcher.updated("room:lobby", "ann").await?;
    ensure!(kinds(&item) == ["mobile", "web"], "{item:?}");
    let item = watcher.updated("user:ann", "ann").await?;
    ensure!(kinds(&item) == ["mobile", "web"], "{item:?}");
    // Online as long as one of them is.
    laptop.set_activity(Activity::Away).await?;
    phone.part("lobby").await?;
    let item = watcher.updated("room:lobby", "ann").await?;
    ensure!(kinds(&item) == ["web"], "{item:?}");
    laptop.leave().await?;
    watcher.left("room:lobby", "ann", Reason::Leave).await?;
    let item = watcher.updated("user:ann", "ann").await?;
    ensure!(kinds(&item) == ["mobile"], "{item:?}");
    phone.leave().await?;
    watcher.left("user:ann", "ann", Reason::Leave).await?;
    Ok(())
}

pub(super) async fn same_device_twice(stage: &Stage) -> Result<()> {
    let mut watcher = stage.watch("wanda", &["room:lobby"]).await?;
    let older = stage.arrive(Plan::of("ann").room("lobby")).await?;
    watcher.joined("room:lobby", "ann").await?;
    let newer = stage
        .arrive(Plan::of("ann").room("lobby").at(Side::B))
        .await?;
    match &older {
        Actor::Connected(client, _) => {
            let reason = soon("the older is told", client.ended()).await?;
            ensure!(reason == EndReason::Replaced, "{reason:?}");
        }
        Actor::Beats(beater) => {
            let refused = beater.beat().await.err().map(|e| e.to_string());
            ensure!(refused.as_deref() == Some("superseded"), "{refused:?}");
        }
    }
    // Nobody has seen a thing.
    newer.set_meta(Some("1")).await?;
    watcher.updated("room:lobby", "ann").await?;
    newer.leave().await?;
    watcher.left("room:lobby", "ann", Reason::Leave).await?;
    Ok(())
}

/// Of one device, with this number.
fn numbered(stage: &Stage, conn: u64) -> Result<Hello> {
    Ok(Hello {
        device: Some(DeviceId::new("laptop")?),
        conn: Some(Conn::new(conn)?),
        kind: Kind::new("web").map_err(|e| anyhow!("{e:?}"))?,
        rooms: vec![adsum_proto::client::frame::Join {
            room: room("lobby")?,
            meta: None,
        }],
        ..hello(&stage.token("ann")?)
    })
}

pub(super) async fn superseded(stage: &Stage) -> Result<()> {
    let mut watcher = stage.watch("wanda", &["room:lobby"]).await?;
    // A clock that is an hour ahead.
    let ahead = now_ms() + 3_600_000;
    let first = numbered(stage, ahead)?;
    let mut first = Raw::welcomed(stage.wire, stage.address(Side::A), first).await?;
    watcher.joined("room:lobby", "ann").await?;
    if stage.wire.beats() {
        let refused = stage.beat(Plan::of("ann").room("lobby")).await.err();
        let refused = refused.map(|e| e.to_string());
        ensure!(refused.as_deref() == Some("superseded"), "{refused:?}");
        first.stands().await?;
    } else {
        let mut late = Raw::open(stage.wire, stage.address(Side::B)).await?;
        // Nothing of it counts.
        let late_hello = Hello {
            status: Patch::Set(Manual::Invisible),
            ..numbered(stage, ahead - 1)?
        };
        late.send("late", ClientBody::Hello(Box::new(late_hello)))
            .await?;
        let ServerBody::Error(problem) = late.answer("late").await? else {
            bail!("it was let in");
        };
        ensure!(problem.code == "superseded", "{problem:?}");
        ensure!(problem.conn.map(Conn::get) == Some(ahead), "{problem:?}");
        let number = late.closed().await?;
        ensure!(number == 4411, "closed with {number}");
        first.stands().await?;
    }
    // Our client, whose clock is right, goes above it, once.
    let plan = Plan::of("ann").room("lobby").at(Side::B);
    let (client, mut events) = stage.client(&plan)?.connect().await?;
    let conn = connected(&client, &mut events).await?;
    ensure!(conn > ahead, "{conn} is not above {ahead}");
    let problem = first.refusal().await?;
    ensure!(problem.code == "replaced", "{problem:?}");
    let number = first.closed().await?;
    ensure!(number == 4409, "closed with {number}");
    stage.mark(&mut watcher, "room:lobby").await
}

async fn connected(client: &Client, events: &mut adsum_client::Events) -> Result<u64> {
    ensure!(client.view(&topic("room:lobby")?).is_none(), "not watched");
    match soon("connected", events.next()).await?.context("ended")? {
        Event::Connected { conn, .. } => Ok(conn.get()),
        other => bail!("{other:?}"),
    }
}
