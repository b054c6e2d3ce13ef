//! The membership of a cluster, on etcd: wires session, mirror and election together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adsum_core::NodeId;
use adsum_core::membership::{Members, Membership, MembershipError, Owners};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use tokio::time::timeout;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::lease::{Lease, Phase};
use crate::{
    backoff::Backoff, config::EtcdConfig, election::Candidate, keys::Keys, mirror::Mirror,
    pool::Pool, profile::Profile, session::Session, views::Views,
};

/// A node of a cluster on etcd. Dropped without [`leave`](Membership::leave) it is like a node
/// that died: its lease runs out.
pub struct EtcdMembership {
    pool: Arc<Pool>,
    keys: Keys,
    session: Arc<Session>,
    views: Arc<Views>,
    _life: DropGuard,
}

impl EtcdMembership {
    /// Joins the cluster. On return this node is a member, and knows the others.
    ///
    /// # Errors
    /// At once when etcd refuses, or the configuration makes no sense; after the connect time-out
    /// when no endpoint gives an answer.
    pub async fn connect(config: EtcdConfig, profile: Profile) -> Result<Self, MembershipError> {
        let pool = Arc::new(Pool::new(&config)?);
        let (keys, views) = (Keys::new(&config.cluster), Arc::new(Views::default()));
        let life = CancellationToken::new();
        let session = Arc::new(Session::new(
            Arc::clone(&pool),
            keys.clone(),
            profile,
            config.ttl_seconds(),
            life.child_token(),
        )?);
        let mut mirror = Mirror::new(
            Arc::clone(&pool),
            keys.clone(),
            Arc::clone(&views),
            config.check_interval,
            config.lease_ttl * 2,
        );
        // From here on a failure ends the background work, too.
        let guard = life.clone().drop_guard();
        let mut backoff = Backoff::default();
        let joined = timeout(config.connect_timeout, async {
            while !done(session.establish().await, &mut backoff).await? {}
            session.spawn();
            while !done(mirror.list().await, &mut backoff).await? {}
            Ok(())
        });
        if let Err(error) = joined
            .await
            .unwrap_or_else(|_| Err(too_late(&config, &pool)))
        {
            let _ = session.leave().await;
            return Err(error);
        }
        tokio::spawn(async move { life.run_until_cancelled(mirror.run()).await });
        Ok(Self {
            pool,
            keys,
            session,
            views,
            _life: guard,
        })
    }

    /// The lease, if it can be counted on.
    fn held(&self) -> Result<Lease, MembershipError> {
        let lease = self.session.lease();
        match lease.phase {
            Phase::Left => Err(MembershipError::Refused("this node has left".to_owned())),
            _ if lease.left().is_zero() => Err(MembershipError::LeaseLost),
            _ => Ok(lease),
        }
    }

    /// An answer about a lease says nothing once that lease is gone.
    fn if_still(&self, lease: &Lease, answer: bool) -> Result<bool, MembershipError> {
        match self.held()? {
            now if now.id == lease.id => Ok(answer),
            _ => Err(MembershipError::LeaseLost),
        }
    }
}

#[async_trait]
impl Membership for EtcdMembership {
    fn node(&self) -> NodeId {
        self.session.lease().member.node.clone()
    }

    fn watch_node(&self) -> BoxStream<'static, Option<NodeId>> {
        let held = |lease: Lease| (lease.phase == Phase::Held).then(|| lease.member.node.clone());
        WatchStream::new(self.session.subscribe()).map(held).boxed()
    }

    fn members(&self) -> Arc<Members> {
        self.views.members()
    }

    fn watch(&self) -> BoxStream<'static, Arc<Members>> {
        self.views.watch_members()
    }

    fn owners(&self) -> Arc<Owners> {
        self.views.owners()
    }

    fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>> {
        self.views.watch_owners()
    }

    async fn campaign(&self, shard: u16) -> Result<bool, MembershipError> {
        let lease = self.held()?;
        let won = candidate(&lease)
            .campaign(&self.pool, &self.keys.reaper(shard))
            .await?;
        self.if_still(&lease, won)
    }

    async fn prove(&self, shard: u16) -> Result<bool, MembershipError> {
        let lease = self.held()?;
        let proved = candidate(&lease)
            .prove(&self.pool, &self.keys.reaper(shard))
            .await?;
        self.if_still(&lease, proved)
    }

    async fn resign(&self, shard: u16) -> Result<(), MembershipError> {
        let lease = self.session.lease();
        candidate(&lease)
            .resign(&self.pool, &self.keys.reaper(shard))
            .await
    }

    fn lease_left(&self) -> Duration {
        self.session.lease().left()
    }

    async fn leave(&self) -> Result<(), MembershipError> {
        self.session.leave().await
    }
}

impl fmt::Debug for EtcdMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdMembership")
            .field("lease", &self.session.lease())
            .finish_non_exhaustive()
    }
}

fn candidate(lease: &Lease) -> Candidate<'_> {
    Candidate {
        node: &lease.member.node,
        lease: lease.id,
    }
}

/// Whether a step of the start is done; pauses if it is to be tried again.
async fn done(
    step: Result<(), MembershipError>,
    backoff: &mut Backoff,
) -> Result<bool, MembershipError> {
    match step {
        Ok(()) => Ok(true),
        Err(error) if error.retry() => {
            backoff.wait().await;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn too_late(config: &EtcdConfig, pool: &Pool) -> MembershipError {
    let (endpoints, limit) = (config.endpoints.join(", "), config.connect_timeout);
    MembershipError::Unavailable(format!(
        "etcd at {endpoints} did not answer within {limit:?}; {}",
        pool.last_failure()
    ))
}
