//! What weighs on a connection now and then: what waits for it, how it ends, and what it watches
//! beside its first topic. Most have nothing of all this most of the time, and keep no room for it.

use std::{collections::VecDeque, sync::Arc};

use adsum_core::hold::Word;
use adsum_proto::client::{Close, Ref};
use bytes::Bytes;

use super::{SlotId, waiting::Waiting};
use crate::hub::TopicState;

#[derive(Debug, Default)]
pub(super) struct Load {
    /// What was taken is being written: what comes now has to wait.
    pub(super) writing: bool,
    /// The connection is gone.
    pub(super) closed: bool,
    pub(super) close: Option<Close>,
    /// Answers that wait.
    pub(super) answers: u32,
    /// Entries that wait, of all topics.
    pub(super) entries: usize,
    /// The rest of a frame that was written in part.
    pub(super) rest: Option<Box<Bytes>>,
    /// The echo of the last ping.
    pub(super) pong: Option<Box<Bytes>>,
    pub(super) queue: VecDeque<Out>,
    pub(super) words: VecDeque<Word>,
    /// All but the first. A client watches few: looked through, not hashed.
    pub(super) topics: Vec<Waiting>,
}

#[derive(Debug)]
pub(super) enum Out {
    Answer(Bytes),
    State(SlotId, Arc<TopicState>, Option<Ref>, bool),
    /// A turn of a topic's deliveries.
    Turn(SlotId),
}

impl Load {
    /// Whether there is nothing to write, nor an end to come.
    pub(super) fn is_silent(&self) -> bool {
        let nothing = self.rest.is_none() && self.pong.is_none() && self.close.is_none();
        nothing && self.queue.is_empty()
    }

    /// Whether it is as good as none.
    pub(super) fn is_nothing(&self) -> bool {
        let over = self.writing || self.closed || self.entries > 0;
        !over && self.is_silent() && self.words.is_empty() && self.topics.is_empty()
    }

    /// One more answer waits; `false` if that is too much: who asks and asks and does not read
    /// is closed.
    pub(super) fn owe(&mut self, limit: u32) -> bool {
        if self.answers < limit {
            self.answers += 1;
            return true;
        }
        self.queue = VecDeque::new();
        self.answers = 0;
        self.close = Some(Close::TooMany);
        false
    }

    /// The first of what is queued.
    pub(super) fn next(&mut self) -> Option<Out> {
        let out = pop(&mut self.queue)?;
        if let Out::Answer(_) | Out::State(_, _, Some(_), _) = out {
            self.answers -= 1;
        }
        Some(out)
    }

    pub(super) fn next_word(&mut self) -> Option<Word> {
        pop(&mut self.words)
    }

    pub(super) fn remove(&mut self, slot: SlotId) -> Option<Waiting> {
        let at = self.topics.iter().position(|w| w.slot == slot)?;
        Some(self.topics.swap_remove(at))
    }
}

/// The first of a queue, which keeps no room when it is empty.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
    first
}
