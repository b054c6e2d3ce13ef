//! Rows about clients and about our own processes.

use adsum_chaos::Kind;
use anyhow::{Context, Result};

use crate::scene::{Stage, times};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_is_told_as_gone_within_its_ttl_and_a_second() -> Result<()> {
    let stage = Stage::new().await?;
    let played = stage.plays("vanishes", &[&[]]).await?;
    played.told_within("silent client", times().ttl() + 1_000)?;
    played.told_within("broken socket with linger", times().linger() + 1_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_gateway_only_those_who_stay_away_are_told_within_its_deadline() -> Result<()> {
    let stage = Stage::new().await?;
    let played = stage.plays("killed", &[&[Kind::GatewayKilled]]).await?;
    played.told_within("gateway killed", times().holder() + 1_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_gateway_is_noticed_by_nobody() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plays("drained", &[&[Kind::GatewayDrained]]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_dispatcher_is_killed_the_next_one_tells() -> Result<()> {
    let stage = Stage::new().await?;
    let played = stage
        .plays("dispatcher", &[&[Kind::DispatcherKilled]])
        .await?;
    played.delivered_within(times().silent() + 2_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_dispatcher_hangs_the_next_one_tells() -> Result<()> {
    let stage = Stage::new().await?;
    let played = stage.plays("hung", &[&[Kind::DispatcherFrozen]]).await?;
    played.delivered_within(times().silent() + 2_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_is_deaf_to_redis_is_left() -> Result<()> {
    let stage = Stage::new().await?;
    if !stage.world.can_cut() {
        println!("skipped: the packet filter can't be used here");
        return Ok(());
    }
    let steps: [&[Kind]; 2] = [&[Kind::DispatcherDeaf], &[Kind::DispatcherHalfDeaf]];
    let played = stage.plays("deaf", &steps).await?;
    played.delivered_within(times().silent() + 3_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_reaper_is_killed_the_next_one_sweeps_and_each_leave_is_told_once() -> Result<()> {
    let stage = Stage::new().await?;
    let both: &[Kind] = &[Kind::ReaperKilled, Kind::GatewayKilled];
    let played = stage.plays("reaper", &[both]).await?;
    let bound = times().holder() + times().lease() + 3_000;
    played.told_within("gateway killed", bound)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reaper_that_wakes_after_its_lease_is_refused_by_the_fence() -> Result<()> {
    let stage = Stage::new().await?;
    let before = stage.fences().await?;
    let both: &[Kind] = &[Kind::ReaperFrozen, Kind::GatewayKilled];
    let played = stage.plays("awake", &[both]).await?;
    let bound = times().holder() + times().lease() + 3_000;
    played.told_within("gateway killed", bound)?;
    // Another one swept its shards while it slept, and what it would send with the fences of
    // before is refused.
    let sleeper = played.struck(Kind::ReaperFrozen)?;
    let fences = before.get(&sleeper.target).context("no such reaper")?;
    played.taken_over(sleeper, fences)?;
    stage.refuses(fences).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_cut_from_its_dispatchers_catches_up() -> Result<()> {
    let stage = Stage::new().await?;
    if !stage.world.can_cut() {
        println!("skipped: the packet filter can't be used here");
        return Ok(());
    }
    stage
        .plays("cut", &[&[Kind::FeedCut], &[Kind::FeedHalfCut]])
        .await?;
    Ok(())
}
