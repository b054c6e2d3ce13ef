//! A gateway is lost: those who come back elsewhere were never away, and the others are told once.

use std::{sync::Arc, time::Duration};

use adsum_client::{Event, Reason};
use anyhow::{Result, bail, ensure};
use tokio::time::Instant;

use crate::{
    stage::{Plan, Stage, Wire, soon},
    watcher::topic,
    world::{HOLDER_TTL, Side, World},
};

pub(super) async fn node_lost(world: &Arc<World>) -> Result<()> {
    let mut scenes = Vec::new();
    for wire in Wire::ALL {
        let stage = Stage::new(world.clone(), "node-lost", wire);
        let mut watcher = stage.watch("wanda", &["room:lobby"]).await?;
        let lost = Plan::of("ann").room("lobby").at(Side::Lost);
        let ann = stage.connect(lost).await?;
        watcher.joined("room:lobby", "ann").await?;
        // Begins at a random one of its endpoints; both ways are good.
        let mut back = Plan::of("bea").room("lobby").at(Side::Lost);
        back.sides = vec![Side::Lost, Side::A];
        let bea = stage.connect(back).await?;
        watcher.joined("room:lobby", "bea").await?;
        scenes.push((stage, watcher, ann, bea));
    }
    println!("  node-lost: {} ways to watch", scenes.len());
    let began = Instant::now();
    world.lose_gateway()?;
    for (stage, watcher, _ann, bea) in &mut scenes {
        match watcher.next(&topic("room:lobby")?).await? {
            Event::Left { left, .. } if left.user.as_str() == "ann" => {
                ensure!(left.reason == Some(Reason::NodeLost), "{left:?}");
            }
            other => bail!("{}: {other:?}", stage.wire.ending()),
        }
        let took = began.elapsed();
        println!("    {}: told after {took:?}", stage.wire.ending());
        ensure!(
            took < HOLDER_TTL + Duration::from_secs(4),
            "too late: {took:?}"
        );
        soon("back elsewhere", bea.client()?.online()).await??;
        bea.set_meta(Some("1")).await?;
        watcher.updated("room:lobby", "bea").await?;
    }
    Ok(())
}
