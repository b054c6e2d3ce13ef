//! A Redis that answers garbage, that may not be written to, or that does not serve a slot: each a
//! typed error that says whether a retry helps, and nothing half written.

use std::time::Duration;

use adsum_core::store::{Shard, Store, StoreError};
use adsum_local::{RedisCluster, RedisServer, ServerOptions, eventually};
use adsum_store::{Keys, Options, RedisConfig, RedisStore};
use anyhow::{Context, Result, ensure};
use redis::cmd;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const SHARDS: Shard = 6;

fn config(urls: Vec<String>) -> RedisConfig {
    let options = Options {
        shards: SHARDS,
        ..Options::default()
    };
    let deadline = Duration::from_secs(2);
    RedisConfig {
        options,
        deadline,
        ..RedisConfig::new(urls)
    }
}

/// A server that answers whatever it is told with the same bytes.
async fn babbler(answer: &'static [u8]) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = [0; 4096];
                while matches!(stream.read(&mut heard).await, Ok(n) if n > 0) {
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(format!("redis://{address}"))
}

#[tokio::test]
async fn garbage_is_a_typed_error() -> Result<()> {
    let babble: [&[u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\xfe garbage without end",
        b"+OK\r\n",
        b"$999999999999\r\n",
        b"*1\r\n*1\r\n*1\r\n:1\r\n",
    ];
    for answer in babble {
        let config = config(vec![babbler(answer).await?]);
        // A server may only show what it is when it is asked for something.
        let error = match RedisStore::connect(config).await {
            Err(error) => error,
            Ok(store) => store.check().await.err().context("garbage was believed")?,
        };
        let known = matches!(
            error,
            StoreError::Unavailable(_) | StoreError::Corrupt(_) | StoreError::Refused(_)
        );
        ensure!(known, "{answer:?}: {error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_read_only_redis_asks_for_a_retry_and_heals() -> Result<()> {
    let server = RedisServer::start(ServerOptions::default()).await?;
    let store = RedisStore::connect(config(vec![server.url().to_owned()])).await?;
    let fence = store.claim(0).await?.value;
    let before = store.log(0, 0, 100).await?;
    // A replica of nobody that is there: reads go on, writes are refused.
    server
        .query::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(1))
        .await?;
    let refused = store.claim(0).await.err().context("a write was accepted")?;
    ensure!(
        refused.retry() && refused.code() == "store_unavailable",
        "{refused:?}"
    );
    server
        .query::<()>(cmd("REPLICAOF").arg("NO").arg("ONE"))
        .await?;
    let after = store.log(0, 0, 100).await?;
    ensure!(
        after.entries == before.entries,
        "something was half written"
    );
    ensure!(
        store.claim(0).await?.value.number > 0,
        "writes are back; fence before {fence:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_uncovered_slot_concerns_its_shard_alone() -> Result<()> {
    let cluster = RedisCluster::start(3, 0).await?;
    let store = RedisStore::connect(config(cluster.urls())).await?;
    store.check().await?;
    for shard in 0..SHARDS {
        store.claim(shard).await?;
    }
    let slot = Keys::of_all("adsum", 1, SHARDS)[2].slot;
    for node in cluster.nodes() {
        // Every node forgets who serves it; the owner's word alone would spread again.
        node.query::<()>(cmd("CLUSTER").arg("DELSLOTS").arg(slot))
            .await?;
    }
    let lost = eventually("the slot is uncovered", Duration::from_secs(20), || async {
        store.claim(2).await.err().context("still served")
    })
    .await?;
    ensure!(
        lost.retry() && matches!(lost, StoreError::Unavailable(_)),
        "{lost:?}"
    );
    for shard in [0, 1, 3, 4, 5] {
        store.claim(shard).await?;
    }
    Ok(())
}
