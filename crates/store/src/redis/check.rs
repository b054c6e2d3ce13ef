//! What is asked of the servers before a node starts, and the writes that wait for replicas.

use std::time::Duration;

use adsum_core::{
    codec,
    store::{Answer, Preferred, Result, Shard, StoreError},
};
use futures::future::try_join_all;
use redis::{Value, cmd};
use tokio::time::{Instant, sleep};

use super::{
    RedisStore,
    answers::{Reply, bytes, number},
    call::Pause,
    functions::{Args, Function},
};
use crate::{Keys, slot_of};

/// Sharded pub/sub, `ZMSCORE` and functions.
const OLDEST: (u32, u32) = (7, 0);

impl RedisStore {
    pub(super) async fn check_servers(&self) -> Result<()> {
        for answer in self.shared.caller.masters(&cmd("INFO")).await? {
            check_server(&String::from_utf8_lossy(&text(answer)?))?;
        }
        self.check_shards().await?;
        let shards = 0..self.shared.keys.len() as Shard;
        try_join_all(shards.map(|s| self.read_log(s, 0, 0)))
            .await
            .map(drop)
    }

    /// The number of shards is part of every hash tag, so nodes that disagree about it would
    /// not even meet in a key: one key of the cluster, without a tag, says it.
    async fn check_shards(&self) -> Result<()> {
        let config = &self.shared.config;
        let configured = u64::from(self.options.shards);
        let key = Keys::count(&config.cluster, config.layout);
        let slot = slot_of(&key);
        let claim = cmd("SET").arg(&key).arg(configured).arg("NX").to_owned();
        self.shared.caller.command(slot, &claim).await?;
        let stored = number(
            &self
                .shared
                .caller
                .command(slot, cmd("GET").arg(&key))
                .await?,
        )?;
        if stored != configured {
            return Err(StoreError::WrongShards { stored, configured });
        }
        Ok(())
    }

    /// Writes a preference and, if so configured, waits until replicas have it.
    pub(super) async fn run_prefer(&self, shard: Shard, args: Args) -> Result<Answer<Preferred>> {
        if self.shared.replicas == 0 {
            return preferred(self.run(shard, Function::Prefer, args).await?);
        }
        let until = Instant::now() + self.shared.waiter.deadline();
        let mut pause = Pause::default();
        loop {
            let (reply, replicas) = self.prefer_and_wait(shard, &args).await?;
            if reply.word() != "ok" || replicas >= self.shared.replicas as u64 {
                return preferred(reply);
            }
            // The function writes again what it wrote before, so that a replica that is back by
            // then has something to confirm.
            let rest = pause.next();
            if Instant::now() + rest >= until {
                return Err(StoreError::NotReplicated);
            }
            sleep(rest).await;
        }
    }

    async fn prefer_and_wait(&self, shard: Shard, args: &Args) -> Result<(Reply, u64)> {
        let keys = self.keys(shard)?;
        let waiter = &self.shared.waiter;
        // The answer must come before the attempt is given up.
        let patience = (waiter.attempt() / 2)
            .max(Duration::from_millis(1))
            .as_millis();
        let patience = u64::try_from(patience).unwrap_or(u64::MAX);
        let wait = cmd("WAIT")
            .arg(self.shared.replicas)
            .arg(patience)
            .to_owned();
        let answers = waiter
            .function_then(Function::Prefer, keys, args, &wait)
            .await;
        let mut answers = answers.map_err(|error| self.named(error))?.into_iter();
        let reply = Reply::read(answers.next().unwrap_or(Value::Nil))?;
        self.remember(shard, reply.epoch);
        Ok((reply, number(&answers.next().unwrap_or(Value::Nil))?))
    }
}

fn preferred(mut reply: Reply) -> Result<Answer<Preferred>> {
    let value = match reply.word() {
        "ok" => Preferred::Ok(codec::decode_prefs(&reply.bytes()?)?),
        "stale" => Preferred::Stale(codec::decode_prefs(&reply.bytes()?)?),
        _ => return reply.unknown(),
    };
    reply.answer(value)
}

fn text(answer: Value) -> Result<Vec<u8>> {
    match answer {
        Value::VerbatimString { text, .. } => Ok(text.into_bytes()),
        other => bytes(other),
    }
}

/// Refuses a server that is too old or would drop keys when it is full.
fn check_server(info: &str) -> Result<()> {
    let field = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    };
    let version = field("redis_version");
    let mut parts = version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or_default());
    let number = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    if number < OLDEST {
        return Err(StoreError::Refused(format!(
            "Redis 7.0 is needed, this is {version}"
        )));
    }
    match field("maxmemory_policy") {
        "noeviction" => Ok(()),
        other => Err(StoreError::Refused(format!(
            "maxmemory-policy must be noeviction, it is {other}: sessions would vanish"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_or_forgetful_servers_are_refused() {
        let info = |version: &str, policy: &str| {
            format!("# Server\r\nredis_version:{version}\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(check_server(&info("7.0.15", "noeviction")), Ok(()));
        assert_eq!(check_server(&info("10.2.0", "noeviction")), Ok(()));
        for (version, policy) in [("6.2.1", "noeviction"), ("7.2.0", "allkeys-lru"), ("", "")] {
            let refused = check_server(&info(version, policy));
            assert!(
                matches!(refused, Err(StoreError::Refused(_))),
                "{version} {policy}"
            );
        }
    }
}
