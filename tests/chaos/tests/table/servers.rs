//! Rows about Redis and etcd.

use adsum_chaos::Kind;
use anyhow::Result;

use crate::scene::Stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_master_costs_nobody_their_presence() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plays("master", &[&[Kind::MasterKilled]]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_away_costs_nobody_their_presence() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plays("away", &[&[Kind::ShardAway]]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_costs_nobody_their_presence() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plays("emptied", &[&[Kind::Emptied]]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_minority_of_etcd_is_noticed_by_nobody() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plays("minority", &[&[Kind::MemberKilled]]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_all_of_etcd_is_lost_nobody_is_reaped_and_then_all_resumes() -> Result<()> {
    let stage = Stage::new().await?;
    stage
        .plays("lost", &[&[Kind::EtcdKilled, Kind::GatewayKilled]])
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_restored_from_nothing_resumes() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plays("restored", &[&[Kind::EtcdWiped]]).await?;
    Ok(())
}
