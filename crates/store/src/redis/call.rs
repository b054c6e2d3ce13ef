//! One operation: attempts with back-off until it is answered or its deadline has passed.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::store::{Result, StoreError};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout};

use super::{
    RedisConfig,
    connection::{Dialer, Wire},
    errors::{Failure, judge},
    link::{Line, Link},
    scripts::{Args, Script},
};
use crate::Keys;

/// Between two attempts: doubles from the first to the second, and is cut at random.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// So many attempts without an answer, one after another, put the connection in doubt.
const SILENCE: u32 = 2;
/// Stretches of slots for which that is counted: others' answers must not hide a silent node.
const STRETCHES: usize = 64;

/// One thing to send, in every attempt the same.
enum Request<'a> {
    Command(&'a Cmd),
    Masters(&'a Cmd),
    Script {
        script: &'a Script,
        keys: &'a Keys,
        args: &'a Args,
        then: Option<&'a Cmd>,
    },
}

impl Request<'_> {
    /// Sends it; a script by its hash, or whole where it is not known.
    async fn send(&self, mut wire: Wire, slot: u16, whole: bool) -> RedisResult<Vec<Value>> {
        match self {
            Self::Command(command) => wire.send(slot, (*command).clone()).await.map(|v| vec![v]),
            Self::Masters(command) => wire.send_masters((*command).clone()).await,
            Self::Script {
                script,
                keys,
                args,
                then: None,
            } => wire
                .send(slot, script.command(keys, args, whole))
                .await
                .map(|v| vec![v]),
            Self::Script {
                script,
                keys,
                args,
                then: Some(then),
            } => {
                let mut both = redis::pipe();
                both.add_command(script.command(keys, args, whole))
                    .add_command((*then).clone());
                wire.send_all(slot, &both).await
            }
        }
    }
}

fn only(values: Vec<Value>) -> Value {
    values.into_iter().next().unwrap_or(Value::Nil)
}

/// Sends operations over one link.
#[derive(Debug)]
pub(super) struct Caller {
    link: Arc<Link>,
    deadline: Duration,
    attempt: Duration,
    /// Attempts in a row that nobody answered, by stretch of slots.
    silent: Box<[AtomicU32]>,
}

impl Caller {
    pub(super) fn new(dialer: Arc<Dialer>, config: &RedisConfig) -> Self {
        Self {
            link: Link::new(dialer),
            deadline: config.deadline,
            attempt: config.attempt_timeout,
            silent: (0..STRETCHES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.link.is_cluster()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn attempt(&self) -> Duration {
        self.attempt
    }

    /// The first connection.
    pub(super) async fn connect(&self) -> Result<()> {
        retry(self.deadline, || self.link.connect()).await
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

    /// Calls a script.
    pub(super) async fn script(&self, script: &Script, keys: &Keys, args: &Args) -> Result<Value> {
        let request = Request::Script {
            script,
            keys,
            args,
            then: None,
        };
        self.attempts(keys.slot, &request).await.map(only)
    }

    /// Calls a script and sends a command right behind it on its connection; answers of both.
    pub(super) async fn script_then(
        &self,
        script: &Script,
        keys: &Keys,
        args: &Args,
        then: &Cmd,
    ) -> Result<Vec<Value>> {
        let request = Request::Script {
            script,
            keys,
            args,
            then: Some(then),
        };
        self.attempts(keys.slot, &request).await
    }

    async fn attempts(&self, slot: u16, request: &Request<'_>) -> Result<Vec<Value>> {
        let until = Instant::now() + self.deadline;
        let mut pause = Pause::default();
        let mut whole = false;
        let mut cause = String::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = timeout(left, self.attempt_once(slot, request, whole)).await;
            let failure = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(failure)) => failure,
                Err(_) => return Err(self.unavailable(cause)),
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::NoScript if !whole => {
                    whole = true;
                    continue;
                }
                Failure::NoScript => cause = "the node forgot the script".into(),
                Failure::Again(why) => cause = why,
            }
            let rest = pause.next();
            if Instant::now() + rest >= until {
                return Err(self.unavailable(cause));
            }
            sleep(rest).await;
        }
    }

    async fn attempt_once(
        &self,
        slot: u16,
        request: &Request<'_>,
        whole: bool,
    ) -> std::result::Result<Vec<Value>, Failure> {
        let Some(Line { number, wire, .. }) = self.link.line().await else {
            return Err(Failure::Again("not connected".into()));
        };
        let error = match request.send(wire, slot, whole).await {
            Ok(value) => {
                self.silence(slot).store(0, Relaxed);
                return Ok(value);
            }
            Err(error) => error,
        };
        if self.reaches_nobody(&error) {
            self.link.abandon(number);
        } else if self.is_silent(slot, &error) {
            self.link.doubt(number);
        }
        Err(judge(&error))
    }

    /// A single server's connection is lost with its first error; a cluster's mends itself as
    /// long as it reaches any node.
    fn reaches_nobody(&self, error: &RedisError) -> bool {
        error.kind() == ErrorKind::ClusterConnectionNotFound
            || (!self.is_cluster() && error.is_io_error() && !error.is_timeout())
    }

    /// Whether the node was silent too often. The crate does not take that for a reason to look
    /// for another one.
    fn is_silent(&self, slot: u16, error: &RedisError) -> bool {
        if !error.is_timeout() {
            return false;
        }
        let silent = self.silence(slot).fetch_add(1, Relaxed) + 1;
        if silent >= SILENCE {
            self.silence(slot).store(0, Relaxed);
        }
        silent >= SILENCE
    }

    fn unavailable(&self, cause: String) -> StoreError {
        let why = [
            cause,
            self.link.cause(),
            "no answer before the deadline".into(),
        ];
        let first = why.into_iter().find(|why| !why.is_empty());
        StoreError::Unavailable(first.unwrap_or_default())
    }

    fn silence(&self, slot: u16) -> &AtomicU32 {
        &self.silent[usize::from(slot) * STRETCHES / 16_384 % STRETCHES]
    }
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
            Failure::NoScript => "the node forgot the script".into(),
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
