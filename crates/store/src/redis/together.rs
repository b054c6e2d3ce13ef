//! Opens, changes and closes of sessions. What a caller asks for within one turn of its task goes to
//! the shard in one call: whatever a call costs by itself is paid once, and nobody waits for it.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use adsum_core::store::{Result, Shard, StoreError};
use futures::{future::join_all, poll};
use tokio::sync::oneshot;

use super::{
    RedisStore,
    answers::Reply,
    functions::{Function, Packed},
};

/// Most operations in one call, which nobody else of the shard comes between.
const MOST: usize = 64;
/// As many bytes of them begin another call.
const MOST_BYTES: usize = 64 << 10;

/// An operation of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Change,
    Close,
}

/// How it ended, if not with whether a change was committed.
pub(super) const REFUSED: u64 = 2;
pub(super) const SUPERSEDED: u64 = 3;
/// With a change that is all there is to say of its owner.
pub(super) const WHOLE: u64 = 4;

impl Kind {
    const fn letter(self) -> &'static [u8] {
        match self {
            Self::Open => b"o",
            Self::Change => b"c",
            Self::Close => b"x",
        }
    }

    /// How many values its answer has behind the first.
    fn more(self, first: u64) -> Result<usize> {
        match (first, self) {
            (0 | 1, Self::Open) => Ok(2),
            (0 | 1, Self::Change) | (SUPERSEDED | WHOLE, _) => Ok(1),
            (0 | 1, Self::Close) | (REFUSED, Self::Open | Self::Change) => Ok(0),
            _ => Err(StoreError::Corrupt(
                "an operation ended in no known way".into(),
            )),
        }
    }
}

/// One that was not sent yet.
#[derive(Debug)]
struct Waiting {
    owner: String,
    kind: Kind,
    packed: Packed,
    answer: oneshot::Sender<Result<Reply>>,
}

/// What waits for one shard until the caller's turn is over.
#[derive(Debug, Default)]
pub(super) struct Together(Mutex<Turn>);

#[derive(Debug, Default)]
struct Turn {
    waiting: Vec<Waiting>,
    /// How many times what was taken is about to be sent.
    sending: usize,
    /// Told when all that came before them has been sent.
    behind: Vec<oneshot::Sender<()>>,
}

impl Together {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        // Nothing in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is the first.
    fn add(&self, waiting: Waiting) -> bool {
        let mut turn = self.lock();
        turn.waiting.push(waiting);
        turn.waiting.len() == 1
    }

    /// All that waits, and who is behind it.
    fn take(&self) -> (Vec<Waiting>, Vec<oneshot::Sender<()>>) {
        let mut turn = self.lock();
        turn.sending += 1;
        let Turn {
            waiting, behind, ..
        } = &mut *turn;
        (std::mem::take(waiting), std::mem::take(behind))
    }

    /// What was taken has been sent; those who are left behind something else still wait.
    fn sent(&self, mut behind: Vec<oneshot::Sender<()>>) {
        let mut turn = self.lock();
        turn.sending -= 1;
        if turn.sending == 0 && turn.waiting.is_empty() {
            behind.append(&mut turn.behind);
        }
        drop(turn);
        for one in behind {
            // Whoever waited may have gone.
            let _ = one.send(());
        }
    }

    /// What to wait for, if anything was asked for before and not sent yet.
    fn behind(&self) -> Option<oneshot::Receiver<()>> {
        let mut turn = self.lock();
        if turn.waiting.is_empty() && turn.sending == 0 {
            return None;
        }
        let (tell, told) = oneshot::channel();
        turn.behind.push(tell);
        Some(told)
    }
}

/// In the order in which they came, and never two of one owner in one call: the function reads and
/// writes each owner once.
fn calls_of(all: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let mut calls: Vec<Vec<Waiting>> = Vec::new();
    let (mut owners, mut bytes) = (HashSet::new(), 0);
    for waiting in all {
        bytes += waiting.packed.len();
        let same = !owners.insert(waiting.owner.clone());
        match calls.last_mut() {
            Some(call) if !same && call.len() < MOST && bytes <= MOST_BYTES => call.push(waiting),
            _ => {
                bytes = waiting.packed.len();
                owners = HashSet::from([waiting.owner.clone()]);
                calls.push(vec![waiting]);
            }
        }
    }
    calls
}

