//! Calls to etcd that survive dead endpoints: one client per endpoint, tried in turn from the
//! last that answered, each attempt and the whole call under a time limit.
//!
//! The crate's own balancer picks endpoints at random, dead ones included, and waits for a
//! silent one as long as it takes; that would be noticed.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adsum_core::membership::MembershipError;
use etcd_client::{Client, ConnectOptions};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{config::EtcdConfig, endpoint::Endpoint, failure::classify};

/// The pause after all endpoints have failed: long enough for an election to get on.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// At one endpoint.
    pub(crate) attempt: Duration,
    /// In all.
    pub(crate) total: Duration,
}

/// The endpoints of one etcd cluster.
pub(crate) struct Pool {
    endpoints: Vec<Endpoint>,
    options: ConnectOptions,
    limits: Limits,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    /// Why the last attempt in vain was one, for whoever has waited long enough.
    failure: Mutex<String>,
}

impl Pool {
    pub(crate) fn new(config: &EtcdConfig) -> Result<Self, MembershipError> {
        Ok(Self {
            endpoints: config.urls()?.into_iter().map(Endpoint::new).collect(),
            options: config.options()?,
            limits: Limits {
                attempt: config.timeout / 3,
                total: config.timeout,
            },
            // Not all nodes of the cluster at the same node of etcd.
            preferred: AtomicUsize::new(rand::random_range(0..config.endpoints.len().max(1))),
            failure: Mutex::default(),
        })
    }

    /// The limits of a call that is in no hurry.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Why the last attempt in vain was one.
    pub(crate) fn last_failure(&self) -> String {
        self.failure().clone()
    }

    /// A call within the usual limits.
    pub(crate) async fn call<T, F, A>(&self, op: F) -> Result<T, MembershipError>
    where
        F: Fn(Client) -> A + Send,
        A: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.call_within(self.limits, op).await
    }

    /// Asks endpoint after endpoint until one gives a clear answer. `op` may be carried out more
    /// than once: an attempt that was given up may still reach etcd.
    pub(crate) async fn call_within<T, F, A>(
        &self,
        limits: Limits,
        op: F,
    ) -> Result<T, MembershipError>
    where
        F: Fn(Client) -> A + Send,
        A: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let end = Instant::now() + limits.total;
        loop {
            let first = self.preferred.load(Relaxed);
            let mut last = MembershipError::Unavailable("no time left".to_owned());
            for step in 0..self.endpoints.len() {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(last);
                }
                let index = (first + step) % self.endpoints.len();
                match self.attempt(index, limits.attempt.min(left), &op).await {
                    Err(MembershipError::Unavailable(why)) => {
                        last = MembershipError::Unavailable(why);
                    }
                    answer => {
                        self.preferred.store(index, Relaxed);
                        return answer;
                    }
                }
            }
            if Instant::now() + ROUND_PAUSE >= end {
                return Err(last);
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    async fn attempt<T, F, A>(
        &self,
        index: usize,
        limit: Duration,
        op: &F,
    ) -> Result<T, MembershipError>
    where
        F: Fn(Client) -> A + Send,
        A: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let (endpoint, end) = (&self.endpoints[index], Instant::now() + limit);
        let answer = async {
            let connection = endpoint.connection(&self.options).await?;
            let answer = timeout_at(end, op(connection.client.clone())).await;
            endpoint.review(&connection, &answer, self.limits.total);
            answer.map_or_else(
                |_| Err(silence(limit)),
                |answer| answer.map_err(|e| classify(&e)),
            )
        };
        let answer = timeout_at(end, answer).await;
        match answer.unwrap_or_else(|_| Err(silence(limit))) {
            Err(MembershipError::Unavailable(why)) => {
                let why = format!("{}: {why}", endpoint.url());
                self.failure().clone_from(&why);
                Err(MembershipError::Unavailable(why))
            }
            answer => answer,
        }
    }

    fn failure(&self) -> MutexGuard<'_, String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silence(limit: Duration) -> MembershipError {
    MembershipError::Unavailable(format!("no answer within {limit:?}"))
}
