//! What one watcher was told so far.

use std::collections::BTreeMap;

use adsum_core::Version;

use crate::history::{Seen, View};

/// What a watcher knows of a user.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    /// As shown now.
    pub(super) seen: Option<Seen>,
    /// The highest number, and since when it may have been true when it was told.
    pub(super) v: Version,
    pub(super) v_since: u64,
    /// The highest mark, and the same of it.
    pub(super) mark: u64,
    pub(super) mark_since: u64,
    /// When they last left.
    pub(super) left_at: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) view: View,
    pub(super) begun: bool,
    pub(super) known: BTreeMap<String, Known>,
}

impl Watcher {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            begun: false,
            known: BTreeMap::new(),
        }
    }

    /// The room, if it watches one.
    pub(super) fn room(&self) -> Option<&str> {
        self.view.topic.strip_prefix("room:")
    }

    /// Whether a user can be in the topic at all.
    pub(super) fn concerns(&self, user: &str) -> bool {
        let only = self.view.topic.strip_prefix("user:");
        only.is_none_or(|only| only == user)
    }

    pub(super) fn shows(&self, user: &str) -> Option<&Seen> {
        self.known.get(user)?.seen.as_ref()
    }

    pub(super) fn eyes(&self) -> Option<&str> {
        self.view.eyes.as_deref()
    }
}