impl RedisStore {
    /// Sends an operation together with what else is asked of its shard in this turn. Its fields
    /// come behind its owner and device, in the order of the functions' files.
    pub(super) async fn apply(
        &self,
        shard: Shard,
        kind: Kind,
        owner: String,
        fields: impl FnOnce(Packed) -> Packed,
    ) -> Result<Reply> {
        let packed = Packed::default()
            .bytes(kind.letter())
            .bytes(owner.as_bytes());
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            packed: fields(packed),
            owner,
            kind,
            answer,
        };
        if self.together(shard)?.add(waiting) {
            // A task of its own comes behind whatever the caller's does now; and whoever stops
            // waiting takes nobody along.
            let store = self.clone();
            tokio::spawn(async move { store.send_all(shard).await });
        }
        // Without an answer the runtime is at its end.
        let gone = |_| Err(StoreError::Unavailable("the call was given up".into()));
        answered.await.unwrap_or_else(gone)
    }

    fn together(&self, shard: Shard) -> Result<&Together> {
        self.keys(shard)?;
        let together = self.together.get(usize::from(shard));
        together.ok_or_else(|| StoreError::Refused(format!("there is no shard {shard}")))
    }

    /// Waits until the operations that were asked for before have been sent: the last renewal of a
    /// holder that overtook its first open would leave no deadline behind.
    pub(super) async fn behind(&self, shard: Shard) -> Result<()> {
        if let Some(sent) = self.together(shard)?.behind() {
            // Without an answer the runtime is at its end.
            let _ = sent.await;
        }
        Ok(())
    }

    async fn send_all(&self, shard: Shard) {
        let Ok(together) = self.together(shard) else {
            return;
        };
        let (all, behind) = together.take();
        let calls = calls_of(all).into_iter().map(|call| self.send(shard, call));
        let mut calls = pin!(join_all(calls));
        // What can be sent is on its connection once it was asked for the first time.
        let first = poll!(&mut calls);
        together.sent(behind);
        if first.is_pending() {
            calls.await;
        }
    }

    async fn send(&self, shard: Shard, call: Vec<Waiting>) {
        let replies = match self.call(shard, &call).await {
            Ok(replies) => replies.into_iter().map(Ok).collect(),
            // One of them may be to blame, and the others are not to suffer: each by itself. What
            // was done the first time is known by its number.
            Err(error) if call.len() > 1 && !error.retry() => {
                let alone = call.iter().map(|one| self.call_one(shard, one));
                join_all(alone).await
            }
            Err(error) => call.iter().map(|_| Err(error.clone())).collect(),
        };
        for (waiting, reply) in call.into_iter().zip(replies) {
            // Whoever asked may have gone.
            let _ = waiting.answer.send(reply);
        }
    }

    async fn call_one(&self, shard: Shard, one: &Waiting) -> Result<Reply> {
        let replies = self.call(shard, std::slice::from_ref(one)).await?;
        let none = || StoreError::Corrupt("no answer for an operation".into());
        replies.into_iter().next().ok_or_else(none)
    }

    async fn call(&self, shard: Shard, call: &[Waiting]) -> Result<Vec<Reply>> {
        let args = self.args(shard).with(|body| {
            let body = body.number(call.len() as u64);
            call.iter().fold(body, |body, one| body.append(&one.packed))
        });
        let mut reply = self.run(shard, Function::Apply, args).await?;
        let parts = call
            .iter()
            .map(|one| reply.part(|first| one.kind.more(first)));
        let parts = parts.collect::<Result<_>>()?;
        reply.answer(())?;
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(owner: &str, bytes: usize) -> Waiting {
        Waiting {
            owner: owner.into(),
            kind: Kind::Close,
            packed: Packed::default().bytes(&vec![0; bytes]),
            answer: oneshot::channel().0,
        }
    }

    fn sizes(all: Vec<Waiting>) -> Vec<usize> {
        calls_of(all).iter().map(Vec::len).collect()
    }

    #[test]
    fn an_owner_is_in_a_call_once() {
        let all = ["a", "b", "a", "c", "a"].map(|owner| waiting(owner, 1));
        assert_eq!(sizes(all.into()), [2, 2, 1]);
    }

    #[test]
    fn calls_are_bounded() {
        let many = (0..=MOST).map(|n| waiting(&n.to_string(), 1));
        assert_eq!(sizes(many.collect()), [MOST, 1]);
        let large = (0..3).map(|n| waiting(&n.to_string(), MOST_BYTES / 2));
        assert_eq!(sizes(large.collect()), [1, 1, 1]);
        let huge = (0..2).map(|n| waiting(&n.to_string(), MOST_BYTES * 2));
        assert_eq!(sizes(huge.collect()), [1, 1]);
        assert_eq!(sizes(Vec::new()), [0; 0]);
    }

    #[test]
    fn who_comes_behind_waits_until_what_came_before_was_sent() {
        let together = Together::default();
        assert!(together.behind().is_none(), "nothing came before");
        assert!(together.add(waiting("a", 1)));
        assert!(!together.add(waiting("b", 1)));
        let mut second = together.behind().unwrap();
        let (all, behind) = together.take();
        assert_eq!((all.len(), behind.len()), (2, 1));
        let mut third = together.behind().unwrap();
        assert!(together.add(waiting("c", 1)), "the first of the next turn");
        assert!(second.try_recv().is_err(), "taken is not sent");
        together.sent(behind);
        assert_eq!(second.try_recv(), Ok(()));
        assert!(third.try_recv().is_err(), "another one is before it now");
        let (_, behind) = together.take();
        together.sent(behind);
        assert_eq!(third.try_recv(), Ok(()));
        assert!(together.behind().is_none());
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        for (kind, first) in [(Kind::Close, REFUSED), (Kind::Open, 5), (Kind::Change, 9)] {
            assert!(kind.more(first).is_err());
        }
    }
}
