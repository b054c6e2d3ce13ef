//! Scenarios of who owns a shard.

use adsum_core::NodeId;
use adsum_core::membership::MembershipError;
use anyhow::{Result, bail, ensure};

use super::{Fixture, pair, profile, until};

/// One owner per shard; to campaign again for one's own shard is to win.
pub async fn campaign_is_exclusive(fixture: &impl Fixture) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    ensure!(one.campaign(1).await? && one.campaign(1).await?);
    ensure!(!two.campaign(1).await?);
    ensure!(two.campaign(2).await?);
    ensure!(one.prove(1).await? && !one.prove(2).await?);
    ensure!(two.prove(2).await? && !two.prove(1).await?);
    for node in [&one, &two] {
        let owners = until(node.watch_owners(), |owners| owners.len() == 2).await?;
        ensure!(owners.get(&1) == Some(&one.node()) && owners.get(&2) == Some(&two.node()));
        ensure!(*node.owners() == *owners);
    }
    Ok(())
}

/// Ten campaigns of five nodes for the same shard.
pub async fn campaigns_at_once_have_one_winner(fixture: &impl Fixture) -> Result<()> {
    let mut nodes = Vec::new();
    for name in ["one", "two", "three", "four", "five"] {
        nodes.push(fixture.join(profile(name)).await?);
    }
    for shard in 0..4 {
        let campaigns = nodes.iter().chain(&nodes).map(|node| async move {
            let won = node.campaign(shard).await?;
            Ok::<_, MembershipError>(won.then(|| node.node()))
        });
        let mut winners: Vec<NodeId> = futures::future::try_join_all(campaigns)
            .await?
            .into_iter()
            .flatten()
            .collect();
        winners.dedup();
        ensure!(
            winners.windows(2).all(|pair| pair[0] == pair[1]),
            "{winners:?} won {shard}"
        );
        ensure!(!winners.is_empty(), "nobody won {shard}");
    }
    Ok(())
}

/// The next node can have the shard as soon as `resign` has returned.
pub async fn resign_frees_at_once(fixture: &impl Fixture) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    ensure!(one.campaign(1).await? && one.campaign(2).await?);
    one.resign(1).await?;
    ensure!(!one.prove(1).await?);
    ensure!(two.campaign(1).await?, "resigned, and not free");
    ensure!(one.prove(2).await?, "only the one that was resigned");
    Ok(())
}

/// Also when the resigned shard was this node's, once.
pub async fn resigning_what_another_owns_does_nothing(fixture: &impl Fixture) -> Result<()> {
    let (one, two) = pair(fixture).await?;
    one.resign(1).await?;
    ensure!(one.campaign(1).await?);
    one.resign(1).await?;
    ensure!(two.campaign(1).await?);
    one.resign(1).await?;
    ensure!(two.prove(1).await?);
    Ok(())
}

/// Before the node has noticed, and after.
pub async fn prove_is_false_after_the_lease_is_gone(fixture: &impl Fixture) -> Result<()> {
    let (one, _two) = pair(fixture).await?;
    let old = one.node();
    ensure!(one.campaign(1).await? && one.prove(1).await?);
    fixture.end_lease(&old).await?;
    match one.prove(1).await {
        Ok(false) | Err(MembershipError::LeaseLost) => {}
        proved => bail!("proved by a lease that is gone: {proved:?}"),
    }
    until(one.watch_node(), |node| {
        node.as_ref().is_some_and(|node| *node != old)
    })
    .await?;
    ensure!(!one.prove(1).await?);
    Ok(())
}
