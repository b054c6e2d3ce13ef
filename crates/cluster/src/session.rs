//! Liveness: a lease in etcd, kept alive, and taken anew under another id after it was lost.
//!
//! The clock that counts is ours: a lease is certain to live until its TTL after the *sending* of
//! the last keepalive that was answered, which is earlier than etcd would end it. A lease that
//! has run out by that clock is never revived, not even when etcd still knows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adsum_core::membership::MembershipError;
use adsum_telemetry::{measured::registry_call, metrics::Call};
use etcd_client::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::lease::{Lease, Phase};
use crate::pool::{Limits, Pool};
use crate::{backoff::Backoff, keys::Keys, members, profile::Profile};

/// An answered keepalive.
struct Renewal {
    sent: Instant,
    /// Whether this node's entry was there.
    registered: bool,
}

/// The leases of one node, one after another.
pub(crate) struct Session {
    pool: Arc<Pool>,
    keys: Keys,
    profile: Profile,
    ttl_seconds: i64,
    lease: watch::Sender<Lease>,
    /// Leases that etcd may still know: revoked before the next one is taken, so that a node is
    /// not a member twice.
    granted: Mutex<Vec<i64>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Session {
    /// A session without a lease yet.
    pub(crate) fn new(
        pool: Arc<Pool>,
        keys: Keys,
        profile: Profile,
        ttl_seconds: i64,
        stop: CancellationToken,
    ) -> Result<Self, MembershipError> {
        let lease = Lease {
            member: Arc::new(profile.member()?),
            id: 0,
            phase: Phase::Lost,
            ttl: Duration::ZERO,
            until: Instant::now(),
        };
        Ok(Self {
            pool,
            keys,
            profile,
            ttl_seconds,
            lease: watch::Sender::new(lease),
            granted: Mutex::default(),
            stop,
            tasks: TaskTracker::new(),
        })
    }

    /// The current lease.
    pub(crate) fn lease(&self) -> Lease {
        self.lease.borrow().clone()
    }

    /// Changes of the lease's owner and phase; not each of its renewals.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Lease> {
        self.lease.subscribe()
    }

    /// Takes a lease, registers a new member under it, and publishes it.
    pub(crate) async fn establish(&self) -> Result<(), MembershipError> {
        self.revoke_granted().await?;
        let seconds = self.ttl_seconds;
        let (sent, grant) = self
            .pool
            .call(|mut etcd: Client| async move {
                let sent = Instant::now();
                Ok((sent, etcd.lease_grant(seconds, None).await?))
            })
            .await?;
        self.granted().push(grant.id());
        let ttl = Duration::from_secs(grant.ttl().try_into().unwrap_or_default());
        let member = Arc::new(self.profile.member()?);
        let key = self.keys.node(&member.node);
        members::register(&self.pool, self.pool.limits(), &key, &member, grant.id()).await?;
        let lease = Lease {
            member,
            id: grant.id(),
            phase: Phase::Held,
            ttl,
            until: sent + ttl,
        };
        if lease.left().is_zero() {
            return Err(MembershipError::Unavailable(
                "etcd is slower than the lease".to_owned(),
            ));
        }
        tracing::info!(node = %lease.member.node, ttl = ?ttl, "joined the cluster");
        self.publish(lease);
        Ok(())
    }

