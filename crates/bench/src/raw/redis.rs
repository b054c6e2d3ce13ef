//! Bare Redis: how fast a message of the size of a change goes through a sharded channel.

use std::time::{Duration, Instant};

use adsum_local::{RedisServer, ServerOptions};
use anyhow::{Context, Result};
use redis::{AsyncConnectionConfig, Client, PushKind};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::report::{Spread, Times};

const SIZE: usize = 150;

/// What bare Redis does, one message at a time.
#[derive(Debug, Serialize)]
pub(super) struct RedisResult {
    round_trips_per_s: f64,
    latency_ms: Spread,
}

pub(super) fn measure(time: Duration) -> Result<RedisResult> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = RedisServer::start(ServerOptions::default()).await?;
        let client = Client::open(format!("{}?protocol=resp3", server.url()))?;
        let (heard, mut pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(heard);
        let mut subscriber = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut publisher = client.get_multiplexed_async_connection().await?;
        let subscribe = redis::cmd("SSUBSCRIBE").arg("bench").to_owned();
        subscribe.exec_async(&mut subscriber).await?;
        let publish = redis::cmd("SPUBLISH")
            .arg("bench")
            .arg(vec![7_u8; SIZE])
            .to_owned();
        let (begun, mut times) = (Instant::now(), Times::new()?);
        while begun.elapsed() < time {
            let sent = Instant::now();
            publish.exec_async(&mut publisher).await?;
            while pushes.recv().await.context("Redis hung up")?.kind != PushKind::SMessage {}
            times.add(sent.elapsed());
        }
        Ok(RedisResult {
            round_trips_per_s: times.count() as f64 / begun.elapsed().as_secs_f64(),
            latency_ms: times.spread(),
        })
    })
}
