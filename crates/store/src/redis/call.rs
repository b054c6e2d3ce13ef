//! One operation: attempts with back-off until it is answered or its deadline has passed.

use std::{future::Future, sync::Arc, time::Duration};

use adsum_core::store::{Result, StoreError};
use redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout};

use super::{
    RedisConfig,
    cluster::Cluster,
    errors::{Failure, judge},
    functions::{self, Args, Function},
    pool::Pool,
};
use crate::Keys;

/// Between two attempts: doubles from the first to the second, and is cut at random.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

const FORGOTTEN: &str = "the node forgot its functions";

/// One thing to send, in every attempt the same.
enum Request<'a> {
    Command(&'a Cmd),
    Masters(&'a Cmd),
    Function {
        function: Function,
        keys: &'a Keys,
        args: &'a Args,
        then: Option<&'a Cmd>,
    },
}

impl Request<'_> {
    /// Sends it; a function behind the library where that is not known.
    async fn send(&self, pool: &Pool, slot: u16, load: bool) -> RedisResult<Vec<Value>> {
        match self {
            Self::Command(command) => pool.send(slot, std::slice::from_ref(*command)).await,
            Self::Masters(command) => pool.send_masters(command).await,
            Self::Function {
                function,
                keys,
                args,
                then,
            } => {
                let library = load.then(functions::load);
                let before = library.iter().len();
                let call = [function.command(keys, args)];
                let all: Vec<_> = library
                    .into_iter()
                    .chain(call)
                    .chain(then.cloned())
                    .collect();
                let mut answers = pool.send(slot, &all).await?;
                answers.drain(..before);
                Ok(answers)
            }
        }
    }
}

fn only(values: Vec<Value>) -> Value {
    values.into_iter().next().unwrap_or(Value::Nil)
}

/// Sends operations over connections of its own.
#[derive(Debug)]
pub(super) struct Caller {
    pool: Arc<Pool>,
    deadline: Duration,
    attempt: Duration,
}

impl Caller {
    pub(super) fn new(cluster: Arc<Cluster>, config: &RedisConfig) -> Self {
        Self {
            pool: Pool::new(cluster, None),
            deadline: config.deadline,
            attempt: config.attempt_timeout,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.pool.cluster().dialer().is_cluster()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn attempt(&self) -> Duration {
        self.attempt
    }

    /// Sends a plain command to the master of a slot.
    pub(super) async fn command(&self, slot: u16, command: &Cmd) -> Result<Value> {
        self.attempts(slot, &Request::Command(command))
            .await
            .map(only)
    }

    /// Asks every master.
    pub(super) async fn masters(&self, command: &Cmd) -> Result<Vec<Value>> {
        self.attempts(0, &Request::Masters(command)).await
    }

    /// Calls a function.
    pub(super) async fn function(
        &self,
        function: Function,
        keys: &Keys,
        args: &Args,
    ) -> Result<Value> {
        let request = Request::Function {
            function,
            keys,
            args,
            then: None,
        };
        self.attempts(keys.slot, &request).await.map(only)
    }

    /// Calls a function and sends a command right behind it on its connection; answers of both.
    pub(super) async fn function_then(
        &self,
        function: Function,
        keys: &Keys,
        args: &Args,
        then: &Cmd,
    ) -> Result<Vec<Value>> {
        let request = Request::Function {
            function,
            keys,
            args,
            then: Some(then),
        };
        self.attempts(keys.slot, &request).await
    }

    async fn attempts(&self, slot: u16, request: &Request<'_>) -> Result<Vec<Value>> {
        let until = Instant::now() + self.deadline;
        let mut pause = Pause::default();
        let mut load = false;
        let mut cause = String::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = timeout(left, request.send(&self.pool, slot, load)).await;
            let failure = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => judge(&error),
                Err(_) => return Err(unavailable(cause)),
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::NoFunction if !load => {
                    load = true;
                    continue;
                }
                Failure::NoFunction => cause = FORGOTTEN.into(),
                Failure::Again(why) => cause = why,
            }
            let rest = pause.next();
            if Instant::now() + rest >= until {
                return Err(unavailable(cause));
            }
            sleep(rest).await;
        }
    }
}

fn unavailable(cause: String) -> StoreError {
    let why = match cause.as_str() {
        "" => "no answer before the deadline".into(),
        _ => cause,
    };
    StoreError::Unavailable(why)
}

/// Tries something that is no operation of a shard until the deadline.
pub(super) async fn retry<T, F: Future<Output = RedisResult<T>>>(
    deadline: Duration,
    attempt: impl Fn() -> F,
) -> Result<T> {
    let until = Instant::now() + deadline;
    let mut pause = Pause::default();
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let why = match judge(&error) {
            Failure::Final(error) => return Err(error),
            Failure::Again(why) => why,
            Failure::NoFunction => FORGOTTEN.into(),
        };
        let rest = pause.next();
        if Instant::now() + rest >= until {
            return Err(StoreError::Unavailable(why));
        }
        sleep(rest).await;
    }
}

/// Back-off with jitter.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(PAUSE.0)
    }
}

impl Pause {
    pub(super) fn next(&mut self) -> Duration {
        let longest = self.0;
        self.0 = (longest * 2).min(PAUSE.1);
        // Half is certain, half is chance: callers that failed together come back apart.
        longest.mul_f64(rand::random_range(0.5..=1.0))
    }
}
