//! What a node knows of its cluster, published: the latest members and owners.

use std::sync::Arc;

use adsum_core::membership::{Members, Owners};
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

/// The latest members and owners, and those who follow them.
#[derive(Debug, Default)]
pub(crate) struct Views {
    members: watch::Sender<Arc<Members>>,
    owners: watch::Sender<Arc<Owners>>,
}

impl Views {
    /// Followers hear of it only if something is new.
    pub(crate) fn publish(&self, members: Members, owners: Owners) {
        replace(&self.members, members);
        replace(&self.owners, owners);
    }

    pub(crate) fn members(&self) -> Arc<Members> {
        self.members.borrow().clone()
    }

    pub(crate) fn owners(&self) -> Arc<Owners> {
        self.owners.borrow().clone()
    }

    pub(crate) fn watch_members(&self) -> BoxStream<'static, Arc<Members>> {
        WatchStream::new(self.members.subscribe()).boxed()
    }

    pub(crate) fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>> {
        WatchStream::new(self.owners.subscribe()).boxed()
    }
}

fn replace<T: PartialEq>(sender: &watch::Sender<Arc<T>>, new: T) {
    sender.send_if_modified(|current| {
        let changed = **current != new;
        if changed {
            *current = Arc::new(new);
        }
        changed
    });
}
