//! When a gateway's sessions are written to the store.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use adsum_core::{
    Conn, DeviceId, NodeId, SessionKey, State, TenantId, UserId, UserKey, hold::Word, store::Store,
};
use adsum_gateway::holder::{Holder, HolderConfig, Tell};
use adsum_store::{Hooks, MemoryStore, Options};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const GATHER: Duration = Duration::from_millis(200);

fn key(n: u64) -> Result<SessionKey> {
    let owner = UserKey::new(TenantId::new("t")?, UserId::new(format!("u{n}"))?);
    Ok(SessionKey::new(owner, DeviceId::new("d")?))
}

/// Two gateways would do just the same: they agree on the time.
#[tokio::test(start_paused = true)]
async fn sessions_of_all_shards_are_opened_together() -> Result {
    let store = MemoryStore::new(Options::default(), Hooks::default());
    let (recorded, mut told) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |key, _, word| {
        if matches!(word, Word::Recorded { .. }) {
            // The test may be over.
            let _ = recorded.send((key.owner, Instant::now()));
        }
    });
    let config = HolderConfig {
        renew: Duration::from_secs(5),
        calm: Duration::from_secs(10),
        stuck: Duration::from_secs(10),
        gather: GATHER,
        backlog: 10,
    };
    let (node, caller) = (NodeId::new("gw")?, Arc::new(store.handle()));
    let holder = Holder::start(caller, &node, 1, config, &tell, &TaskTracker::new())?;
    let hello = |n| -> Result {
        holder.hello(key(n)?, Conn::new(1)?, State::default(), None)?;
        Ok(())
    };

    // The first may come at any time between two beats.
    hello(0)?;
    let (_, beat) = told.recv().await.ok_or("the first")?;
    let mut shards = BTreeSet::new();
    for n in 1..10 {
        sleep(Duration::from_millis(7)).await;
        hello(n)?;
        shards.insert(store.shard_of(&key(n)?.owner));
    }
    assert!(shards.len() > 1);
    for _ in 1..10 {
        let (who, at) = told.recv().await.ok_or("the others")?;
        assert_eq!(at - beat, GATHER, "{who:?}");
    }
    Ok(())
}
