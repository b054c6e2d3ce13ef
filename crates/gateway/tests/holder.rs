//! When a gateway's sessions are written to the store.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use adsum_core::{
    Activity, Conn, DeviceId, NodeId, SessionKey, State, TenantId, UserId, UserKey, hold::Word,
    store::Store,
};
use adsum_gateway::holder::{Holder, HolderConfig, Tell};
use adsum_store::{Hooks, MemoryStore, Options};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const GATHER: Duration = Duration::from_millis(200);
const STUCK: Duration = Duration::from_secs(10);
const CONFIG: HolderConfig = HolderConfig {
    renew: Duration::from_secs(5),
    calm: Duration::from_secs(10),
    stuck: STUCK,
    gather: Duration::ZERO,
    backlog: 10,
};

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
        if matches!(word, Word::Recorded(_)) {
            // The test may be over.
            let _ = recorded.send((key.owner, Instant::now()));
        }
    });
    let config = HolderConfig {
        gather: GATHER,
        ..CONFIG
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

/// A shard that can't be renewed while others can is given up, but not as long as it answers
/// anything at all: the gateway, or the server, is slow then, and elsewhere it would be no better.
#[tokio::test(start_paused = true)]
async fn users_of_a_shard_that_answers_are_not_sent_away() -> Result {
    let store = MemoryStore::new(Options::default(), Hooks::default());
    let (words, mut told) = mpsc::unbounded_channel();
    let tell: Tell = Arc::new(move |_, _, word| {
        // The test may be over.
        let _ = words.send(word);
    });
    let (node, caller) = (NodeId::new("gw")?, Arc::new(store.handle()));
    let holder = Holder::start(caller, &node, 1, CONFIG, &tell, &TaskTracker::new())?;
    let (key, conn) = (key(0)?, Conn::new(1)?);
    holder.hello(key.clone(), conn, State::default(), None)?;
    let word = told.recv().await.ok_or("the hello")?;
    assert!(matches!(word, Word::Recorded(_)), "{word:?}");

    store.refuse_renewals(store.shard_of(&key.owner), true);
    for activity in [Activity::Away, Activity::Online].repeat(6) {
        sleep(STUCK / 2).await;
        let state = State {
            activity,
            ..State::default()
        };
        holder.set(key.clone(), conn, state, None)?;
        let word = told.recv().await.ok_or("a change")?;
        assert!(matches!(word, Word::Recorded(_)), "{word:?}");
    }
    let spoke = Instant::now();
    let word = timeout(3 * STUCK, told.recv()).await?.ok_or("the end")?;
    assert_eq!(word, Word::Away);
    assert!(spoke.elapsed() >= STUCK, "{:?}", spoke.elapsed());
    Ok(())
}
