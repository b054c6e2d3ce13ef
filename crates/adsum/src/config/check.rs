//! What belongs together in a configuration. Every refusal says what does not fit, and why it
//! must.

use std::net::SocketAddr;

use adsum_cluster::{EtcdConfig, Profile};
use adsum_core::membership::Role;
use adsum_gateway::EdgeTimes;
use anyhow::{Context, Result, anyhow, bail, ensure};
use tracing_subscriber::EnvFilter;

use super::{Config, Times};
use crate::backends;

/// No machine has more cores to run them.
const MOST_THREADS: u16 = 1024;
/// A longer lease is a mistake of units.
const LONGEST_LEASE_MS: u64 = 3_600_000;
/// What the store's library takes.
const REDIS: [&str; 7] = [
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "redis+unix",
    "valkey+unix",
    "unix",
];

impl Config {
    /// Checks what belongs together.
    ///
    /// # Errors
    /// Says what does not, and why it must.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            !self.node.roles.is_empty(),
            "node.roles is empty: this node would do nothing; name gateway, dispatcher or reaper"
        );
        ensure!(
            self.node.threads <= MOST_THREADS,
            "node.threads must be at most {MOST_THREADS}, or 0 for one per core"
        );
        ensure!(self.cluster.shards > 0, "cluster.shards must be at least 1");
        self.check_names()?;
        self.check_ports()?;
        self.check_zeros()?;
        self.check_holding()?;
        self.check_tenants()?;
        self.check_stop()?;
        self.check_ladder()?;
        self.check_feed()?;
        self.check_backends()?;
        self.telemetry_plan()?;
        ensure!(
            EnvFilter::try_new(&self.log.filter).is_ok(),
            "log.filter is no filter: write it as info, or as adsum_dispatcher=debug,info"
        );
        if self.node.roles.contains(&Role::Gateway) {
            self.check_public()?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<()> {
        Profile::check_name(&self.node_name()).map_err(|why| anyhow!("node.name {why}"))?;
        ensure!(
            !self.cluster.name.is_empty(),
            "cluster.name must not be empty: it keeps clusters in one Redis and etcd apart"
        );
        if self.embedded() {
            return Ok(());
        }
        EtcdConfig::check_cluster(&self.cluster.name).map_err(|why| anyhow!("cluster.name {why}"))
    }

    /// Of the ports that this node opens.
    fn check_ports(&self) -> Result<()> {
        let has = |role| self.node.roles.contains(&role);
        let (l, mut open) = (&self.listen, Vec::new());
        if has(Role::Gateway) {
            open.push(("listen.public", l.public));
        }
        if has(Role::Dispatcher) && !self.embedded() {
            open.push(("listen.feed", l.feed));
        }
        open.push(("listen.internal", l.internal));
        for (place, (name, address)) in open.iter().enumerate() {
            for (earlier, taken) in open.iter().take(place) {
                ensure!(
                    !clash(*address, *taken),
                    "{earlier} ({taken}) and {name} ({address}) must have different ports: only \
                     one of them can listen there"
                );
            }
        }
        Ok(())
    }

    /// A pause of nothing spins, a wait of nothing never succeeds.
    fn check_zeros(&self) -> Result<()> {
        let t = &self.times;
        let positive = [
            ("heartbeat_ms", t.heartbeat_ms),
            ("hello_ms", t.hello_ms),
            ("interval_ms", t.interval_ms),
            ("handshake_ms", t.handshake_ms),
            ("header_ms", t.header_ms),
            ("body_ms", t.body_ms),
            ("idle_ms", t.idle_ms),
            ("watch_files_ms", t.watch_files_ms),
            ("renew_ms", t.renew_ms),
            ("sweep_ms", t.sweep_ms),
            ("poll_ms", t.poll_ms),
            ("store_deadline_ms", t.store_deadline_ms),
        ];
        for (key, value) in positive {
            ensure!(value > 0, "times.{key} must be at least 1");
        }
        ensure!(
            t.lease_ttl_ms >= 1000,
            "times.lease_ttl_ms must be at least 1000: etcd counts whole seconds"
        );
        Ok(())
    }

    fn check_holding(&self) -> Result<()> {
        let t = &self.times;
        ensure!(
            t.holder_ttl_ms >= t.renew_ms.saturating_mul(3),
            "times.holder_ttl_ms ({}) must be at least three times times.renew_ms ({}): two lost \
             renewals must not cost a gateway its sessions",
            t.holder_ttl_ms,
            t.renew_ms
        );
        ensure!(
            t.stuck_ms >= t.renew_ms.saturating_mul(2) && t.stuck_ms < t.holder_ttl_ms,
            "times.stuck_ms ({}) must be at least twice times.renew_ms ({}) and below \
             times.holder_ttl_ms ({}): users of a shard that can't be renewed must be sent away \
             before its deadline, and not because one renewal came a little late",
            t.stuck_ms,
            t.renew_ms,
            t.holder_ttl_ms
        );
        ensure!(
            t.gather_ms < t.answer_ms,
            "times.gather_ms ({}) must be below times.answer_ms ({}): whoever connects would be \
             answered before their session is written",
            t.gather_ms,
            t.answer_ms
        );
        ensure!(
            t.silent_ms >= t.poll_ms.saturating_mul(3),
            "times.silent_ms ({}) must be at least three times times.poll_ms ({}): a dispatcher \
             speaks once per poll",
            t.silent_ms,
            t.poll_ms
        );
        Ok(())
    }

    /// The node's own settings, and those of every tenant.
    fn check_tenants(&self) -> Result<()> {
        let node = self.edge_times();
        check_clients(&node, &self.times, "times")?;
        self.limits.check()?;
        for (tenant, own) in &self.tenants {
            let name = format!("tenants.{tenant}");
            check_clients(&node.with(own), &self.times, &name)?;
            self.limits.with(own).check().context(name)?;
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<()> {
        let t = &self.times;
        // To leave deadlines behind and the cluster, after the last client.
        let margin = (t.drain_window_ms / 4).saturating_add(1000);
        ensure!(
            t.stop_ms >= t.drain_window_ms.saturating_add(margin),
            "times.stop_ms ({}) must be at least times.drain_window_ms + a quarter + 1000 \
             ({} + {margin}): a node that stops sends its clients away first, and leaves the \
             cluster after that",
            t.stop_ms,
            t.drain_window_ms
        );
        Ok(())
    }

    fn check_ladder(&self) -> Result<()> {
        let (t, b) = (&self.times, &self.bounds);
        ensure!(
            b.interval_above <= b.count_above,
            "bounds.interval_above ({}) must not be above bounds.count_above ({}): a room that \
             grows is told by interval first, and by count after that",
            b.interval_above,
            b.count_above
        );
        ensure!(
            t.window_ms <= t.interval_ms,
            "times.window_ms ({}) must not be above times.interval_ms ({}): small rooms are told \
             at least as often as large ones",
            t.window_ms,
            t.interval_ms
        );
        let positive = [
            ("outbox_entries", b.outbox_entries),
            ("outbox_answers", b.outbox_answers),
            ("holder_backlog", b.holder_backlog),
            ("users_per_request", b.users_per_request),
            ("page", b.page),
            ("unfinished_connections", b.unfinished_connections),
            ("sweep_limit", b.sweep_limit),
            ("feed_replicas", b.feed_replicas),
            ("feed_queue", b.feed_queue),
        ];
        for (key, value) in positive {
            ensure!(value > 0, "bounds.{key} must be at least 1");
        }
        ensure!(
            b.streams_per_connection > 0,
            "bounds.streams_per_connection must be at least 1"
        );
        ensure!(b.log_len > 0, "bounds.log_len must be at least 1");
        Ok(())
    }

    fn check_feed(&self) -> Result<()> {
        let tls = [&self.feed.ca, &self.feed.cert, &self.feed.key];
        let given = tls.iter().filter(|file| file.is_some()).count();
        ensure!(
            given == 0 || given == 3,
            "feed.ca, feed.cert and feed.key belong together"
        );
        ensure!(
            given == 3 || self.feed.plaintext || self.listen.feed.ip().is_loopback(),
            "listen.feed ({}) is reached from other machines: set feed.ca, feed.cert and feed.key, \
             or feed.plaintext = true if the network itself is private",
            self.listen.feed
        );
        Ok(())
    }

    fn check_backends(&self) -> Result<()> {
        if self.redis.urls.is_empty() != self.etcd.endpoints.is_empty() {
            let (has, lacks) = if self.redis.urls.is_empty() {
                ("etcd.endpoints", "redis.urls")
            } else {
                ("redis.urls", "etcd.endpoints")
            };
            bail!(
                "{has} is set and {lacks} is not: a cluster needs both, the embedded default \
                 neither"
            );
        }
        let all = [Role::Gateway, Role::Dispatcher, Role::Reaper];
        ensure!(
            !self.embedded() || all.iter().all(|role| self.node.roles.contains(role)),
            "node.roles must be gateway, dispatcher and reaper in the embedded default: nobody \
             else is there to do their work"
        );
        // URLs may carry passwords: they are told by their place.
        for (place, url) in self.redis.urls.iter().enumerate() {
            let scheme = scheme(url.expose());
            ensure!(
                scheme.is_some_and(|scheme| REDIS.contains(&scheme)),
                "redis.urls: number {} must begin with redis://, or with rediss:// for TLS, and \
                 name a server: it says how Redis is reached",
                place + 1
            );
        }
        if self.etcd.endpoints.is_empty() {
            return Ok(());
        }
        ensure!(
            self.times.lease_ttl_ms <= LONGEST_LEASE_MS,
            "times.lease_ttl_ms must be at most {LONGEST_LEASE_MS}: for so long a dead node would \
             be taken for a live one"
        );
        backends::etcd(self)
            .check()
            .map_err(|why| anyhow!("etcd.{why}"))
    }

    /// Of a gateway: the public port, and who may come in.
    fn check_public(&self) -> Result<()> {
        ensure!(
            self.tls.cert.is_some() == self.tls.key.is_some(),
            "tls.cert and tls.key belong together"
        );
        if self.has_keys() {
            return Ok(());
        }
        ensure!(
            self.node.dev,
            "nobody could come in: a gateway needs keys to verify tokens with. Set auth.keys or \
             auth.jwks, or try it on this machine with --dev, which accepts unsigned identities"
        );
        ensure!(
            self.listen.public.ip().is_loopback(),
            "--dev accepts unsigned identities only from this machine, and listen.public ({}) is \
             reached from others: listen on 127.0.0.1, or set auth.keys or auth.jwks",
            self.listen.public
        );
        Ok(())
    }

    fn has_keys(&self) -> bool {
        !self.auth.keys.is_empty() || self.auth.jwks.is_some()
    }
}

/// Whether one of them could not be opened for the other. The system chooses for port 0.
fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    let meet = a == b || a.is_unspecified() || b.is_unspecified();
    meet && one.port() != 0 && one.port() == other.port()
}

/// Of a URL that goes on after it.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    (!rest.is_empty()).then_some(scheme)
}

/// What clients are promised must fit what gateways do for them.
fn check_clients(of: &EdgeTimes, t: &Times, name: &str) -> Result<()> {
    let (heartbeat, ttl) = (of.heartbeat_ms, of.session_ttl_ms);
    ensure!(heartbeat > 0, "{name}.heartbeat_ms must be at least 1");
    ensure!(
        ttl >= heartbeat.saturating_mul(2),
        "{name}.session_ttl_ms ({ttl}) must be at least twice {name}.heartbeat_ms ({heartbeat}): \
         one lost beat must not end a session"
    );
    // 3 s for the client to get through to another gateway, scaled like everything else.
    let retry = heartbeat / 5;
    let back = heartbeat
        .saturating_add(t.ack_timeout_ms)
        .saturating_add(retry);
    let deadline = t.holder_ttl_ms.saturating_sub(t.renew_ms);
    ensure!(
        back < deadline,
        "{name}.heartbeat_ms + times.ack_timeout_ms + a retry ({heartbeat} + {} + {retry}) must be \
         below times.holder_ttl_ms - times.renew_ms ({deadline}): clients of a dead gateway must \
         be back elsewhere before they are told as gone",
        t.ack_timeout_ms
    );
    Ok(())
}
