//! Runs scenarios, all of a world at the same time, each in a tenant of its own.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail};
use futures::future::BoxFuture;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    stage::{Stage, Wire},
    world::World,
};

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) wires: &'static [Wire],
    pub(crate) run: fn(Arc<Stage>) -> BoxFuture<'static, Result<()>>,
}

/// No scenario takes so long.
const LIMIT: Duration = Duration::from_secs(90);
/// More at the same time would only wait for each other.
const AT_ONCE: usize = 32;

/// Runs all of them; with `TRANSPORTS_ONLY` those whose name and wire contain it.
pub(crate) async fn run(world: &Arc<World>, scenarios: &[Scenario]) -> Result<()> {
    let only = std::env::var("TRANSPORTS_ONLY").unwrap_or_default();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for scenario in scenarios {
        for wire in scenario.wires {
            let full = format!("{}-{}", scenario.name, wire.ending());
            if !full.contains(&only) {
                continue;
            }
            let stage = Arc::new(Stage::new(world.clone(), scenario.name, *wire));
            let (name, wire, run, turns) = (scenario.name, *wire, scenario.run, turns.clone());
            tasks.spawn(async move {
                let _turn = turns.acquire_owned().await;
                let began = Instant::now();
                let played = tokio::spawn(timeout(LIMIT, run(stage))).await;
                let result = match played {
                    Ok(Ok(result)) => result,
                    Ok(Err(_)) => Err(anyhow!("not within {LIMIT:?}")),
                    Err(panic) => Err(anyhow!("{panic}")),
                };
                (name, wire, result, began.elapsed())
            });
        }
    }
    let mut table = BTreeMap::<&str, BTreeMap<Wire, String>>::new();
    let mut failed = Vec::new();
    for (name, wire, result, took) in tasks.join_all().await {
        let cell = match &result {
            Ok(()) => format!("{:.1}s", took.as_secs_f64()),
            Err(_) => "FAILED".to_owned(),
        };
        table.entry(name).or_default().insert(wire, cell);
        if let Err(error) = result {
            failed.push(format!("{name} over {}: {error:?}", wire.ending()));
        }
    }
    print(world, &table);
    failed.sort();
    if !failed.is_empty() {
        let logs = world.last_words();
        bail!(
            "{}: {} failed\n{}\n{logs}",
            world.name,
            failed.len(),
            failed.join("\n\n")
        );
    }
    world.check()
}

fn print(world: &World, table: &BTreeMap<&str, BTreeMap<Wire, String>>) {
    print!("{:<18}", world.name);
    for wire in Wire::ALL {
        print!("{:>8}", wire.ending());
    }
    println!();
    for (name, cells) in table {
        print!("  {name:<16}");
        for wire in Wire::ALL {
            print!("{:>8}", cells.get(&wire).map_or("", String::as_str));
        }
        println!();
    }
    world.print_notes();
}
