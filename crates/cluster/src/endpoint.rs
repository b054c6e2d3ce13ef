//! One endpoint of etcd and the connection to it, made on demand: with a user, making one asks
//! etcd for a token.
//!
//! etcd takes its time to check a password, the more so when all nodes ask at once after it was
//! started again. So one connection is made at a time, and it is made to the end even if the call
//! that began it has no time left: asking again would only make etcd slower.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adsum_core::membership::MembershipError;
use etcd_client::{Client, ConnectOptions, Error};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::time::{Instant, error::Elapsed, timeout};

use crate::failure::{classify, is_stale_token};

/// When to give a connection up that is being made.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A connection, being made or made.
type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, MembershipError>>>;

pub(crate) struct Endpoint {
    url: Arc<str>,
    connection: Mutex<Option<Connecting>>,
}

pub(crate) struct Connection {
    pub(crate) client: Client,
    since: Instant,
}

impl Endpoint {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url: url.into(),
            connection: Mutex::default(),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The connection, shared by all calls.
    pub(crate) async fn connection(
        &self,
        options: &ConnectOptions,
    ) -> Result<Arc<Connection>, MembershipError> {
        let make = || connect(Arc::clone(&self.url), options.clone());
        let connecting = self.slot().get_or_insert_with(make).clone();
        let connection = connecting.await;
        if connection.is_err() {
            self.forget(Result::is_err);
        }
        connection
    }

    /// Drops the connection that gave an answer if another one would do better: for another
    /// token, or since it may be dead and nobody has noticed yet. One that is broken repairs
    /// itself, and a young one that is silent has its time first.
    pub(crate) fn review<T>(
        &self,
        used: &Arc<Connection>,
        answer: &Result<Result<T, Error>, Elapsed>,
        youth: Duration,
    ) {
        let drop = match answer {
            Ok(Ok(_)) => false,
            Ok(Err(error)) => is_stale_token(error),
            Err(_) => used.since.elapsed() > youth,
        };
        if drop {
            // Not one that another call has made since.
            self.forget(|slot| {
                slot.as_ref()
                    .is_ok_and(|current| Arc::ptr_eq(current, used))
            });
        }
    }

    fn forget(&self, wanted: impl Fn(&Result<Arc<Connection>, MembershipError>) -> bool) {
        let mut slot = self.slot();
        if slot.as_ref().and_then(Shared::peek).is_some_and(wanted) {
            *slot = None;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Connecting>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(url: Arc<str>, options: ConnectOptions) -> Connecting {
    let task = tokio::spawn(async move {
        match timeout(CONNECT_LIMIT, Client::connect([&*url], Some(options))).await {
            Ok(Ok(client)) => Ok(Arc::new(Connection {
                client,
                since: Instant::now(),
            })),
            Ok(Err(error)) => Err(classify(&error)),
            Err(_) => Err(MembershipError::Unavailable(format!(
                "no connection within {CONNECT_LIMIT:?}"
            ))),
        }
    });
    let made = async move {
        task.await
            .unwrap_or_else(|error| Err(MembershipError::Unavailable(error.to_string())))
    };
    made.boxed().shared()
}
