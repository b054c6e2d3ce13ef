//! Sessions without a connection, kept alive by beats: each carries the whole session, so one that
//! is not known is opened by it.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use adsum_core::{
    Conn, SessionKey, Stamp,
    store::{Answer, Shard, StoreError, Touch, Touched},
};
use adsum_proto::client::{Code, Fault, frame::Beat};
use futures::future::join_all;

use super::{Requests, Result, whose};
use crate::{Caller, EdgeError, clock, limits::LimitError};

/// What became of some beats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beaten {
    /// One for each, in their order.
    pub(crate) results: Vec<Result<()>>,
    /// How often to beat.
    pub(crate) heartbeat_ms: u64,
    /// Who is silent for longer is closed.
    pub(crate) ttl_ms: u64,
}

impl Requests {
    /// Takes beats, each judged by itself: one that is refused does not harm the others. What was
    /// no beat at all comes as its fault.
    pub(crate) async fn heartbeat(
        &self,
        caller: &Caller,
        beats: Vec<std::result::Result<Beat, Fault>>,
    ) -> Result<Beaten> {
        self.check_users(beats.len())?;
        let mut results = vec![Ok(()); beats.len()];
        let mut shards = BTreeMap::<Shard, Vec<(usize, Touch)>>::new();
        for (n, beat) in beats.into_iter().enumerate() {
            let touch = beat.map_err(EdgeError::from);
            match touch.and_then(|beat| self.touch(caller, beat)) {
                Ok(touch) => {
                    let shard = self.edge().store().shard_of(&touch.key.owner);
                    shards.entry(shard).or_default().push((n, touch));
                }
                Err(error) => results[n] = Err(error),
            }
        }
        let limit = caller.settings.limits.sessions_per_user;
        let shards = shards
            .into_values()
            .map(|touches| self.send(touches, limit));
        for (n, result) in join_all(shards).await.into_iter().flatten() {
            results[n] = result;
        }
        let times = &caller.settings.times;
        Ok(Beaten {
            results,
            heartbeat_ms: times.beat_ms(),
            ttl_ms: times.session_ttl_ms,
        })
    }

    fn touch(&self, caller: &Caller, beat: Beat) -> Result<Touch> {
        let owner = whose(caller, beat.user)?;
        for room in beat.state.rooms.keys() {
            caller.may_join(room)?;
        }
        let rev = match beat.rev {
            None => self.next_rev(),
            Some(rev) if (1..=Conn::MAX).contains(&rev) => rev,
            Some(_) => {
                let text = format!("rev: must be between 1 and {}", Conn::MAX);
                return Err(EdgeError::new(Code::MalformedFrame, text));
            }
        };
        Ok(Touch {
            key: SessionKey::new(owner, beat.device),
            stamp: Stamp {
                conn: beat.conn,
                rev,
            },
            state: beat.state,
            ttl_ms: caller.settings.times.session_ttl_ms,
            sessions_max: caller.settings.limits.sessions_per_user,
            origin: None,
        })
    }

    /// By arrival. The clock in µs, so that numbers grow from one gateway to the next as well, and
    /// never the same twice here; it stays below 2^53 for two centuries.
    fn next_rev(&self) -> u64 {
        let now = clock::wall_us();
        let next = |last: u64| Some(now.max(last + 1));
        let last = self
            .0
            .rev
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(now, |last| now.max(last + 1))
    }

    /// The beats of one shard. Not tried again here: a beat is what comes again by itself.
    async fn send(&self, touches: Vec<(usize, Touch)>, limit: usize) -> Vec<(usize, Result<()>)> {
        let (places, touches): (Vec<_>, Vec<_>) = touches.into_iter().unzip();
        let answered = match self.edge().store().touch(touches).await {
            Ok(answers) if answers.len() == places.len() => {
                answers.into_iter().map(|a| judged(a, limit)).collect()
            }
            Ok(_) => vec![Err(short()); places.len()],
            Err(error) => vec![Err(EdgeError::from(error)); places.len()],
        };
        places.into_iter().zip(answered).collect()
    }
}

fn judged(answer: Answer<Touched>, limit: usize) -> Result<()> {
    match answer.value {
        Touched::Ok { .. } => Ok(()),
        Touched::Superseded { conn } => Err(EdgeError::superseded(conn)),
        Touched::Full => Err(LimitError::Sessions { limit }.into()),
    }
}

fn short() -> EdgeError {
    StoreError::Corrupt("fewer answers than beats".into()).into()
}
