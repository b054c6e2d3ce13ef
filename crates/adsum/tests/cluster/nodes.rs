//! A cluster comes up, serves, and goes down cleanly.

use std::time::Duration;

use adsum_core::Incarnation;
use adsum_tests::eventually;
use anyhow::{Result, ensure};

use crate::world::{World, key, open, settled, state};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_roles_in_three_processes_come_up_and_stop_cleanly() -> Result<()> {
    let world = World::new("roles").await?;
    let dispatcher = world.node("dispatcher", "dispatcher").await?;
    let reaper = world.node("reaper", "reaper").await?;
    let gateway = world.node("gateway", "gateway").await?;
    let store = world.store().await?;
    settled(&*store).await?;
    eventually("everybody is served", Duration::from_secs(20), || async {
        ensure!(
            reaper.readyz().await?["reaper"]["shards"] == 64,
            "shards without a reaper"
        );
        ensure!(
            dispatcher.readyz().await?["dispatcher"]["current"] == 64,
            "views are missing"
        );
        let gateway = gateway.readyz().await?;
        ensure!(
            gateway["gateway"]["dispatchers"] == 1,
            "no dispatcher: {gateway}"
        );
        ensure!(gateway["gateway"]["stale_shards"] == 0, "stale: {gateway}");
        ensure!(gateway["membership"]["members"] == 3, "members: {gateway}");
        Ok(())
    })
    .await?;
    let holder = Incarnation::new("test~1")?;
    open(&*store, &holder, key(1)?, (1, 1), state(&["lobby"])?).await?;
    // Nobody renews: the one session is swept.
    eventually(
        "the lapsed session is swept",
        Duration::from_secs(10),
        || async {
            ensure!(
                reaper.metric("adsum_reaper_closed_total").await? >= 1.0,
                "not yet"
            );
            Ok(())
        },
    )
    .await?;
    for node in [&gateway, &dispatcher, &reaper] {
        node.process().stop().await?;
        ensure!(!node.process().is_running(), "{} still runs", node.name());
    }
    Ok(())
}
