//! The scenarios, by name.

mod crowds;
mod devices;
mod hidden;
mod leaving;
mod lost;
mod rights;
mod roads;
mod ways;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};

use crate::{
    run::{Scenario, run},
    stage::Wire,
    world::World,
};

macro_rules! scenarios {
    ($($name:literal, $wires:expr, $run:path;)*) => {
        &[$(Scenario {
            name: $name,
            wires: &$wires,
            run: |stage| Box::pin(async move { $run(&stage).await }),
        }),*]
    };
}

/// Long ones first: the others fill the gaps.
const SCENARIOS: &[Scenario] = scenarios! {
    "token-end", Wire::ALL, rights::token_ends;
    "refresh", Wire::CONNECTIONS, rights::token_is_refreshed;
    "timeout", Wire::ALL, leaving::timeout;
    "linger", Wire::ALL, roads::linger;
    "ladder", Wire::ALL, crowds::ladder;
    "storm", Wire::ALL, crowds::storm;
    "count", Wire::ALL, crowds::count_mode;
    "join", Wire::ALL, ways::join;
    "update", Wire::ALL, ways::update;
    "leave", Wire::ALL, leaving::leave;
    "disconnect", Wire::ALL, leaving::disconnect;
    "own-linger", Wire::CONNECTIONS, leaving::own_linger;
    "kicked", Wire::ALL, leaving::kicked;
    "two-devices", Wire::ALL, devices::two_devices;
    "replaced", Wire::ALL, devices::same_device_twice;
    "superseded", Wire::ALL, devices::superseded;
    "invisible", Wire::ALL, hidden::invisible;
    "contacts", Wire::ALL, hidden::contacts_only;
    "resume", Wire::CONNECTIONS, roads::resume;
    "rate", Wire::ALL, rights::rate_limit;
    "forbidden", Wire::ALL, rights::forbidden;
};

/// A kicked client is told well within a second, whatever its gateway.
fn kicks_are_prompt(world: &World) -> Result<()> {
    let took = world.noted("kicked client told");
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    ensure!(median < Duration::from_millis(500), "told after {median:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_one_process() -> Result<()> {
    let world = Arc::new(World::embedded("one process").await?);
    run(&world, SCENARIOS).await?;
    kicks_are_prompt(&world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster() -> Result<()> {
    let world = Arc::new(World::cluster("cluster").await?);
    let all = run(&world, SCENARIOS).await;
    let walked = crate::privacy::walk(world.clone()).await.context("privacy");
    let lost = lost::node_lost(&world).await.context("node-lost");
    all.and(walked).and(lost)?;
    kicks_are_prompt(&world)
}
