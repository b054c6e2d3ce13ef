//! What a single server and a node of a cluster have in common: a `redis-server`, its
//! configuration, and questions to it.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd};

use super::server::Auth;
use crate::clock::FakeClock;
use crate::process::Process;
use crate::wait::{LIMIT, eventually};

/// Longer than any answer takes, short enough to notice that a node is paused.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Nothing is saved and nothing evicted; a replica need not wait for others before it syncs. It says
/// its address, so that its master need not ask the kernel for it in every script.
const DEFAULTS: &str = "\
bind 127.0.0.1
daemonize no
save \"\"
appendfsync everysec
maxmemory-policy noeviction
repl-diskless-sync yes
repl-diskless-sync-delay 0
replica-announce-ip 127.0.0.1
latency-tracking no
";

/// One running `redis-server`.
#[derive(Debug)]
pub struct RedisProcess {
    port: u16,
    auth: Auth,
    process: Process,
    clock: Option<FakeClock>,
}

impl RedisProcess {
    /// Starts a server in `folder`, with `settings` beside the defaults, and waits until it
    /// answers.
    pub(super) async fn start(
        folder: &Path,
        port: u16,
        auth: Auth,
        settings: &[(&str, String)],
        clock: Option<FakeClock>,
    ) -> Result<Self> {
        let mut config = format!("{DEFAULTS}port {port}\ndir {}\n", folder.display());
        for (name, value) in settings {
            writeln!(config, "{name} {value}")?;
        }
        config.push_str(&auth.config());
        let path = folder.join("redis.conf");
        fs::write(&path, config).with_context(|| format!("write {}", path.display()))?;
        let mut command = Command::new("redis-server");
        command.arg(path);
        if let Some(clock) = &clock {
            clock.give(&mut command);
        }
        let process = Process::start(folder, &format!("redis-{port}"), command)?;
        let server = Self {
            port,
            auth,
            process,
            clock,
        };
        server.wait_ready().await?;
        Ok(server)
    }

    /// Its clock, if it can be set.
    pub fn clock(&self) -> Option<&FakeClock> {
        self.clock.as_ref()
    }

    /// Waits until it answers: after a start or a restart.
    pub async fn wait_ready(&self) -> Result<()> {
        let answers = eventually("redis answers", LIMIT, || async {
            self.query::<String>(&cmd("PING")).await
        });
        self.process.while_running(answers).await?;
        Ok(())
    }

    /// The port it listens on, never that of a proxy.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on, never that of a proxy.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its process: to kill, pause or restart.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// A new connection, straight to the process.
    pub async fn conn(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_LIMIT))
            .set_response_timeout(Some(ANSWER_LIMIT));
        let client = Client::open(self.auth.url(self.port))?;
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        connection.with_context(|| format!("connect to redis on port {}", self.port))
    }

    /// Asks one thing on a connection of its own.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let answer = command.query_async(&mut self.conn().await?).await;
        answer.with_context(|| format!("ask redis on port {}", self.port))
    }

    /// From now on remembers every call that takes longer than `limit`, and forgets the others.
    pub async fn watch_slow(&self, limit: Duration) -> Result<()> {
        let micros = u64::try_from(limit.as_micros())?;
        let settings = [
            ("slowlog-log-slower-than", micros),
            ("slowlog-max-len", 100_000),
        ];
        for (name, value) in settings {
            self.query::<()>(cmd("CONFIG").arg("SET").arg(name).arg(value))
                .await?;
        }
        self.query::<()>(cmd("SLOWLOG").arg("RESET")).await
    }

    /// The slow calls since [`watch_slow`](Self::watch_slow): how long each took, and its first
    /// words.
    pub async fn slow_calls(&self) -> Result<Vec<(Duration, String)>> {
        type Entry = (u64, u64, u64, Vec<Vec<u8>>, Vec<u8>, Vec<u8>);
        let entries: Vec<Entry> = self.query(cmd("SLOWLOG").arg("GET").arg(-1)).await?;
        let call = |(_, _, micros, words, _, _): Entry| {
            let words = words
                .iter()
                .take(2)
                .map(|word| String::from_utf8_lossy(word));
            let words: Vec<_> = words.collect();
            (Duration::from_micros(micros), words.join(" "))
        };
        Ok(entries.into_iter().map(call).collect())
    }

    /// The fields of one section of `INFO`.
    pub async fn info(&self, section: &str) -> Result<HashMap<String, String>> {
        Ok(fields(
            &self.query::<String>(cmd("INFO").arg(section)).await?,
        ))
    }

    /// The fields of `CLUSTER INFO`.
    pub(super) async fn cluster_info(&self) -> Result<HashMap<String, String>> {
        Ok(fields(
            &self.query::<String>(cmd("CLUSTER").arg("INFO")).await?,
        ))
    }

    /// Removes every key.
    pub async fn flush_all(&self) -> Result<()> {
        self.query(&cmd("FLUSHALL")).await
    }

    /// Forgets every function.
    pub async fn function_flush(&self) -> Result<()> {
        self.query(cmd("FUNCTION").arg("FLUSH")).await
    }

    /// The processor time it has used since it started, in user and in system mode.
    pub async fn cpu_seconds(&self) -> Result<f64> {
        let cpu = self.info("cpu").await?;
        Ok(field::<f64>(&cpu, "used_cpu_user")? + field::<f64>(&cpu, "used_cpu_sys")?)
    }

    /// The bytes that it has allocated.
    pub async fn used_memory(&self) -> Result<u64> {
        field(&self.info("memory").await?, "used_memory")
    }
}

fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn field<T: FromStr>(fields: &HashMap<String, String>, name: &str) -> Result<T> {
    let value = fields.get(name).and_then(|value| value.parse().ok());
    value.with_context(|| format!("no usable {name} in INFO"))
}
