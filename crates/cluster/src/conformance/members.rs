//! Scenarios of who is in the cluster.

use adsum_core::NodeId;
use adsum_core::membership::{Members, Role};
use anyhow::{Context, Result, ensure};
use futures::StreamExt;

use super::{Fixture, pair, profile, until};

fn has(members: &Members, node: &NodeId) -> bool {
    members.nodes.contains_key(node)
}

/// Everybody learns of a node that joins, with all it says of itself, and of one that leaves.
pub async fn members_appear_and_vanish(fixture: &impl Fixture) -> Result<()> {
    let one = fixture.join(profile("one")).await?;
    ensure!(
        has(&one.members(), &one.node()),
        "a node knows itself at once"
    );
    let two = fixture.join(profile("two")).await?;
    ensure!(
        has(&two.members(), &one.node()),
        "who joins knows who was there"
    );
    let members = until(one.watch(), |members| has(members, &two.node())).await?;
    let seen = members.nodes.get(&two.node()).context("two")?;
    ensure!(seen.address == "two:7000" && seen.zone == "east" && seen.version == "0.1.0");
    ensure!(
        seen.node.as_str().starts_with("two-"),
        "its id has its name: {}",
        seen.node
    );
    ensure!(members.with(Role::Reaper).count() == 2 && members.with(Role::Gateway).count() == 0);
    ensure!(!members.stale);
    two.leave().await?;
    until(one.watch(), |members| !has(members, &two.node())).await?;
    Ok(())
}

/// A node that ends without a word is gone when its lease has run out.
pub async fn a_member_that_dies_vanishes(fixture: &impl Fixture) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    ensure!(two.campaign(1).await?);
    drop(two);
    until(one.watch(), |members| members.nodes.len() == 1).await?;
    until(one.watch_owners(), |owners| owners.is_empty()).await?;
    ensure!(one.campaign(1).await?);
    Ok(())
}

/// A node comes back after its lease was lost, as another one, and owns nothing.
pub async fn a_lost_lease_frees_the_shard_and_renames_the_node(
    fixture: &impl Fixture,
) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    let old = one.node();
    ensure!(one.campaign(1).await?);
    ensure!(!one.lease_left().is_zero());
    fixture.end_lease(&old).await?;
    ensure!(
        two.campaign(1).await?,
        "the lease has ended, and the shard is not free"
    );
    let new = until(one.watch_node(), |node| {
        node.as_ref().is_some_and(|node| *node != old)
    })
    .await?;
    let new = new.context("a node")?;
    ensure!(new.as_str().starts_with("one-") && one.node() == new);
    for node in [&one, &two] {
        until(node.watch(), |members| {
            !has(members, &old) && has(members, &new)
        })
        .await?;
    }
    ensure!(!one.lease_left().is_zero());
    ensure!(
        !one.campaign(1).await? && one.campaign(3).await?,
        "a member like any other"
    );
    Ok(())
}

/// All shards are free as soon as `leave` has returned.
pub async fn leave_resigns_everything(fixture: &impl Fixture) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    for shard in 0..5 {
        ensure!(one.campaign(shard).await?);
    }
    one.leave().await?;
    ensure!(one.lease_left().is_zero());
    for shard in 0..5 {
        ensure!(two.campaign(shard).await?, "{shard} is not free");
    }
    let mine = |owner: &NodeId| *owner == two.node();
    until(one.watch_owners(), |owners| {
        owners.len() == 5 && owners.values().all(mine)
    })
    .await?;
    Ok(())
}

/// Leaving is final, and leaving twice is leaving.
pub async fn who_has_left_is_refused(fixture: &impl Fixture) -> Result<()> {
    let (one, _two) = pair(fixture).await?;
    one.leave().await?;
    one.leave().await?;
    until(one.watch_node(), Option::is_none).await?;
    for answer in [one.campaign(1).await, one.prove(1).await] {
        ensure!(
            answer.is_err_and(|error| !error.retry()),
            "trying again can't help"
        );
    }
    one.resign(1).await?;
    Ok(())
}

/// The current value first, to each reader, and then the later ones.
pub async fn streams_begin_with_the_current_value(fixture: &impl Fixture) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    ensure!(two.campaign(1).await?);
    until(one.watch_owners(), |owners| owners.len() == 1).await?;
    let (mut members, mut owners, mut node) = (one.watch(), one.watch_owners(), one.watch_node());
    ensure!(
        members
            .next()
            .await
            .is_some_and(|first| *first == *one.members())
    );
    ensure!(
        owners
            .next()
            .await
            .is_some_and(|first| *first == *one.owners())
    );
    ensure!(node.next().await.flatten() == Some(one.node()));
    for shard in 2..5 {
        ensure!(one.campaign(shard).await?);
        until(&mut owners, |owners| {
            owners.get(&shard) == Some(&one.node())
        })
        .await?;
    }
    two.leave().await?;
    until(&mut members, |members| members.nodes.len() == 1).await?;
    until(&mut owners, |owners| owners.get(&1).is_none()).await?;
    Ok(())
}
