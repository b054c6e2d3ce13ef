//! What is read of a shard. Nothing here writes.

use adsum_core::{
    UserId, UserKey,
    store::{Due, LogPage, Result, ScanPage, UserRead},
};

use super::shard::Shard;
use crate::Options;

/// People in a page of a scan.
const PAGE: usize = 500;

impl Shard {
    /// Before its birth a shard knows nothing, so absence means nothing.
    pub(super) fn read(&self, options: &Options, replid: u64, user: &UserKey) -> Result<UserRead> {
        self.check_shards(options)?;
        Ok(UserRead {
            person: self.people.get(user).map(|r| r.person.clone()),
            prefs: self.prefs_of(user),
            last_seen: self.seen.get(user),
            settling: self.position(replid).is_none_or(|p| p.settling),
        })
    }

    pub(super) fn contacts(&self, user: &UserKey) -> Option<(u64, Vec<UserId>)> {
        let list = self.contacts.get(user)?;
        Some((self.prefs_of(user).contacts, list.clone()))
    }

    pub(super) fn log_page(
        &self,
        options: &Options,
        replid: u64,
        after: u64,
        limit: usize,
    ) -> Result<LogPage> {
        self.check_shards(options)?;
        let position = self.position(replid);
        let hole = position.is_some_and(|p| after.saturating_add(1) < p.first);
        Ok(LogPage {
            position,
            entries: self.log.after(after, limit),
            hole,
        })
    }

    pub(super) fn scan(&self, cursor: u64) -> ScanPage {
        let mut rest = self.places.range(cursor.saturating_add(1)..);
        let page: Vec<_> = rest.by_ref().take(PAGE).collect();
        let more = rest.next().is_some();
        ScanPage {
            next: page.last().filter(|_| more).map(|(place, _)| **place),
            people: page
                .into_iter()
                .filter_map(|(_, u)| Some((u.clone(), self.people.get(u)?.person.clone())))
                .collect(),
        }
    }

    pub(super) fn due(&self, limit: usize) -> Vec<(Due, u64)> {
        self.deadlines
            .iter()
            .take(limit)
            .map(|(at, member)| (member.due(), *at))
            .collect()
    }
}
