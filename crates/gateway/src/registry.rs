//! The connected sessions of this gateway, so that what the store says of one finds its
//! connection.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use adsum_core::{Conn, SessionKey, hold::Word};

use crate::outbox::Outbox;

/// Locks. One is held for one lookup, so a few are enough for a storm of reconnects.
const SHARDS: usize = 16;

type Sessions = HashMap<(SessionKey, Conn), Arc<Outbox>>;

/// Outboxes by session and connection.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    hasher: RandomState,
    shards: [Mutex<Sessions>; SHARDS],
}

impl Registry {
    fn shard(&self, key: &SessionKey) -> MutexGuard<'_, Sessions> {
        #[allow(clippy::cast_possible_truncation)]
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a connection in, and tells the holder before anybody else can speak for the same
    /// one. A client that did not hear the answer to its hello says it again under the same
    /// number: the connection that it left is told to go.
    pub(crate) fn add<T, E>(
        &self,
        key: &SessionKey,
        conn: Conn,
        outbox: &Arc<Outbox>,
        tell: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut shard = self.shard(key);
        let told = tell()?;
        let before = shard.insert((key.clone(), conn), Arc::clone(outbox));
        drop(shard);
        if let Some(before) = before {
            before.word(Word::Replaced);
        }
        Ok(told)
    }

    /// Takes a connection out, and tells the holder, unless another one speaks for it by now.
    pub(crate) fn remove(
        &self,
        key: &SessionKey,
        conn: Conn,
        outbox: &Arc<Outbox>,
        tell: impl FnOnce(),
    ) {
        let mut shard = self.shard(key);
        let named = (key.clone(), conn);
        if !shard
            .get(&named)
            .is_some_and(|own| Arc::ptr_eq(own, outbox))
        {
            return;
        }
        shard.remove(&named);
        tell();
        // After a wave of connections the table itself is what would stay.
        if shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
    }

    /// Whether this connection is here.
    pub(crate) fn has(&self, key: &SessionKey, conn: Conn) -> bool {
        self.shard(key).contains_key(&(key.clone(), conn))
    }

    /// Hands a word to the connection it is about, if that is here.
    pub(crate) fn deliver(&self, key: &SessionKey, conn: Conn, word: Word) {
        let outbox = self.shard(key).get(&(key.clone(), conn)).cloned();
        if let Some(outbox) = outbox {
            outbox.word(word);
        }
    }

    /// Hands a word to every connection.
    pub(crate) fn tell_all(&self, word: &Word) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().for_each(|outbox| outbox.word(word.clone()));
        }
    }

    /// How many sessions are connected.
    pub(crate) fn len(&self) -> usize {
        let lens = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.len()
        });
        lens.sum()
    }
}