    /// Keeps the lease in the background, and takes another one whenever it is lost.
    pub(crate) fn spawn(self: &Arc<Self>) {
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            session.stop.run_until_cancelled(session.run()).await;
        });
    }

    /// Ends the lease, which takes all its keys along, and takes no other.
    pub(crate) async fn leave(&self) -> Result<(), MembershipError> {
        self.lease.send_if_modified(|lease| {
            std::mem::replace(&mut lease.phase, Phase::Left) != Phase::Left
        });
        self.stop.cancel();
        self.tasks.close();
        // A lease that is being taken at this moment is one to revoke, too.
        self.tasks.wait().await;
        self.revoke_granted().await
    }

    async fn run(&self) {
        loop {
            let reason = self.keep().await;
            let node = self.lease().member.node.clone();
            tracing::warn!(%node, reason, "lost the lease, joining again under another id");
            self.lease.send_if_modified(|lease| {
                let held = lease.phase == Phase::Held;
                if held {
                    lease.phase = Phase::Lost;
                }
                held
            });
            let mut backoff = Backoff::default();
            while let Err(error) = self.establish().await {
                tracing::warn!(%error, "can't join the cluster, trying again");
                backoff.wait().await;
            }
        }
    }

    /// Renews the lease until it is lost; says why it was.
    async fn keep(&self) -> &'static str {
        const CLOCK: &str = "not renewed in time";
        const ANSWER: &str = "etcd does not know it";
        loop {
            let lease = self.lease();
            sleep_until(lease.renewal()).await;
            if lease.left().is_zero() {
                return CLOCK;
            }
            let renewal = registry_call(Call::KeepAlive, self.renew(&lease));
            match timeout_at(lease.until, renewal).await {
                // An answer counts only while there is something left to extend: this process
                // may have been paused before, or after, it was asked for.
                _ if lease.left().is_zero() => return CLOCK,
                Err(_) => return CLOCK,
                Ok(Err(MembershipError::LeaseLost)) => return ANSWER,
                Ok(Err(error)) => {
                    tracing::warn!(%error, left = ?lease.left(), "can't renew the lease");
                    sleep(lease.ttl / 20).await;
                    continue;
                }
                Ok(Ok(renewal)) => {
                    self.extend(lease.id, renewal.sent + lease.ttl);
                    if !renewal.registered && self.register_again(&lease).await {
                        return ANSWER;
                    }
                }
            }
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, MembershipError> {
        // Two endpoints can fail, one after the other, and a third of the TTL is left.
        let limits = Limits {
            attempt: lease.ttl / 6,
            total: lease.ttl,
        };
        let (id, key) = (lease.id, self.keys.node(&lease.member.node));
        let keepalive = |mut etcd: Client| {
            let key = key.clone();
            async move {
                let sent = Instant::now();
                etcd.lease_keep_alive(id).await?;
                // A leader that was deposed and has not noticed, because its disk or its process
                // stands still, renews leases that its successor lets run out (etcd's issue
                // 15247). It can't answer a linearizable read, which we want to do anyway: an
                // etcd restored from a backup may know the lease and not the entry.
                let found = etcd.get(key, None).await?;
                let registered = found.kvs().first().is_some_and(|kv| kv.lease() == id);
                Ok(Renewal { sent, registered })
            }
        };
        self.pool.call_within(limits, keepalive).await
    }

    /// Writes the entry again; says whether the lease turned out to be gone. Short, since the
    /// next renewal waits for it.
    async fn register_again(&self, lease: &Lease) -> bool {
        let (node, limit) = (&lease.member.node, lease.ttl / 6);
        tracing::warn!(%node, "this node's entry is gone from etcd, writing it again");
        let limits = Limits {
            attempt: limit,
            total: limit,
        };
        let key = self.keys.node(node);
        let register = members::register(&self.pool, limits, &key, &lease.member, lease.id);
        matches!(register.await, Err(MembershipError::LeaseLost))
    }

    fn extend(&self, id: i64, until: Instant) {
        self.lease.send_if_modified(|lease| {
            if lease.id == id {
                lease.until = until;
            }
            false
        });
    }

    fn publish(&self, new: Lease) {
        self.lease.send_if_modified(|lease| {
            let wanted = lease.phase != Phase::Left;
            if wanted {
                *lease = new;
            }
            wanted
        });
    }

    async fn revoke_granted(&self) -> Result<(), MembershipError> {
        loop {
            let Some(id) = self.granted().last().copied() else {
                return Ok(());
            };
            let revoke = |mut etcd: Client| async move { etcd.lease_revoke(id).await };
            match self.pool.call(revoke).await {
                Err(error @ MembershipError::Unavailable(_)) => return Err(error),
                Err(MembershipError::Refused(why)) => {
                    tracing::warn!(why, "etcd refused to revoke a lease, it will run out");
                }
                Ok(_) | Err(MembershipError::LeaseLost) => {}
            }
            self.granted().retain(|granted| *granted != id);
        }
    }

    fn granted(&self) -> MutexGuard<'_, Vec<i64>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
