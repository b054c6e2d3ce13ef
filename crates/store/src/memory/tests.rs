//! What only the store in memory can do: be embedded, stall, lose pushes.

use adsum_core::{Event, TenantId};

use super::*;

fn one_shard() -> Options {
    Options {
        shards: 1,
        ..Options::default()
    }
}

fn ann() -> UserKey {
    UserKey::new(TenantId::new("acme").unwrap(), UserId::new("ann").unwrap())
}

async fn told(store: &MemoryStore) -> Vec<Event> {
    store
        .log(0, 0, 100)
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|c| c.event)
        .collect()
}

#[tokio::test]
async fn embedded_shards_are_born_settled_but_only_once() {
    let store = MemoryStore::embedded(one_shard());
    assert!(store.read(&[ann()]).await.unwrap()[0].settling, "not born");
    let first = store.claim(0).await.unwrap().epoch;
    assert_eq!(told(&store).await, [Event::Epoch, Event::Settled]);
    assert!(!store.read(&[ann()]).await.unwrap()[0].settling);
    store.flush(0);
    assert!(store.claim(0).await.unwrap().epoch > first);
    assert_eq!(
        told(&store).await,
        [Event::Epoch],
        "after a loss it settles"
    );
    assert!(store.read(&[ann()]).await.unwrap()[0].settling);
}

#[tokio::test]
async fn a_real_clock_and_a_random_nonce() {
    let store = MemoryStore::new(one_shard(), Hooks::default());
    let answer = store.claim(0).await.unwrap();
    assert!(answer.at > 1_700_000_000_000);
    assert!((answer.at + 1..=answer.at + NONCES).contains(&answer.epoch));
}

#[tokio::test]
async fn a_stalled_shard_asks_for_a_retry() {
    let store = MemoryStore::new(one_shard(), Hooks::default());
    store.stall(0, true);
    assert!(store.claim(0).await.unwrap_err().retry());
    assert!(store.log(0, 0, 0).await.unwrap_err().retry());
    assert!(store.check().await.unwrap_err().retry());
    store.stall(0, false);
    store.claim(0).await.unwrap();
}

#[tokio::test]
async fn there_is_no_other_shard() {
    let store = MemoryStore::new(one_shard(), Hooks::default());
    assert!(matches!(store.claim(1).await, Err(StoreError::Refused(_))));
    assert!(matches!(
        store.scan(1, 0).await,
        Err(StoreError::Refused(_))
    ));
}

#[tokio::test]
async fn pushes_can_be_dropped_and_a_slow_subscriber_is_told() {
    use futures::StreamExt;

    let store = MemoryStore::new(one_shard(), Hooks::default());
    let mut pushes = store.subscribe(0).await.unwrap();
    store.drop_pushes(0, true);
    store.claim(0).await.unwrap();
    store.drop_pushes(0, false);
    for version in 1..=2_000 {
        let status = Preference::Status(None);
        store.prefer(&ann(), status, version).await.unwrap();
    }
    assert_eq!(
        pushes.next().await,
        Some(Push::Lost),
        "it is too far behind"
    );
    let Some(Push::Change(change)) = pushes.next().await else {
        panic!("then it goes on")
    };
    assert!(change.version.seq > 900 && change.version.seq < 2_001);
    drop(store);
    assert_eq!(pushes.count().await, 1_023, "the rest, and then the end");
}

#[tokio::test]
async fn a_restart_begins_a_new_epoch() {
    let store = MemoryStore::new(one_shard(), Hooks::default());
    let before = store.claim(0).await.unwrap().epoch;
    store.restart(0);
    let other = store.handle();
    assert!(other.claim(0).await.unwrap().epoch > before);
    assert_eq!(told(&store).await, [Event::Epoch, Event::Epoch]);
}
