//! All rosters of a client, shared between its task, which writes, and the app, which reads.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use adsum_core::Topic;

use super::roster::Roster;
use crate::View;

/// The rosters by topic. Locked for short, never over an await.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<HashMap<Topic, Roster>>);

impl Book {
    /// The rosters. A panic elsewhere leaves them usable: each write is whole, or is repaired by
    /// the next state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Topic, Roster>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a topic.
    pub(crate) fn view(&self, topic: &Topic) -> Option<View> {
        self.lock().get(topic).map(Roster::view)
    }
}
