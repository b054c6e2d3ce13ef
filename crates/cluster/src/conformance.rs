//! What every membership must do, as named scenarios that run on all of them. `conformance!`
//! makes a test of each; a fixture says how to join and how to end a lease from outside.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::membership::{Membership, Role};
use anyhow::{Result, bail};
use async_trait::async_trait;
use futures::{Stream, StreamExt};
use tokio::time::timeout;

use crate::Profile;

mod election;
mod members;

pub use election::*;
pub use members::*;

/// Far above what a test's lease needs to run out, on a machine that has other work too.
const LIMIT: Duration = Duration::from_secs(20);

/// A cluster of its own for one scenario.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// A new node.
    async fn join(&self, profile: Profile) -> Result<Arc<dyn Membership>>;

    /// Ends a node's lease behind its back.
    async fn end_lease(&self, node: &NodeId) -> Result<()>;
}

/// A test for each scenario. The expression makes a fixture, and may use `?` and `await`.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance!($fixture;
            members_appear_and_vanish,
            a_member_that_dies_vanishes,
            campaign_is_exclusive,
            campaigns_at_once_have_one_winner,
            resign_frees_at_once,
            resigning_what_another_owns_does_nothing,
            a_lost_lease_frees_the_shard_and_renames_the_node,
            prove_is_false_after_the_lease_is_gone,
            leave_resigns_everything,
            who_has_left_is_refused,
            streams_begin_with_the_current_value,
        );
    };
    ($fixture:expr; $($scenario:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $scenario() -> anyhow::Result<()> {
                let fixture = async { anyhow::Ok($fixture) }.await?;
                $crate::conformance::$scenario(&fixture).await
            }
        )+
    };
}

/// Waits until a stream gives a value that is wanted.
///
/// # Errors
/// When it has not within twenty seconds, or has ended.
pub async fn until<T: Debug>(
    mut stream: impl Stream<Item = T> + Unpin,
    wanted: impl Fn(&T) -> bool,
) -> Result<T> {
    let mut last = None;
    let search = async {
        while let Some(value) = stream.next().await {
            if wanted(&value) {
                return Some(value);
            }
            last = Some(value);
        }
        None
    };
    match timeout(LIMIT, search).await {
        Ok(Some(value)) => Ok(value),
        Ok(None) => bail!("the stream ended, the last value was {last:?}"),
        Err(_) => bail!("waited for {LIMIT:?}, the last value was {last:?}"),
    }
}

/// A profile that tells nodes apart.
#[must_use]
pub fn profile(name: &str) -> Profile {
    Profile {
        name: name.to_owned(),
        address: format!("{name}:7000"),
        roles: vec![Role::Dispatcher, Role::Reaper],
        zone: "east".to_owned(),
        version: "0.1.0".to_owned(),
    }
}

async fn pair(fixture: &impl Fixture) -> Result<(Arc<dyn Membership>, Arc<dyn Membership>)> {
    let (one, two) = (
        fixture.join(profile("one")).await?,
        fixture.join(profile("two")).await?,
    );
    for node in [&one, &two] {
        until(node.watch(), |members| members.nodes.len() == 2).await?;
    }
    Ok((one, two))
}
