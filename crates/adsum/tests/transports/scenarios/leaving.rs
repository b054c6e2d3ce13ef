//! Going, for every reason but a lost gateway.

use std::time::Duration;

use adsum_client::{EndReason, Reason};
use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::{
    stage::{Actor, Plan, Stage, soon},
    watcher::Watcher,
    world::{HEARTBEAT, LINGER, LONG_LINGER, TTL},
};

/// What a busy machine may add to a time that is measured.
const SLACK: Duration = Duration::from_secs(3);
const TOPICS: [&str; 2] = ["room:lobby", "user:ann"];

async fn begin(stage: &Stage) -> Result<(Watcher, Actor)> {
    let mut watcher = stage.watch("wanda", &TOPICS).await?;
    let ann = stage.arrive(Plan::of("ann").room("lobby")).await?;
    for topic in TOPICS {
        watcher.joined(topic, "ann").await?;
    }
    Ok((watcher, ann))
}

async fn gone(watcher: &mut Watcher, reason: Reason) -> Result<()> {
    for topic in TOPICS {
        let left = watcher.left(topic, "ann", reason).await?;
        ensure!(left.last_seen.is_some_and(|at| at.ago_s() < 30), "{left:?}");
    }
    Ok(())
}

pub(super) async fn leave(stage: &Stage) -> Result<()> {
    let (mut watcher, ann) = begin(stage).await?;
    let began = Instant::now();
    ann.leave().await?;
    gone(&mut watcher, Reason::Leave).await?;
    let took = began.elapsed();
    stage.world.note("goodbye told", took);
    ensure!(took < LINGER + SLACK, "a goodbye is instant: {took:?}");
    Ok(())
}

/// Somebody's line breaks; how long it takes until that is told.
async fn break_off(stage: &Stage, plan: Plan) -> Result<Duration> {
    let mut watcher = stage.watch("wanda", &TOPICS).await?;
    let ann = stage.connect(plan.room("lobby")).await?;
    for topic in TOPICS {
        watcher.joined(topic, "ann").await?;
    }
    let began = Instant::now();
    ann.client()?.close().await;
    gone(&mut watcher, Reason::Disconnect).await?;
    let took = began.elapsed();
    ensure!(took >= LINGER * 9 / 10, "it did not linger: {took:?}");
    Ok(took)
}

pub(super) async fn disconnect(stage: &Stage) -> Result<()> {
    let took = break_off(stage, Plan::of("ann")).await?;
    stage.world.note("disconnect told", took);
    ensure!(took < LINGER + SLACK, "it lingered too long: {took:?}");
    Ok(())
}

/// Whoever wants to be gone sooner than the tenant lingers says so.
pub(super) async fn own_linger(stage: &Stage) -> Result<()> {
    let took = break_off(stage, Plan::of("ann").linger(LINGER)).await?;
    ensure!(took < LONG_LINGER, "it lingered as others do: {took:?}");
    Ok(())
}

pub(super) async fn timeout(stage: &Stage) -> Result<()> {
    let (mut watcher, ann) = begin(stage).await?;
    let began = Instant::now();
    ann.fall_silent().await;
    gone(&mut watcher, Reason::Timeout).await?;
    let took = began.elapsed();
    stage.world.note("timeout told", took);
    ensure!(
        took >= TTL - HEARTBEAT - HEARTBEAT / 5,
        "too early: {took:?}"
    );
    ensure!(took < TTL + SLACK, "too late: {took:?}");
    Ok(())
}

pub(super) async fn kicked(stage: &Stage) -> Result<()> {
    let (mut watcher, ann) = begin(stage).await?;
    let began = Instant::now();
    let closed = stage.kick("ann").await?;
    ensure!(closed == 1, "{closed} were closed");
    match &ann {
        Actor::Connected(client, _) => {
            let reason = soon("the client is told", client.ended()).await?;
            ensure!(reason == EndReason::Kicked, "{reason:?}");
            stage.world.note("kicked client told", began.elapsed());
            gone(&mut watcher, Reason::Kicked).await?;
        }
        Actor::Beats(beater) => {
            gone(&mut watcher, Reason::Kicked).await?;
            let refused = beater.beat().await.err().map(|e| e.to_string());
            ensure!(refused.as_deref() == Some("superseded"), "{refused:?}");
            // It is no ban: who comes again is there again.
            beater.come_back(stage.next_conn()).await?;
            watcher.joined("room:lobby", "ann").await?;
        }
    }
    let none = stage.kick("nobody-at-all").await?;
    ensure!(none == 0, "{none} were closed");
    Ok(())
}
