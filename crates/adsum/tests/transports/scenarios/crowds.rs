//! Many at once: counts, the ladder, and a snapshot in a storm.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use adsum_client::{Item, Mode, UserId};
use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    stage::Stage,
    watcher::topic,
    world::{COUNT_ABOVE, INTERVAL_ABOVE, SAMPLE, Side},
};

/// Those of these numbers are in the room, or out of it.
async fn crowd(stage: &Stage, numbers: std::ops::Range<usize>, here: bool) -> Result<()> {
    let room = here.then_some("lobby");
    let beats = numbers.map(|n| stage.beat_body(&format!("crowd-{n:04}"), room));
    stage
        .beats(&json!({"beats": beats.collect::<Vec<_>>()}))
        .await
}

pub(super) async fn count_mode(stage: &Stage) -> Result<()> {
    let name = "room:lobby";
    let mut watcher = stage
        .watch_at(Side::B, "wanda", &[name], Mode::Count)
        .await?;
    crowd(stage, 0..30, true).await?;
    watcher.counted(name, 30).await?;
    crowd(stage, 0..5, false).await?;
    watcher.counted(name, 25).await?;
    ensure!(watcher.unasked(name)? == 0, "only numbers are told");
    let mut newcomer = stage
        .watch_unsynced(Side::A, "nora", &[name], Mode::Count)
        .await?;
    let (mode, _) = newcomer.synced(name).await?;
    ensure!(mode == Mode::Count, "{mode:?}");
    newcomer.counted(name, 25).await?;
    if let Some(client) = &newcomer.client {
        let sample = client.roster(&topic(name)?);
        ensure!(sample.len() == SAMPLE, "a sample of {}", sample.len());
    }
    Ok(())
}

pub(super) async fn ladder(stage: &Stage) -> Result<()> {
    let name = "room:lobby";
    let mut watcher = stage.watch("wanda", &[name]).await?;
    crowd(stage, 0..INTERVAL_ABOVE, true).await?;
    let mut known = BTreeMap::new();
    watcher
        .converge(name, &mut known, |k| k.len() == INTERVAL_ABOVE)
        .await?;
    crowd(stage, INTERVAL_ABOVE..INTERVAL_ABOVE + 10, true).await?;
    watcher.mode(name, Mode::Interval).await?;
    let all = INTERVAL_ABOVE + 10;
    watcher
        .converge(name, &mut known, |k| k.len() == all)
        .await?;
    crowd(stage, all..COUNT_ABOVE + 10, true).await?;
    watcher.mode(name, Mode::Count).await?;
    let many = u64::try_from(COUNT_ABOVE + 10)?;
    watcher.counted(name, many).await?;
    // Down again only well below the step: 10 %.
    let down = COUNT_ABOVE - COUNT_ABOVE / 10;
    crowd(stage, down + 5..COUNT_ABOVE + 10, false).await?;
    watcher.counted(name, u64::try_from(down + 5)?).await?;
    crowd(stage, down - 5..down + 5, false).await?;
    watcher.mode(name, Mode::Interval).await?;
    let low = INTERVAL_ABOVE - INTERVAL_ABOVE / 10 - 5;
    crowd(stage, low..down - 5, false).await?;
    watcher.mode(name, Mode::Members).await?;
    // A newcomer sees just those who are there.
    let mut newcomer = stage
        .watch_unsynced(Side::A, "nora", &[name], Mode::Members)
        .await?;
    let (mode, _) = newcomer.synced(name).await?;
    ensure!(mode == Mode::Members, "{mode:?}");
    let mut known = BTreeMap::new();
    newcomer
        .converge(name, &mut known, |k| k.len() == low)
        .await
}

const STORM: usize = 100;
const ROUNDS: usize = 4;

pub(super) async fn storm(stage: &Arc<Stage>) -> Result<()> {
    let name = "room:lobby";
    let mut tasks = JoinSet::new();
    // Each of them comes and goes, and in the end stays or not.
    for part in 0..4 {
        let stage = stage.clone();
        tasks.spawn(async move {
            let numbers = part * STORM / 4..(part + 1) * STORM / 4;
            for round in 0..ROUNDS {
                crowd(&stage, numbers.clone(), round % 2 == 0).await?;
                let half = numbers.start..numbers.start + numbers.len() / 2;
                crowd(&stage, half, round % 2 == 1).await?;
            }
            crowd(&stage, numbers.start..numbers.end, true).await?;
            crowd(&stage, numbers.start..numbers.start + 5, false).await
        });
    }
    let gone = |n: usize| n % (STORM / 4) < 5;
    let right: BTreeSet<_> = (0..STORM).filter(|n| !gone(*n)).collect();
    let right: BTreeSet<_> = right.iter().map(|n| format!("crowd-{n:04}")).collect();
    // Watchers come in the middle of it.
    let mut watchers = JoinSet::new();
    for n in 0..4_u64 {
        let (stage, right) = (stage.clone(), right.clone());
        watchers.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(40 * n)).await;
            let user = format!("wanda-{n}");
            let mut watcher = stage
                .watch_unsynced(Side::B, &user, &[name], Mode::Members)
                .await?;
            let mut known = BTreeMap::new();
            let same = |known: &BTreeMap<UserId, Arc<Item>>| {
                known.len() == right.len() && known.keys().all(|k| right.contains(k.as_str()))
            };
            // It may look right for a moment while the storm goes on; so the end is marked.
            watcher
                .converge(name, &mut known, |known| {
                    known.keys().any(|user| user.as_str() == "zz-end")
                })
                .await?;
            known.retain(|user, _| user.as_str() != "zz-end");
            watcher.converge(name, &mut known, same).await
        });
    }
    for result in tasks.join_all().await {
        result?;
    }
    stage
        .beats(&json!({"beats": [stage.beat_body("zz-end", Some("lobby"))]}))
        .await?;
    for result in watchers.join_all().await {
        result?;
    }
    Ok(())
}
